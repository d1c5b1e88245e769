"""Hugging Face's Trainer on two ranks, by torchrun and gloo: one set of readings, rank 0 writes, resume goes on."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import surefoot as sf
from surefoot.integrations.huggingface import Logits, SurefootCallback
from tests.integrations.test_huggingface import TEST, TRAIN, network

pytestmark = pytest.mark.slow  # torchrun and two imports of transformers
ROOT = Path(__file__).parents[2]  # where `tests` is


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("ranks")
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"),
        *("--nproc-per-node", "2", "-m", "tests.integrations.ranks_huggingface", str(found)),
    ]
    settings = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=os.environ | settings, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return found


@pytest.fixture(scope="module")
def ranks(folder):
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def test_both_read_the_same_and_what_one_process_reads(ranks):
    first, second = ranks
    assert first["steps"] == second["steps"] == [[0, 2, 4, 6], [4, 6]]  # 48 rows in batches of 2 × 8
    assert first["readings"] == second["readings"]
    callback = SurefootCallback(TRAIN, TEST)
    tracker = sf.Tracker(Logits(network(), callback._names), callback._train, callback._test)
    for name, expected in tracker.read(0).items():
        if isinstance(expected, float) and "residual" not in name:
            assert first["readings"][0][name] == pytest.approx(expected, rel=1e-6, abs=1e-9), name


def test_the_first_rank_alone_writes_and_logs(ranks, folder):
    assert ranks[0]["told"] == [0, 2, 4, 6, 4, 6]
    assert ranks[1]["told"] == []
    assert [path.name for path in (folder / "whole").iterdir()] == ["0"]


def test_training_is_the_same_without_it_and_resumed(ranks):
    for found in ranks:
        assert found["untouched"]
        assert found["resumed"]
        assert found["journal"]
