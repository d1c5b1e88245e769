"""Predictions larger than memory: batches of every format, the same numbers as all rows at once."""

import json

import numpy as np
import pandas
import pyarrow
import pytest
from pyarrow import feather

import surefoot as sf
from surefoot.errors import BadInput
from surefoot.evaluation import evaluate_batches

from ..cli.test_evaluate import output
from ..conftest import random_predictions

P = random_predictions(3000, 3)
METRICS = ("ece", "mce", "rmsce", "gap", "over_confidence", "under_confidence")


def columns(p):
    return {"label": p.labels, **{f"logit_{index}": np.asarray(p.logits)[:, index] for index in range(p.classes)}}


def test_batches_give_what_all_rows_give():
    whole = sf.evaluate(P)
    parts = evaluate_batches(P.take(slice(begin, begin + 700)) for begin in range(0, 3000, 700))
    for name in METRICS:
        assert parts.metrics[name] == whole.metrics[name]
    for name in ("accuracy", "nll", "brier"):
        assert parts.metrics[name] == pytest.approx(whole.metrics[name], rel=1e-13)
    assert parts.verdict.chance == whole.verdict.chance
    assert parts.verdict.direction == whole.verdict.direction
    assert parts.intervals["gap"] == pytest.approx((whole.verdict.gap_low, whole.verdict.gap_high))
    np.testing.assert_array_equal(parts.reliability.band, whole.reliability.band)
    assert parts.sentences[0] == whole.sentences[0]


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet", ".feather", ".jsonl", ".npz"])
def test_formats(tmp_path, suffix):
    path, frame = tmp_path / f"p{suffix}", pandas.DataFrame(columns(P))
    if suffix.startswith(".csv"):
        frame.to_csv(path, index=False)
    elif suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True, double_precision=15)
    elif suffix == ".npz":
        P.save(path)
    elif suffix == ".feather":
        feather.write_feather(pyarrow.Table.from_pandas(frame), path, chunksize=800)
    else:
        frame.to_parquet(path, row_group_size=512)
    batches = list(sf.Predictions.batches(path, rows=400))
    assert sum(map(len, batches)) == 3000
    assert len(batches) > 1 or suffix in (".npz", ".jsonl", ".csv", ".csv.gz")
    assert evaluate_batches(batches).metrics["ece"] == pytest.approx(sf.metrics.ece(P), rel=1e-12)


def test_a_folder_of_parts_on_the_command_line(tmp_path):
    for part in range(3):
        P.take(slice(part * 1000, part * 1000 + 1000)).save(tmp_path / f"part-{part}.parquet")
    found = json.loads(output("evaluate", tmp_path, "--stream", "--json"))
    assert found["n"] == 3000
    assert found["metrics"]["ece"]["value"] == sf.metrics.ece(P)
    assert "Overconfident" in output("evaluate", str(tmp_path / "part-*.parquet"), "--stream")


def test_one_probability_a_row_in_batches():
    y = P.labels == 0
    prob = P.probs[:, 0]
    frame = pandas.DataFrame({"label": y, "prob": prob})
    parts = evaluate_batches(sf.Predictions.batches(frame, rows=500))
    whole = sf.evaluate(sf.Predictions.from_probs(prob, y))
    assert parts.metrics["ece"] == whole.metrics["ece"]
    assert parts.form == whole.form == "positive"
    assert parts.sentences == whole.sentences


def test_misuse(tmp_path):
    with pytest.raises(BadInput, match="rows must be an integer"):
        next(sf.Predictions.batches(tmp_path, rows=0))
    with pytest.raises(BadInput, match="no file at"):
        next(sf.Predictions.batches(tmp_path / "absent.csv"))
    with pytest.raises(BadInput, match="has no rows"):
        evaluate_batches([])
    (tmp_path / "p.csv").write_text("label,prob_0,prob_1\n0,.5,.5\n1,x,.5\n")
    with pytest.raises(BadInput, match=r"not an intact \.csv"):
        list(sf.Predictions.batches(tmp_path / "p.csv"))


def test_parts_that_do_not_fit_together_are_refused(tmp_path):
    pandas.DataFrame({"label": [0, 1], "prob": [0.5, 0.2]}).to_csv(tmp_path / "a.csv", index=False)
    pandas.DataFrame({"label": [0, 1], "logit": [0.5, 0.2]}).to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(BadInput, match=r"b\.csv' has other scores"):
        list(sf.Predictions.batches(tmp_path))


def test_clusters_are_refused():
    clustered = sf.Predictions(P.logits, P.labels, clusters=np.arange(3000) // 10)
    with pytest.raises(BadInput, match="which a stream does not keep"):
        evaluate_batches([clustered])
    result = sf.evaluate(clustered)
    assert result.intervals["gap"] == (result.verdict.gap_low, result.verdict.gap_high)
