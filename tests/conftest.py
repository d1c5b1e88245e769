"""Predictions to test with, the command line in this process, and the profile of the random tests."""

import contextlib
import multiprocessing
import os
import subprocess
import sys
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from typer.testing import CliRunner

from surefoot import Predictions, cli, posthoc
from surefoot.evaluation import evaluation

# Several test processes share the cores; threads inside each would only wait for one another.
torch.set_num_threads(1)

# Processes of `tests.ranks.spawn` are forked by a server that imports these once, instead of once for each of them.
multiprocessing.set_forkserver_preload(["surefoot.training.run", "torch._dynamo"])

# Times vary on shared machines; a failing example is printed so that it can be replayed.
settings.register_profile("default", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("default")


def random_predictions(n: int, k: int, seed: int = 0, scale: float = 2.0, sharp: float = 1.5) -> Predictions:
    """Labels drawn from softmax(logits), predictions too sure by a factor ``sharp``."""
    random = np.random.default_rng(seed)
    logits = scale * random.standard_normal((n, k))
    gumbel = random.gumbel(size=(n, k))
    return Predictions(sharp * logits, (logits + gumbel).argmax(1))


def binary_predictions(confidence: np.ndarray, correct: np.ndarray) -> Predictions:
    """Predictions of two or more classes with exactly these confidences (any in (0, 1]) and outcomes."""
    confidence = np.asarray(confidence, dtype=np.float64)
    k = max(2, int(np.ceil(1 / confidence.min())) + 1)
    probs = np.repeat(((1 - confidence) / (k - 1))[:, None], k, axis=1)
    probs[:, 0] = confidence
    # The rows sum to one up to rounding, and such rows are kept to the bit.
    return Predictions.from_probs(probs, np.where(correct, 0, 1))


COMMAND = [sys.executable, "-m", "surefoot"]


class Completed(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


def surefoot(*arguments, cwd=".", env=None) -> Completed:
    """The command ``surefoot ARGUMENTS`` without a new process, which would import torch again.

    Exit codes are those of the process, see `surefoot.cli.invoke`. An exception that is not expected is not caught.
    """
    with CliRunner().isolation(env=env) as (stdout, stderr, _), contextlib.chdir(cwd):
        code = cli.invoke([str(word) for word in arguments])
        sys.stdout.flush()
        sys.stderr.flush()
        return Completed(code, stdout.getvalue().decode(), stderr.getvalue().decode())


def surefoot_process(*arguments, cwd=None, env=None) -> Completed:
    """The same in a process of its own, for what only a process shows; it costs seconds."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd, env=os.environ | (env or {}), capture_output=True, text=True, check=False,
    )  # fmt: skip
    return Completed(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def few_resamples(monkeypatch):
    """20 instead of hundreds, where nobody looks at the intervals."""
    monkeypatch.setattr(evaluation, "intervals", partial(evaluation.intervals, resamples=20))
    monkeypatch.setattr(posthoc, "compare", partial(posthoc.compare, resamples=20))


@pytest.fixture
def p() -> Predictions:
    return random_predictions(500, 5)
