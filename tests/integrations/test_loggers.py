"""Loggers: every reading arrives, resumed runs go on, and one that fails does not stop the run."""

import copy
import csv
import importlib
import sys
import warnings

import pytest
import torch
from torch import nn

import surefoot as sf
from surefoot.errors import BadInput, MissingDependency
from surefoot.integrations.loggers import CSVLogger, TensorBoardLogger, numbers_of


class Kept:
    def __init__(self):
        self.readings, self.closed = [], 0

    def log(self, reading):
        self.readings.append(copy.deepcopy(dict(reading)))
        reading.clear()  # its own copy

    def close(self):
        self.closed += 1


class Failing(Kept):
    def log(self, reading):
        super().log(reading)
        raise ConnectionError("no network")

    def close(self):
        raise OSError("gone")


def setup():
    torch.manual_seed(0)
    x = torch.randn(60, 4)
    return nn.Linear(4, 3), (x, x[:, :3].argmax(1))


def loop(loggers, steps=6, every=2, **options):
    model, data = setup()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with sf.Tracker(model, data, data, optimizer=opt, every=every, loggers=loggers, **options) as tracker:
        for step in range(options.get("start", 0), steps):
            opt.zero_grad()
            nn.functional.cross_entropy(model(data[0]), data[1]).backward()
            opt.step()
            tracker.step(step)
    return tracker, model


def table(path):
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_each_reading_is_forwarded_whole():
    first, second = Kept(), Kept()
    tracker, _ = loop([first, second])
    assert [reading["step"] for reading in tracker.readings] == [0, 2, 4, 6]
    assert first.readings == second.readings == tracker.readings
    assert "train.tail" in first.readings[0]
    assert first.closed == 1


def test_a_logger_that_fails_never_stops_a_run_and_is_told_of_once():
    failing, kept = Failing(), Kept()
    with pytest.warns(RuntimeWarning, match=r"logger Failing failed with ConnectionError: no network") as told:
        tracker, model = loop([failing, kept])
    assert len(told) == 1
    assert len(failing.readings) == len(kept.readings) == len(tracker.readings) == 4
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), loop([])[1].parameters(), strict=True))


def test_an_interrupt_inside_a_logger_is_no_failure_of_it():
    class Interrupted(Kept):
        def log(self, reading):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop([Interrupted()])


def test_what_is_no_logger_is_refused():
    for wrong, match in ((CSVLogger("x.csv"), "list of loggers"), ([print], "methods log")):
        with pytest.raises(BadInput, match=match):
            loop(wrong)


def test_csv(tmp_path):
    path = tmp_path / "deep" / "readings.csv"
    tracker, _ = loop([CSVLogger(path)], every={"calibration": 1, "curvature": 3})
    rows = table(path)
    assert [int(row["step"]) for row in rows] == list(range(7))
    for row, reading in zip(rows, tracker.readings, strict=True):
        numbers = numbers_of(reading)
        assert {name: float(value) for name, value in row.items() if value and name != "step"} == numbers
    assert rows[1]["sharpness"] == ""
    assert rows[3]["sharpness"] != ""


def test_csv_takes_new_columns(tmp_path):
    logger = CSVLogger(tmp_path / "r.csv")
    logger.log({"step": 0, "a": 1.0})
    logger.log({"step": 1, "a": 2.0})
    logger.log({"step": 2, "b, quoted": float("nan")})
    assert table(tmp_path / "r.csv") == [
        {"step": "0", "a": "1.0", "b, quoted": ""},
        {"step": "1", "a": "2.0", "b, quoted": ""},
        {"step": "2", "a": "", "b, quoted": "nan"},
    ]


def test_csv_of_a_run_that_goes_on(tmp_path):
    path = tmp_path / "r.csv"
    before = CSVLogger(path)
    for step in (0, 5, 10):
        before.log({"step": step, "a": 1.0})
    with path.open("a") as stream:
        stream.write("1")  # a line that a death cut short
    after = CSVLogger(path)
    after.log({"step": 10, "a": 2.0})
    after.log({"step": 15, "a": 3.0})
    assert [(row["step"], row["a"]) for row in table(path)] == [
        ("0", "1.0"),
        ("5", "1.0"),
        ("10", "2.0"),
        ("15", "3.0"),
    ]


def test_csv_of_another_run_is_left_alone(tmp_path):
    path = tmp_path / "r.csv"
    loop([CSVLogger(path)])
    before = path.read_bytes()
    with pytest.warns(RuntimeWarning, match="already holds readings"):
        loop([CSVLogger(path)])
    assert path.read_bytes() == before


def test_csv_goes_on_after_a_failed_write(tmp_path, monkeypatch):
    logger = CSVLogger(tmp_path / "r.csv")
    logger.log({"step": 0, "a": 1.0})
    with monkeypatch.context() as full:
        full.setattr(CSVLogger, "_text", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            logger.log({"step": 1, "a": 2.0})
    logger.log({"step": 2, "a": 3.0})
    assert [row["step"] for row in table(tmp_path / "r.csv")] == ["0", "1", "2"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard.*")
def test_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tracker, _ = loop([TensorBoardLogger(tmp_path)])
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    events = found.Scalars("train.ece")
    assert [event.step for event in events] == [0, 2, 4, 6]
    assert [event.value for event in events] == pytest.approx([reading["train.ece"] for reading in tracker.readings])
    # A run that goes on from step 4 replaces what was shown from there.
    again = TensorBoardLogger(tmp_path)
    again.log({"step": 4, "train.ece": 0.5})
    again.close()
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    assert [event.step for event in found.Scalars("train.ece")] == [0, 2, 4]


def test_missing_packages_are_said(monkeypatch, tmp_path):
    for name in ("torch.utils.tensorboard", "lightning.pytorch", "transformers", "torchmetrics"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependency, match=r"surefoot\[tensorboard\]"):
        TensorBoardLogger(tmp_path)
    for name, extra in (("lightning", "lightning"), ("huggingface", "transformers"), ("torchmetrics", "torchmetrics")):
        monkeypatch.delitem(sys.modules, f"surefoot.integrations.{name}", raising=False)
        with pytest.raises(MissingDependency, match=rf"surefoot\[{extra}\]"):
            importlib.import_module(f"surefoot.integrations.{name}")
    with pytest.raises(AttributeError, match="it has huggingface"):
        sf.integrations.keras  # noqa: B018


def test_a_logger_that_fails_does_not_stop_a_run_whose_warnings_are_errors(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tracker, _ = loop([Failing()])
    assert len(tracker.readings) == 4
    assert capsys.readouterr().err.count("logger Failing failed with ConnectionError") == 1


def test_a_csv_logger_given_to_another_run_leaves_the_table_of_the_first(tmp_path):
    logger = CSVLogger(tmp_path / "r.csv")
    loop([logger])
    before = (tmp_path / "r.csv").read_bytes()
    with pytest.warns(RuntimeWarning, match="already holds readings"):
        loop([logger])
    assert (tmp_path / "r.csv").read_bytes() == before
    loop([logger], start=4, steps=8)  # the same run going on
    assert [int(row["step"]) for row in table(tmp_path / "r.csv")] == [0, 2, 4, 6, 8]


def test_wrong_paths_and_classes_are_told():
    with pytest.raises(BadInput, match="path must be a file's path; got 7"):
        CSVLogger(7)
    with pytest.raises(BadInput, match="folder must be a file's path; got None"):
        TensorBoardLogger(None)
    with pytest.raises(BadInput, match=r"not their classes; write CSVLogger\(...\)"):
        loop([CSVLogger])
