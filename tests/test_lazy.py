"""Start-up: what is imported, nothing heavier than needed. Each case runs in a process of its own."""

import subprocess
import sys

import pytest


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('MODULES', *sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.rpartition("MODULES")[2].split())


@pytest.mark.parametrize(
    "code",
    [
        "import surefoot",
        "import surefoot; surefoot.Predictions; surefoot.metrics.summary",
        "from surefoot.cli import app\ntry: app(['--help'])\nexcept SystemExit: pass",
        "from surefoot.cli import app\ntry: app(['evaluate', '--help'])\nexcept SystemExit: pass",
        "import surefoot; surefoot.report; import surefoot.reports.page, surefoot.reports.figures.paper",
        "import surefoot.reports.serve.server",
        "import surefoot.training.spec, surefoot.optim.registry, surefoot.losses.registry, surefoot.ensembles.registry",
        "import surefoot; surefoot.integrations",
        "import surefoot; surefoot.evaluate, surefoot.Evaluation, surefoot.data",
    ],
)
def test_torch_is_not_imported(code):
    found = modules_after(code)
    assert "torch" not in found
    assert "sklearn" not in found
    assert "matplotlib" not in found


def test_frameworks_are_imported_by_their_own_integration_only():
    frameworks = {"lightning", "pytorch_lightning", "transformers", "torchmetrics", "tensorboard"}
    found = modules_after("import surefoot; surefoot.Tracker; surefoot.integrations.loggers.CSVLogger")
    assert not frameworks & found


def test_the_root_is_empty_until_asked():
    found = modules_after("import surefoot")
    assert "numpy" not in found
    assert "typer" not in found


@pytest.mark.parametrize("package", ["data", "ensembles", "losses", "optim"])
def test_packages_that_import_on_first_use_have_all_their_names(package):
    import importlib

    module = importlib.import_module(f"surefoot.{package}")
    assert module.__all__ == dir(module)
    assert all(getattr(module, name).__module__ for name in module.__all__ if name != "schedules")
    assert module.registry.__name__ == f"surefoot.{package}.registry"
    with pytest.raises(AttributeError, match=f"module 'surefoot.{package}' has no attribute 'schedule'"):
        module.schedule  # noqa: B018


def test_unknown_names_are_said():
    import surefoot

    with pytest.raises(AttributeError, match="has no attribute 'metric'; it has Evaluation"):
        surefoot.metric  # noqa: B018
    assert set(surefoot.__all__) <= set(dir(surefoot))


def test_every_public_name_is_there():
    import surefoot

    for name in surefoot.__all__:
        assert getattr(surefoot, name) is not None
    assert surefoot.data is sys.modules["surefoot.data"]
    assert surefoot.models is sys.modules["surefoot.models"]
