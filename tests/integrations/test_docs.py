"""The loggers of docs/INTEGRATIONS.md, against stand-ins for the services; and the page's names exist."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import surefoot as sf

PAGE = (Path(__file__).parent.parent.parent / "docs" / "INTEGRATIONS.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


class Service:
    """Remembers what it is told, as either service would be."""

    def __init__(self):
        self.told, self.ended, self.info = [], 0, SimpleNamespace(run_id="7")

    def begin(self, **settings):
        assert settings == {"tags": ["a"]}
        return self

    def log(self, numbers, step, run_id="7"):
        assert run_id == "7"
        self.told.append((step, numbers))

    def end(self):
        self.ended += 1

    init = start_run = begin
    log_metrics = log
    finish = end_run = end


@pytest.mark.parametrize(("module", "name"), [("wandb", "WandB"), ("mlflow", "MLflow")])
def test_loggers_of_ten_lines(module, name, monkeypatch):
    service = Service()
    monkeypatch.setitem(sys.modules, module, service)
    (block,) = (each for each in BLOCKS if each.startswith(f"import {module}\n"))
    space = {}
    exec(block, space)
    body = [line for line in block[block.index("class") :].splitlines() if line.strip()]
    assert len(body) <= 10
    x = torch.randn(30, 4)
    data = x, x[:, :3].argmax(1)
    with sf.Tracker(nn.Linear(4, 3), data, data, every=1, loggers=[space[name](tags=["a"])]) as tracker:
        tracker.step(0)
    assert [step for step, _ in service.told] == [0, 1]
    assert service.told[1][1]["train.ece"] == tracker.readings[1]["train.ece"]
    assert service.ended == 1


def test_examples_of_the_page_are_there():
    examples = Path(__file__).parent.parent.parent / "examples"
    named = set(re.findall(r"`(\w+\.py)`", PAGE))
    assert len(named) == 6
    assert all((examples / name).exists() for name in named)


def test_the_recipe_for_micro_batches_is_the_tested_one():
    tested = (Path(__file__).parent / "test_lightning.py").read_text()
    (block,) = (each for each in BLOCKS if "self.held.append" in each)
    recipe, whole = ("\n".join(line.strip() for line in text.splitlines() if line.strip()) for text in (block, tested))
    assert recipe.partition("\n")[2] in whole
