"""A loop of the user's own that stops and goes on: its journal is that of a loop that never stopped."""

import pytest
import torch
from torch import nn

import surefoot as sf
from surefoot.errors import BadInput
from surefoot.runs.records import read_journal


class Loop:
    """Training that can be put down and taken up: weights, optimizer and tracker in one checkpoint."""

    def __init__(self, out, **options):
        torch.manual_seed(0)
        x = torch.randn(40, 4)
        self.data = x, x[:, :3].argmax(1)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.3, momentum=0.9)
        groups = {"calibration": 2, "curvature": 2, "histograms": 4}
        self.tracker = sf.Tracker(
            self.model, self.data, self.data, optimizer=self.opt, every=groups, out=out, **options
        )

    def run(self, begin, end, save_at=None):
        saved = None
        with self.tracker:
            for step in range(begin, end):
                self.opt.zero_grad()
                nn.functional.cross_entropy(self.model(self.data[0]), self.data[1]).backward()
                self.opt.step()
                self.tracker.step(step)
                if step + 1 == save_at:
                    saved = self.save()
        return saved

    def save(self):
        model = {name: value.clone() for name, value in self.model.state_dict().items()}
        state = self.opt.state_dict()
        momentum = {index: {k: v.clone() for k, v in entry.items()} for index, entry in state["state"].items()}
        return model, {**state, "state": momentum}, self.tracker.state_dict()

    def load(self, saved):
        model, opt, tracker = saved
        self.model.load_state_dict(model)
        self.opt.load_state_dict(opt)
        self.tracker.load_state_dict(tracker)


def files(folder):
    return [(folder / name).read_bytes() for name in ("journal.jsonl", "arrays.jsonl")]


@pytest.mark.parametrize("end", [5, 9], ids=["stopped at once", "stopped later"])
def test_a_loop_that_goes_on_writes_the_same_journal(end, tmp_path):
    Loop(tmp_path / "whole").run(0, 12)
    saved = Loop(tmp_path / "parts").run(0, end, save_at=5)
    again = Loop(tmp_path / "parts")
    again.load(saved)
    again.run(5, 12)
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


def test_a_state_taken_after_the_end_goes_on_too(tmp_path):
    Loop(tmp_path / "whole").run(0, 12)
    first = Loop(tmp_path / "parts")
    first.run(0, 6)
    again = Loop(tmp_path / "parts")
    again.load(first.save())
    again.run(6, 12)
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


def test_another_folder_begins_a_journal(tmp_path):
    saved = Loop(tmp_path / "first").run(0, 6, save_at=6)
    again = Loop(tmp_path / "second")
    again.load(saved)
    again.run(6, 10)
    assert [line["step"] for line in read_journal(tmp_path / "second" / "journal.jsonl")[0]] == [8, 10]


def test_a_run_that_was_not_tracked_begins_at_its_step(tmp_path):
    loop = Loop(tmp_path, start=6)
    loop.run(6, 9)
    assert [reading["step"] for reading in loop.tracker.readings] == [6, 8]
    with pytest.raises(BadInput, match="start"):
        Loop(tmp_path / "other", start=-1)
