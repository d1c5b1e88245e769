"""The golden cases: what is run, through the public interface alone, and where the golden files are."""

import hashlib
import json
import platform
import re
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from typer.testing import CliRunner

import surefoot as sf
from surefoot.cli import app
from surefoot.data.sets import load_set
from surefoot.training.spec import spec_of

HERE = Path(__file__).parent
SPECS = HERE / "specs.json"  # a list of {"name", "id", "spec"}; specs in the spelling of version 0.1.0
MACHINE = HERE / "machine.json"  # what made the golden files
RENAMED = HERE / "renamed.json"
RUNS = HERE / "runs"  # for some of the specs, by name: FILES, TENSORS and WEIGHTS
STUDY_FILE = HERE / "study.toml"
STUDY = HERE / "study"  # the folder of that study, without checkpoints and clock times: input of the report page
TABLES = HERE / "tables"  # of that study
PAGE = HERE / "page.json"
OLD = HERE / "old"  # written by version 0.1.0, never made again
STATUS = HERE / "status.json"  # of OLD

FILES = ("journal.jsonl", "arrays.jsonl", "result.json")
TENSORS = "tensors.json"  # of the last checkpoint: type, shape and SHA-256
WEIGHTS = "weights.npz"
FORMATS = {"json": "tables.json", "csv": "tables.csv", "markdown": "tables.md"}
# Clock times, the version, and text for people.
_NOT_DATA = {"seconds", "pace", "version", "title", "unit"}


def specs():
    return json.loads(SPECS.read_text())


def runs():
    """The specs that are trained."""
    return [each for each in specs() if (RUNS / each["name"]).is_dir()]


def surefoot(*arguments):
    """The standard output of a command, which must end well."""
    found = CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


def machine():
    """What decides the last bits of a result."""
    try:
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
        facts = dict(re.split(r"\s*:\s*", line, maxsplit=1) for line in first.splitlines())
        cpu = f"{facts['model name']}, family {facts['cpu family']}, model {facts['model']}"
    except (OSError, ValueError, KeyError):  # no Linux, or another processor's words
        cpu = platform.processor()
    return {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "cpu": cpu,
    }


def write_arrays(root):
    """The user's own data, ``arrays:tiny``."""
    x = (np.arange(40 * 6).reshape(40, 6) * 7 % 11).astype(np.float32)
    y = np.arange(40) % 3
    np.savez(root / "tiny.npz", x_train=x[:30], y_train=y[:30], x_test=x[30:], y_test=y[30:])


def run_id(spec, root):
    """The id of a spec's run."""
    found = spec_of(spec)
    return found.run_id(load_set(found.data.name, root).digest())


def train(spec, out):
    """The folder of the run."""
    return sf.train(spec, out).folder


def last_tensors(folder):
    """The tensors of a run's last checkpoint."""
    found = []
    for path in folder.glob("state-*.safetensors"):
        with safe_open(path, framework="np") as file:
            step = json.loads(file.metadata()["surefoot"])["step"]
            found.append((step, {name: file.get_tensor(name) for name in sorted(file.keys())}))
    return max(found, key=lambda each: each[0])[1]


def described(tensors):
    """Type, shape and SHA-256 of tensors."""
    return {
        name: [str(each.dtype), list(each.shape), hashlib.sha256(each.tobytes()).hexdigest()]
        for name, each in tensors.items()
    }


def weights(tensors):
    """The tensors of the model alone."""
    return {name: each for name, each in tensors.items() if name.startswith("model/")}


def run_study(out):
    surefoot("study", STUDY_FILE, "--out", out, "--json")


def tables(folder):
    """The tables of a study as text, by the names of the golden files."""
    return {name: surefoot("table", folder, "--format", how) for how, name in FORMATS.items()}


def page(folder, out):
    """The data that the report page of ``folder`` embeds; of pictures, which are long, their SHA-256."""
    text = sf.report(folder, out).read_text()
    _, _, rest = text.partition('<script type="application/json" id="data">')
    found = _data(json.loads(rest.partition("</script>")[0]))
    found["pictures"] = {name: hashlib.sha256(uri.encode()).hexdigest() for name, uri in found["pictures"].items()}
    return found


def _data(value):
    if isinstance(value, dict):
        return {key: _data(item) for key, item in value.items() if key not in _NOT_DATA}
    return [_data(item) for item in value] if isinstance(value, list) else value


def status(folder):
    """What ``surefoot status`` says of a folder of runs."""
    return json.loads(surefoot("status", folder, "--json"))["runs"]
