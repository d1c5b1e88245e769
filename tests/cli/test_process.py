"""What only a process shows: exit codes, signals, pipes, a full disk, another locale. The other tests start none."""

import json
import os
import shlex
import signal
import subprocess
import time

import pytest

from tests.conftest import COMMAND, random_predictions, surefoot, surefoot_process

SPEC = """
data = { name = "digits", train = 60, test = 50 }
model = { name = "mlp", widths = [12] }
rule = { name = "sam", base = { name = "sgd", lr = 0.1, momentum = 0.9 } }
stop = { steps = 2000, batch = 20 }
track = { every = 100 }
checkpoint = 20
"""


@pytest.fixture
def folder(tmp_path):
    random_predictions(400, 4, sharp=2.0).save(tmp_path / "p.npz")
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path


def shell(line, folder):
    """A line for bash, where ``surefoot`` is the command."""
    line = line.replace("surefoot", shlex.join(COMMAND))
    return subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (0, ["evaluate", "p.npz"]),
        (2, ["evaluate", "absent.npz"]),
        (2, ["evaluate", "p.npz", "--bins", "x"]),
        (3, ["train", "spec.toml", "--set", "rule.base.lr=1e38"]),
    ],
)
def test_exit_codes(folder, code, arguments):
    """And as everywhere else in this process; 4 and 130 are below."""
    done = surefoot_process(*arguments, cwd=folder)
    assert done.exit_code == code
    assert "Traceback" not in done.stderr
    assert surefoot(*arguments, cwd=folder).exit_code == code


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_output_that_cannot_be_written_exits_with_4(folder):
    done = shell("surefoot evaluate p.npz --json > /dev/full", folder)
    assert done.returncode == 4
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_sigterm_commits_and_the_same_command_resumes(folder):
    arguments = ["train", "spec.toml", "--json"]
    process = subprocess.Popen([*COMMAND, *arguments], cwd=folder, stdout=subprocess.PIPE, text=True)
    deadline = time.time() + 60
    while time.time() < deadline and not any((folder / "runs").glob("*/state-*.safetensors")):
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(said)["outcome"] == "interrupted"
    assert json.loads(surefoot(*arguments, cwd=folder).stdout)["outcome"] == "finished"


def test_a_closed_pipe_is_no_error(folder):
    done = shell("surefoot evaluate p.npz | head -1", folder)
    assert "Traceback" not in done.stderr
    assert "400 predictions" in done.stdout
    assert done.returncode == 0


def test_a_closed_output_is_no_traceback(folder):
    assert "Traceback" not in shell("surefoot evaluate p.npz --json >&-", folder).stderr


def test_a_locale_without_the_letters(folder):
    done = surefoot_process("evaluate", "p.npz", cwd=folder, env={"PYTHONIOENCODING": "ascii"})
    assert done.exit_code == 0, done.stderr
