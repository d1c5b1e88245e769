"""Twenty float64 steps of two ranks and of one process end in the same place; rank 0 alone writes."""

import json
import os
import signal
import subprocess
import sys

import pytest
import torch
from torch import nn

from surefoot.dataset import as_dataset
from surefoot.errors import BadInput, RankLost
from surefoot.losses.registry import Facts, build_objective
from surefoot.ranks import all_ranks
from surefoot.runs.checkpoint import load_newest
from surefoot.runs.records import read_journal
from surefoot.training import run as run_module
from surefoot.training.loop import Batches, train
from surefoot.training.run import run
from surefoot.training.spec import spec_of
from surefoot.training.tracker import Tracker
from tests.ranks.spawn import PROCESSES, join_group

RULES = {
    "sgd": {"name": "sgd", "lr": 0.1, "momentum": 0.9},
    "adamw": {"name": "adamw", "lr": 0.01},
    "muon": {"name": "muon", "lr": 0.02},
    "sam": {"name": "sam", "rho": 0.1, "base": {"name": "sgd", "lr": 0.1}},
    "csam": {"name": "csam", "gamma": 2.0, "base": {"name": "sgd", "lr": 0.1}},
    "bsam": {"name": "bsam", "examples": 60, "lr": 0.1},
    "bulk": {"name": "bulk", "lr": 0.1, "k": 2, "refresh": 5},
    "dom": {"name": "dom", "lr": 0.1, "k": 2, "refresh": 5},
}
OWN = {"name": "sam", "rho": 0.1, "per_rank": True, "base": {"name": "sgd", "lr": 0.1}}


def spec(rule, **changes):
    table = {
        "dtype": "float64",
        "data": {"name": "digits", "train": 60, "val": 21, "test": 35},
        "model": {"name": "mlp", "widths": [12]},
        "rule": rule,
        "stop": {"steps": 20, "batch": 20},
        "track": {"every": 10},
        "checkpoint": 5,
    }
    return spec_of(table | changes)


class Killed(BaseException):
    """Stands for a death of all ranks at once."""


def weights(folder):
    tensors, _ = load_newest(folder)
    return {name: value for name, value in tensors.items() if name.startswith(("model/", "rule/"))}


