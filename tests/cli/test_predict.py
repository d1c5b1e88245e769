"""`surefoot predict`: the file's metrics are those of the run's last reading."""

import numpy as np
import pytest

import surefoot as sf
from surefoot.training.run import run
from tests.conftest import surefoot
from tests.training.test_runs import spec


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return run(spec(steps=20, best={"metric": "val.nll"}), tmp_path_factory.mktemp("runs"))


def test_the_file_tells_what_the_run_read(result, tmp_path):
    out = tmp_path / "p.npz"
    done = surefoot("predict", result.folder, "-o", out)
    assert done.exit_code == 0, done.stderr
    assert "40 of val, 50 of test" in done.stdout
    following = done.stdout.splitlines()[-1].removeprefix("next: surefoot ").split()
    for part in ("val", "test"):
        p = sf.Predictions.load(out, split=part)
        for name, found in (
            ("ece", sf.metrics.ece(p)),
            ("nll", sf.metrics.nll(p)),
            ("accuracy", sf.metrics.accuracy(p)),
        ):
            assert float(found) == pytest.approx(result.final[f"{part}.{name}"], rel=1e-12), (part, name)
    assert following[0] == "calibrate"
    assert surefoot(*following, "--method", "temperature").exit_code == 0
    assert surefoot("evaluate", out, "--split", "test").exit_code == 0


def test_parts_and_best_weights(result, tmp_path):
    out = tmp_path / "p.npz"
    done = surefoot("predict", result.folder, "-o", out, "--parts", "train, test", "--best")
    assert done.exit_code == 0, done.stderr
    with np.load(out) as found:
        assert sorted(found) == ["test_labels", "test_logits", "train_labels", "train_logits"]
        assert found["train_logits"].shape == (60, 10)
        best = found["test_logits"]
    surefoot("predict", result.folder / "best.safetensors", "-o", out)
    with np.load(out) as found:
        assert (found["test_logits"] == best).all()


def test_predictions_of_a_network_that_draws_are_those_of_the_run(tmp_path):
    data = {"name": "digits", "train": 100, "val": 100, "test": 150}
    found = run(spec(steps=20, data=data, ensemble={"name": "dropout"}), tmp_path)
    assert surefoot("predict", found.folder, "-o", tmp_path / "p.npz").exit_code == 0
    p = sf.Predictions.load(tmp_path / "p.npz", split="test")
    assert float(sf.metrics.ece(p)) == pytest.approx(found.final["test.ece"], rel=1e-12)


def test_best_and_a_file_do_not_go_together(result, tmp_path):
    done = surefoot("predict", result.folder / "best.safetensors", "--best", "-o", tmp_path / "p.npz")
    assert (done.exit_code, "give one of the two" in done.stderr) == (2, True)


def test_without_validation_only_test(tmp_path):
    folder = run(spec(steps=2, data={"name": "digits", "train": 60, "test": 50}), tmp_path).folder
    done = surefoot("predict", folder, "-o", tmp_path / "p.npz")
    assert "evaluate" in done.stdout
    done = surefoot("predict", folder, "-o", tmp_path / "q.npz", "--parts", "val")
    assert (done.exit_code, "no validation examples" in done.stderr) == (2, True)
    assert not (tmp_path / "q.npz").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("predict", "nowhere"), "no intact checkpoint"),
        (("predict", "RUN", "-o", "p.csv"), ".npz file"),
        (("predict", "RUN", "--parts", "tset"), "--parts must be of"),
        (("predict", "RUN", "-o", "nowhere/p.npz"), "cannot write"),
    ],
)
def test_what_cannot_be(result, arguments, said):
    done = surefoot(*[result.folder if each == "RUN" else each for each in arguments])
    assert done.exit_code in (2, 4)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
