"""The recipes of docs/STREAMS.md run, and give what all rows at once give."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import surefoot as sf

PAGE = (Path(__file__).parents[2] / "docs" / "STREAMS.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture
def paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    for part in range(3):
        prob = random.random(400)
        columns = {
            "prob": prob,
            "label": (random.random(400) < prob).astype(int),
            "weight": random.random(400),
            "country": random.choice(["de", "fr"], 400),
        }
        pq.write_table(pa.table(columns), f"part-{part}.parquet", row_group_size=150)
    return [f"part-{part}.parquet" for part in range(3)]


def predictions(paths, weighted=False):
    table = pa.concat_tables(pq.read_table(path) for path in paths)
    column = {name: table[name].to_numpy() for name in table.column_names}
    return sf.Predictions.from_probs(
        column["prob"], column["label"], column["weight"] if weighted else None, groups={"country": column["country"]}
    )


def test_the_recipes_for_one_machine_and_for_many(paths, capsys):
    loop, grouped, weights, many, cluster, ranks = BLOCKS
    space = {"paths": paths}
    for block in (loop, grouped, weights, many):
        exec(block, space)
    first, p, weighted = predictions(paths[:1]), predictions(paths), predictions(paths, weighted=True)
    assert space["state"].compute()["ece"] == sf.metrics.ece(first)
    assert capsys.readouterr().out.splitlines()[0] == str(sf.metrics.ece(first))
    assert space["weighted"].compute()["ece"] == sf.metrics.ece(weighted)
    assert space["whole"].to_bytes() == sf.metrics.accumulate([p], by="country").to_bytes()
    # What a cluster would map gives the same, block by block.
    exec(cluster.partition("\n\n\n")[2].partition("\n\n\n")[0], space | {"np": np}, space)
    blocks = [pq.read_table(path).to_pydict() for path in paths]
    parts = [space["state_of_block"]({name: np.array(v) for name, v in block.items()})["state"] for block in blocks]
    assert space["merged"](part[0] for part in parts).to_bytes() == space["whole"].to_bytes()
    compile(ranks, "STREAMS.md", "exec")


def test_every_metric_that_the_page_promises_is_there(paths):
    table = PAGE.partition("## Metrics of a state")[2].partition("Metrics that")[0]
    promised = set(re.findall(r"`(\w+)`", table))
    p = predictions(paths)
    assert promised == {*sf.metrics.accumulate([p]).compute(), *sf.metrics.accumulate([p], event="top").compute()}


def test_the_size_is_as_stated():
    assert 4000 < sum(array.nbytes for array in sf.metrics.CalibrationState().arrays.values()) < 5000
