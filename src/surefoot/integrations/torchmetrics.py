"""Metrics for torchmetrics whose states are integers: constant in size, and exact over batches and ranks.

The metrics work in ``self.log`` of Lightning and in a `torchmetrics.MetricCollection`, which updates metrics of equal
bins once. Under DistributedDataParallel, one sum over ranks gives bit-exactly the value of a single process.
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
from surefoot.metrics.registry import higher_is_better as _higher
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
    """A metric of scores (n, k) and labels (n,)."""

    is_differentiable = False
    full_state_update = False

    def __init__(self, kind: str = "logits", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if kind not in ("logits", "probs"):
            raise BadInput(f"kind must be 'logits' or 'probs'; got {kind!r}")
        self.kind = kind

    def update(self, scores: Tensor, labels: Tensor) -> None:
        """Add a batch; a batch without rows, which a rank may get, adds nothing.

        Args:
            scores: (n, k) logits or probabilities, as ``kind`` states.
            labels: (n,) integers in 0..k−1.

        Raises:
            BadInput: when the scores or labels are invalid.
        """
        if _rows(scores) or _rows(labels):
            make = Predictions if self.kind == "logits" else Predictions.from_probs
            self._add(make(scores, labels))

    def set_dtype(self, dst_type: Any) -> _OfPredictions:
        """Keep the dtype of the states: the states are integers, which no other dtype represents exactly.

        Args:
            dst_type: not used.

        Returns:
            The metric itself.
        """
        return self

    def compute(self) -> Tensor:
        """Compute the value over all rows seen.

        Returns:
            A scalar, in float64 if the device supports float64.

        Raises:
            BadInput: when no rows were seen.
        """
        dtype = torch.float32 if self.device.type == "mps" else torch.float64
        return torch.tensor(self._value(), dtype=dtype, device=self.device)

    @abstractmethod
    def _add(self, p: Predictions) -> None:
        """Add the rows to the states."""

    @abstractmethod
    def _value(self) -> float:
        """The value of the states."""

    def _numbers(self, name: str) -> NDArray[np.int64]:
        """A state as an array."""
        state: Tensor = getattr(self, name)
        return state.cpu().numpy()


def _rows(given: Any) -> int:
    """Number of rows; 1 for an object without rows, which `Predictions` refuses."""
    return len(given) if hasattr(given, "__len__") and getattr(given, "ndim", None) != 0 else 1


class _Binned(_OfPredictions):
    """One entry of a `surefoot.metrics.CalibrationState`, whose sums are the state of the metric."""

    entry: str

    def __init__(self, bins: int = 15, kind: str = "logits", **kwargs: Any) -> None:
        super().__init__(kind, **kwargs)
        self.bins = check_bins(bins)
        self.add_state("sums", torch.zeros(4, self.bins, dtype=torch.int64), dist_reduce_fx="sum")

    def _add(self, p: Predictions) -> None:
        """Add the rows to the sums."""
        state = CalibrationState(self.bins, self._numbers("sums")).update(p, "top")
        self.sums = torch.from_numpy(state.sums).to(self.device)

    def _value(self) -> float:
        """The value of the sums."""
        return float(CalibrationState(self.bins, self._numbers("sums")).compute()[self.entry])


class ECE(_Binned):
    """Expected calibration error, bit-exactly `surefoot.metrics.ece`.

    Args:
        bins: number of bins of equal width, from 1 to 10,000.
        kind: ``"logits"`` or ``"probs"``, the kind of the scores.
        kwargs: arguments of `torchmetrics.Metric`.

    Raises:
        BadInput: when ``bins`` or ``kind`` is not as described.

    Example:
        >>> metric = ECE(bins=10)
        >>> metric.update(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
        >>> metric.update(torch.tensor([[0.0, 1.0]]), torch.tensor([0]))
        >>> round(float(metric.compute()), 4)
        0.4251
    """

    entry, higher_is_better = "ece", _higher("ece")


class MCE(_Binned):
    """Maximum calibration error, bit-exactly `surefoot.metrics.mce`.

    Args:
        bins: number of bins of equal width, from 1 to 10,000.
        kind: ``"logits"`` or ``"probs"``, the kind of the scores.
        kwargs: arguments of `torchmetrics.Metric`.

    Raises:
        BadInput: when ``bins`` or ``kind`` is not as described.
    """

    entry, higher_is_better = "mce", _higher("mce")


class RMSCE(_Binned):
    """Root mean square calibration error, bit-exactly `surefoot.metrics.rmsce`.

    Args:
        bins: number of bins of equal width, from 1 to 10,000.
        kind: ``"logits"`` or ``"probs"``, the kind of the scores.
        kwargs: arguments of `torchmetrics.Metric`.

    Raises:
        BadInput: when ``bins`` or ``kind`` is not as described.
    """

    entry, higher_is_better = "rmsce", _higher("rmsce")


class Accuracy(_Binned):
    """Share of rows whose largest score is that of the label, bit-exactly `surefoot.metrics.accuracy`.

    The bins have no effect on the value. With equal bins, the metric shares its state with the calibration errors of a
    MetricCollection.

    Args:
        bins: number of bins of equal width, from 1 to 10,000.
        kind: ``"logits"`` or ``"probs"``, the kind of the scores.
        kwargs: arguments of `torchmetrics.Metric`.

    Raises:
        BadInput: when ``bins`` or ``kind`` is not as described.

    Example:
        >>> metric = Accuracy()
        >>> metric.update(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
        >>> float(metric.compute())
        0.5
    """

    entry, higher_is_better = "accuracy", _higher("accuracy")


class Confidence(_Binned):
    """Mean probability of the predicted class; the model is overconfident if this mean exceeds the accuracy.

    Args:
        bins: number of bins of equal width, from 1 to 10,000; without effect on the value, as for `Accuracy`.
        kind: ``"logits"`` or ``"probs"``, the kind of the scores.
        kwargs: arguments of `torchmetrics.Metric`.

    Raises:
        BadInput: when ``bins`` or ``kind`` is not as described.
    """

    entry, higher_is_better = "confidence", _higher("mean_confidence")


class _Mean(_OfPredictions):
    """The mean of one number per row; infinite if the number of a row is infinite."""

    # The names of the states differ between metrics. A MetricCollection merges metrics whose states have equal names
    # and, after the first batch, equal values, such as zeros.
    state: str

    def __init__(self, kind: str = "logits", **kwargs: Any) -> None:
        super().__init__(kind, **kwargs)
        self.add_state(f"{self.state}_digits", torch.zeros(DIGITS, dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state(f"{self.state}_rows", torch.zeros(2, dtype=torch.int64), dist_reduce_fx="sum")

    @abstractmethod
    def _values(self, p: Predictions) -> NDArray[np.float64]:
        """(n,) the numbers of the rows."""

    def _add(self, p: Predictions) -> None:
        """Add the rows to the states."""
        values = self._values(p)
        finite = np.isfinite(values)
        rows = np.array([len(values), len(values) - np.count_nonzero(finite)])
        for name, more in (("digits", total_of(values[finite])), ("rows", rows)):
            before: Tensor = getattr(self, f"{self.state}_{name}")
            setattr(self, f"{self.state}_{name}", before + torch.from_numpy(more).to(self.device))

    def _value(self) -> float:
        """The value of the states."""
        rows, infinite = (int(count) for count in self._numbers(f"{self.state}_rows"))
        if rows == 0:
            raise BadInput("no rows were seen yet; call update with predictions first")
        return float("inf") if infinite else total_value(self._numbers(f"{self.state}_digits"), rows)


class NLL(_Mean):
    """Mean negative log-likelihood in nats, `surefoot.metrics.nll` summed exactly; infinite if a label has p = 0.

    Args:
        kind: ``"logits"`` or ``"probs"``, the kind of the scores.
        kwargs: arguments of `torchmetrics.Metric`.

    Raises:
        BadInput: when ``kind`` is not as described.

    Example:
        >>> metric = NLL(kind="probs")
        >>> metric.update(torch.tensor([[0.5, 0.5]]), torch.tensor([0]))
        >>> round(float(metric.compute()), 6)
        0.693147
    """

    state, higher_is_better = "nll", _higher("nll")

    def _values(self, p: Predictions) -> NDArray[np.float64]:
        """−log p_y."""
        return -p.log_true


class Brier(_Mean):
    """Brier score, the mean of Σ_k (p_k − 1{k = y})², in [0, 2]; `surefoot.metrics.brier` summed exactly.

    Args:
        kind: ``"logits"`` or ``"probs"``, the kind of the scores.
        kwargs: arguments of `torchmetrics.Metric`.

    Raises:
        BadInput: when ``kind`` is not as described.

    Example:
        >>> metric = Brier(kind="probs")
        >>> metric.update(torch.tensor([[0.5, 0.5]]), torch.tensor([0]))
        >>> float(metric.compute())
        0.5
    """

    state, higher_is_better = "brier", _higher("brier")

    def _values(self, p: Predictions) -> NDArray[np.float64]:
        """The squared error Σ_k (p_k − 1{k = y})²."""
        return p.squared_error
