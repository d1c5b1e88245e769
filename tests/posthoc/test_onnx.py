"""Calibrators exported to ONNX and run there."""

import numpy as np
import pytest
import torch

from surefoot.posthoc import CALIBRATORS, build_calibrator
from tests.conftest import random_predictions

pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")


@pytest.mark.filterwarnings("ignore")  # of the exporter itself
@pytest.mark.parametrize(
    "name",
    [  # an affine map, one by sorting, one by bins; the exporter takes a second for each
        pytest.param(name, marks=[] if name in ("vector", "isotonic", "histogram") else pytest.mark.slow)
        for name in CALIBRATORS
    ],
)
def test_exported(name, tmp_path):
    p = random_predictions(600, 4)
    module = build_calibrator(name).fit(p).to_module().eval()
    logits = torch.tensor(np.asarray(p.logits)[:32])
    path = tmp_path / "map.onnx"
    torch.onnx.export(
        module, (logits,), str(path), dynamo=True, verbose=False, dynamic_shapes=({0: torch.export.Dim("n")},)
    )
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    more = np.asarray(p.logits)[:50]  # another number of rows than it was exported with
    (found,) = session.run(None, {session.get_inputs()[0].name: more})
    assert np.exp(found) == pytest.approx(module(torch.tensor(more)).exp().numpy(), abs=1e-9)
