"""Every benchmark still runs, on few and random data: a script that nobody runs goes stale unseen."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

PLACE = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(path.stem for path in PLACE.glob("*.py") if "argparse" in path.read_text())
OF_IMAGES = {"curvature", "margins", "optim", "scale", "shift", "theory", "training"}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    random = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "images.npz"
    np.savez(path, x_train=random.integers(0, 256, (1024, 32, 32, 3), np.uint8), y_train=np.arange(1024) % 10)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_benchmark_runs(script, images, tmp_path):
    data = ["--data", images] if script in OF_IMAGES else []
    command = [sys.executable, PLACE / f"{script}.py", "--quick", *data, "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / f"{script}.md").read_text().startswith("# ")
    assert (tmp_path / f"{script}.json").is_file()
