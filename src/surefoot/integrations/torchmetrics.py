"""Metrics of the torchmetrics kind whose states are whole numbers: constant in size, exact over batches and ranks.

They go into a `torchmetrics.MetricCollection`, which updates those with the same bins once, into ``self.log`` of
Lightning, and under DistributedDataParallel, where one sum over ranks gives the bits of a single process.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from surefoot.errors import BadInput, MissingDependency
from surefoot.metrics.bins import check_bins
from surefoot.metrics.state import CalibrationState
from surefoot.metrics.total import DIGITS, total_of, total_value
from surefoot.predictions import Predictions

try:
    from torchmetrics import Metric
except ImportError as error:
    raise MissingDependency(
        "surefoot.integrations.torchmetrics needs torchmetrics; install it with: pip install 'surefoot[torchmetrics]'"
    ) from error

__all__ = ["ECE", "MCE", "NLL", "RMSCE", "Accuracy", "Brier", "Confidence"]


class _OfPredictions(Metric):
    """A metric of scores (n, k) and labels (n,); ``kind`` says whether scores are ``"logits"`` or ``"probs"``."""

    is_differentiable = False
    full_state_update = False

    def __init__(self, kind: str = "logits", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if kind not in ("logits", "probs"):
            raise BadInput(f"kind must be 'logits' or 'probs'; got {kind!r}")
        self.kind = kind

    def update(self, scores: Tensor, labels: Tensor) -> None:
        """Add a batch; one without rows, as a rank may meet, adds nothing."""
        if _rows(scores) or _rows(labels):
            door = Predictions if self.kind == "logits" else Predictions.from_probs
            self._add(door(scores, labels))

    def set_dtype(self, dst_type: Any) -> _OfPredictions:
        """The metric as it is: its states are whole numbers, which no other type holds."""
        return self

    def compute(self) -> Tensor:
        """The value over everything seen, in float64 where the device has it."""
        dtype = torch.float32 if self.device.type == "mps" else torch.float64
        return torch.tensor(self._value(), dtype=dtype, device=self.device)

    @abstractmethod
    def _add(self, p: Predictions) -> None:
        """Add the rows to the states."""

    @abstractmethod
    def _value(self) -> float:
        """The value of the states."""

    def _numbers(self, name: str) -> NDArray[np.int64]:
        state: Tensor = getattr(self, name)
        return state.cpu().numpy()


def _rows(given: Any) -> int:
    """How many; what has no rows at all is for the door to refuse."""
    return len(given) if hasattr(given, "__len__") and getattr(given, "ndim", None) != 0 else 1


class _Binned(_OfPredictions):
    """One entry of a `surefoot.metrics.CalibrationState`, which is the state."""

    entry: str

    def __init__(self, bins: int = 15, kind: str = "logits", **kwargs: Any) -> None:
        super().__init__(kind, **kwargs)
        self.bins = check_bins(bins)
        self.add_state("sums", torch.zeros(4, self.bins, dtype=torch.int64), dist_reduce_fx="sum")

    def _add(self, p: Predictions) -> None:
        state = CalibrationState(self.bins, self._numbers("sums")).update(p)
        self.sums = torch.from_numpy(state.sums).to(self.device)

    def _value(self) -> float:
        return float(CalibrationState(self.bins, self._numbers("sums")).compute()[self.entry])


class ECE(_Binned):
    """Expected calibration error, `surefoot.metrics.ece` to the bit.

    >>> metric = ECE(bins=10)
    >>> metric.update(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    >>> metric.update(torch.tensor([[0.0, 1.0]]), torch.tensor([0]))
    >>> round(float(metric.compute()), 4)
    0.4251
    """

    entry, higher_is_better = "ece", False


class MCE(_Binned):
    """Maximum calibration error, `surefoot.metrics.mce` to the bit."""

    entry, higher_is_better = "mce", False


class RMSCE(_Binned):
    """Root-mean-square calibration error, `surefoot.metrics.rmsce` to the bit."""

    entry, higher_is_better = "rmsce", False


class Accuracy(_Binned):
    """Share of rows whose largest score is the label's, `surefoot.metrics.accuracy` to the bit.

    It has bins to share its state with the calibration errors in a MetricCollection; they do not matter to it.
    """

    entry, higher_is_better = "accuracy", True


class Confidence(_Binned):
    """Mean probability of the predicted class; above the accuracy, the model is over-confident."""

    entry, higher_is_better = "confidence", None


class _Mean(_OfPredictions):
    """The mean over rows of a finite number, and infinite if a row's was."""

    # The names of the states differ between metrics: a MetricCollection takes metrics for one whose states have the
    # same names and, after the first batch, the same values, as zeros have.
    state: str

    def __init__(self, kind: str = "logits", **kwargs: Any) -> None:
        super().__init__(kind, **kwargs)
        self.add_state(f"{self.state}_digits", torch.zeros(DIGITS, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state(f"{self.state}_rows", torch.zeros(2, dtype=torch.int64), dist_reduce_fx="sum")

    @abstractmethod
    def _values(self, p: Predictions) -> NDArray[np.float64]:
        """(n,) the number of each row."""

    def _add(self, p: Predictions) -> None:
        values = self._values(p)
        finite = np.isfinite(values)
        rows = np.array([len(values), len(values) - np.count_nonzero(finite)])
        for name, more in (("digits", total_of(values[finite])), ("rows", rows)):
            before: Tensor = getattr(self, f"{self.state}_{name}")
            setattr(self, f"{self.state}_{name}", before + torch.from_numpy(more).to(self.device))

    def _value(self) -> float:
        rows, infinite = (int(count) for count in self._numbers(f"{self.state}_rows"))
        if rows == 0:
            raise BadInput("no rows were seen yet; call update with predictions first")
        return float("inf") if infinite else total_value(self._numbers(f"{self.state}_digits"), rows)


class NLL(_Mean):
    """Mean negative log-likelihood in nats: `surefoot.metrics.nll`, summed exactly; infinite if a label has p = 0."""

    state, higher_is_better = "nll", False

    def _values(self, p: Predictions) -> NDArray[np.float64]:
        return -p.log_true


class Brier(_Mean):
    """Mean of Σ_k (p_k − 1{k = y})², in [0, 2]: `surefoot.metrics.brier`, summed exactly."""

    state, higher_is_better = "brier", False

    def _values(self, p: Predictions) -> NDArray[np.float64]:
        return p.squared_error
