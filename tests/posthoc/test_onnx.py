"""Calibrators exported to ONNX and run by onnx's own evaluator."""

import numpy as np
import pytest
import torch

from surefoot.posthoc import METHODS, calibrator_named
from tests.conftest import random_predictions

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"auto"}))
def test_exported(name, tmp_path):
    p = random_predictions(600, 4)
    module = calibrator_named(name).fit(p).to_module().eval()
    logits = torch.tensor(np.asarray(p.logits)[:32])
    path = tmp_path / "map.onnx"
    torch.onnx.export(
        module, (logits,), str(path), dynamo=True, verbose=False, dynamic_shapes=({0: torch.export.Dim("n")},)
    )
    model = onnx.load(str(path))
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(model)
    more = np.asarray(p.logits)[:50]
    (found,) = evaluator.run(None, {evaluator.input_names[0]: more})
    assert found == pytest.approx(module(torch.tensor(more)).numpy(), abs=1e-9)