def images(norm):
    """The loop on pictures that are cropped and flipped: the state of the network after four steps."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 3, 3), *([nn.BatchNorm2d(3)] if norm else []), nn.Tanh(), nn.Flatten(), nn.Linear(48, 3)]
    model, x, y = nn.Sequential(*layers).double(), torch.randn(24, 1, 6, 6).double(), torch.arange(24) % 3
    ranks = all_ranks()
    own = x[ranks.share(24)], y[ranks.share(24)]
    objective, opt = build_objective("ce", {}, Facts(24, 3, None)), torch.optim.SGD(model.parameters(), lr=0.1)
    with Tracker(model, own, own, every=2, ranks=True) as tracker:
        data = as_dataset("train", (x, y))
        train(model, opt, objective, data, Batches(24, 8, 0), 4, lambda _: 1.0, tracker, augment=True, ranks=ranks)
    return model.state_dict()


def outcome(result):
    return result.folder.name, result.outcome, result.step, result.final


def work(rank, folder):
    found = {name: outcome(run(spec(rule), folder / name)) for name, rule in RULES.items()}
    found["own"] = outcome(run(spec(OWN), folder / "own"))
    found["augmented"], found["batch norm"] = images(norm=False), images(norm=True)
    writes = []
    if rank:  # whatever a rank beside the first would open for writing
        for name in ("RunWriter", "claimed", "write_json", "write_examples"):
            setattr(run_module, name, lambda *_, name=name: writes.append(name))

    def die(step, steps, loss, reading):
        if step == 12:
            raise Killed

    try:
        run(spec(RULES["csam"], best={"metric": "val.nll"}), folder / "killed", watch=die)
    except Killed:
        found["killed"] = outcome(run(spec(RULES["csam"], best={"metric": "val.nll"}), folder / "killed"))
    found["whole"] = outcome(run(spec(RULES["csam"], best={"metric": "val.nll"}), folder / "whole"))
    found["again"] = run(spec(RULES["csam"], best={"metric": "val.nll"}), folder / "whole").fresh
    found["writes"] = writes
    found["refused"] = []
    for changes in ({"stop": {"steps": 1, "batch": 15}}, {"ranks": 4}, {"data": {"train": 61}, "stop": {"steps": 1}}):
        try:
            run(spec(RULES["sgd"], **changes), folder / "refused")
        except BadInput as error:
            found["refused"].append(str(error))
    return found


@pytest.mark.parametrize("rule", RULES)
def test_twenty_steps_end_in_the_same_place(rule, ranks, folder, tmp_path):
    alone = run(spec(RULES[rule]), tmp_path)
    name, *_, final = ranks[0][rule]
    assert name != alone.folder.name  # the number of ranks is a part of a run's identity
    ours, theirs = weights(alone.folder), weights(folder / rule / name)
    assert set(ours) == set(theirs)
    for state in (ours, theirs):  # a direction's sign is chance, and projects the same
        state.update({key: torch.einsum("kd,ke->kde", v, v) for key, v in state.items() if key.endswith("/basis")})
    for key, expected in ours.items():
        assert torch.allclose(theirs[key].double(), expected.double(), rtol=1e-9, atol=1e-9), key
    for key, value in alone.final.items():
        if isinstance(value, float) and "residual" not in key:
            assert final[key] == pytest.approx(value, rel=1e-8, abs=1e-9, nan_ok=True), key


def test_each_rank_perturbs_on_its_own_if_told(ranks, folder):
    """m-sharpness is another training, on which the ranks still agree."""
    assert ranks[0]["own"] == ranks[1]["own"]
    shared, own = (weights(folder / name / ranks[0][name][0]) for name in ("sam", "own"))
    assert max(float((own[name] - shared[name]).abs().max()) for name in shared if "weight" in name) > 1e-4


def test_ranks_agree_to_the_bit(ranks):
    first, second = ({name: found[name] for name in (*RULES, "own")} for found in ranks)
    assert repr(first) == repr(second)
    for name in ("augmented", "batch norm"):
        first, second = (found[name] for found in ranks)
        assert all(torch.equal(first[key], second[key]) for key in first)


def test_each_sees_its_part_of_the_augmented_batch(ranks):
    for key, expected in images(norm=False).items():
        assert torch.allclose(ranks[0]["augmented"][key], expected, rtol=0, atol=1e-12)


def test_the_first_rank_alone_writes(ranks):
    assert ranks[1]["writes"] == []


def test_killed_together_they_end_with_the_same_bytes(ranks, folder):
    killed, whole = (folder / name / ranks[0][name][0] for name in ("killed", "whole"))
    assert killed.name == whole.name
    assert json.loads((whole / "spec.json").read_text())["ranks"] == 2
    for path in sorted(whole.iterdir()):
        if path.name not in ("lock", "timings.jsonl", "state-b.safetensors"):
            assert (killed / path.name).read_bytes() == path.read_bytes(), path.name
    assert ranks[0]["again"] is ranks[1]["again"] is False


def test_what_cannot_be_shared_is_refused(ranks):
    for found in ranks:
        batch, count, full = found["refused"]
        assert "stop.batch must be a multiple of ranks, which share it equally; got 15 and 2" in batch
        assert "this spec is for 4 ranks, and 2 run it" in count
        assert "2 ranks share a batch equally; got 61 rows" in full


def test_one_process_refuses_a_spec_for_two(tmp_path):
    with pytest.raises(BadInput, match=r"for 2 ranks, and 1 run it; start it by torchrun --nproc-per-node 2"):
        run(spec(RULES["sgd"], ranks=2), tmp_path)


def test_one_rank_is_no_rank():
    assert spec(RULES["sgd"], ranks=1).resolved() == spec(RULES["sgd"]).resolved()
    assert "ranks" not in spec(RULES["sgd"]).resolved()


def _dying(rank, folder):
    join_group(rank, folder)
    all_ranks().wait()
    if rank:

        def die(step, *_):
            if step == 3:
                os.kill(os.getpid(), signal.SIGKILL)

        run(spec(RULES["sgd"]), folder, watch=die)
    try:
        run(spec(RULES["sgd"]), folder)
    except RankLost as error:
        (folder / "said").write_text(str(error))
        os._exit(0)  # as the command line leaves: gloo's threads of a lost group may abort an ordinary exit


def test_a_rank_that_dies_stops_the_others(tmp_path):
    both = [PROCESSES.Process(target=_dying, args=(rank, tmp_path), daemon=True) for rank in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(timeout=400)  # a limit, for busy machines: gloo itself would wait half an hour
    assert [process.exitcode for process in both] == [0, -signal.SIGKILL]
    assert "another rank died or fell silent" in (tmp_path / "said").read_text()
    (left,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert [reading["step"] for reading in read_journal(left / "journal.jsonl")[0]] == [0]
    assert not (left / "result.json").exists()


def test_torchrun(tmp_path):
    (tmp_path / "spec.toml").write_text(
        'rule = { name = "sgd", lr = 0.1 }\nmodel = { name = "mlp", widths = [8] }\n'
        'data = { name = "digits", train = 40, test = 20 }\nstop = { steps = 4, batch = 10 }\ntrack = { every = 2 }\n'
    )
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"),
        *(
            "--nproc-per-node",
            "2",
            "-m",
            "surefoot",
            "train",
            str(tmp_path / "spec.toml"),
            "--out",
            str(tmp_path / "runs"),
        ),
    ]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert (found["outcome"], found["step"]) == ("finished", 4)
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "spec.json").read_text())["ranks"] == 2
