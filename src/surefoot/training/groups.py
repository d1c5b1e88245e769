"""The groups of readings: name, cost and computation of each group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from surefoot import metrics
from surefoot.curvature import Hessian, jacobian_norms
from surefoot.curvature.batch_sharpness import batch_sharpness
from surefoot.errors import BadInput
from surefoot.margins.moments import log_moment, tail
from surefoot.metrics import ece
from surefoot.metrics.registry import tracked_metrics
from surefoot.optim.sam import SAM, VASSO
from surefoot.predictions import Predictions
from surefoot.seeds import generator
from surefoot.theory.sam import sam_step
from surefoot.theory.sample import Curvature
from surefoot.training.bounds import bounds_of, over_ball
from surefoot.training.measured import Group, Measured, Record, prefix
from surefoot.training.schedule import Schedule

__all__ = ["GROUPS_BY_NAME", "arrays_of", "calibration_of", "margins_of"]

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def calibration_of(part: str, p: Predictions) -> dict[str, float]:
    """Compute accuracy, losses, calibration errors, mean confidence and the mean binary entropy of p_y.

    The registry of metrics lists the tracked metrics; those of the test part include the classwise error and both
    AUROCs.

    Args:
        part: Name of the part, with which the names of the numbers begin.
        p: Predictions on the part.

    Returns:
        Numbers by name: ``part.accuracy``, ``part.nll``, ``part.ece``, ….

    Example:
        >>> p = Predictions(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
        >>> calibration_of("train", p)["train.accuracy"]
        0.5
    """
    table = metrics.metrics_table()
    numbers = {name: table[name](p) for name in tracked_metrics(part)}
    numbers["confidence"] = p.confidence.mean()
    numbers["entropy"] = _entropy(p.log_true).mean()
    return {f"{part}.{name}": float(value) for name, value in numbers.items()}


def margins_of(part: str, p: Predictions, count: int = 10) -> dict[str, Any]:
    """Compute mean, minimum and quantiles of the true margin, log Q, and the examples that dominate Q.

    Args:
        part: Name of the part, with which the names of the values begin.
        p: Predictions on the part.
        count: Number of dominating examples, which are listed by decreasing share of Q.

    Returns:
        Values by name.

    Example:
        >>> p = Predictions(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
        >>> margins = margins_of("train", p)
        >>> margins["train.margin"], margins["train.margin_min"], margins["train.tail"]["rows"]
        (0.5, -1.0, [1, 0])
    """
    m = p.true_margin
    values: dict[str, Any] = {f"{part}.margin": float(m.mean()), f"{part}.margin_min": float(m.min())}
    for q, value in zip(_QUANTILES, np.quantile(m, _QUANTILES), strict=True):
        values[f"{part}.margin_q{round(100 * q):02d}"] = float(value)
    values[f"{part}.log_q"] = log_moment(m)
    heavy = tail(m, count)
    values[f"{part}.wrong"], values[f"{part}.tail_half"] = heavy.wrong, heavy.half
    values[f"{part}.tail"] = {
        "rows": heavy.rows.tolist(),
        "margins": heavy.margins.tolist(),
        "shares": heavy.shares.tolist(),
        "labels": p.labels[heavy.rows].tolist(),
        "predicted": p.predicted[heavy.rows].tolist(),
        "confidence": p.confidence[heavy.rows].tolist(),
    }
    return values


def arrays_of(part: str, p: Predictions, bins: int = 30) -> dict[str, Any]:
    """Compute histograms of margin and confidence, and the reliability table.

    Args:
        part: Name of the part, with which the names of the lists begin.
        p: Predictions on the part.
        bins: Number of bins of a histogram.

    Returns:
        Lists and tables by name.

    Example:
        >>> p = Predictions(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
        >>> arrays_of("train", p, bins=2)["train.confidence_histogram"]
        [0, 2]
    """
    low, high = float(p.true_margin.min()), float(p.true_margin.max())
    margins, edges = np.histogram(p.true_margin, bins, (low, high if high > low else low + 1.0))
    confidence, _ = np.histogram(p.confidence, bins, (0.0, 1.0))
    table = metrics.reliability(p).table
    return {
        f"{part}.margin_histogram": {"low": float(edges[0]), "high": float(edges[-1]), "counts": margins.tolist()},
        f"{part}.confidence_histogram": confidence.tolist(),
        f"{part}.reliability": {
            "count": table.count.tolist(),
            "confidence": table.confidence.tolist(),
            "accuracy": table.accuracy.tolist(),
        },
    }


def _entropy(log_p: Any) -> Any:
    """H(p) = −p log p − (1 − p) log(1 − p) as a function of log p; H is 0 at the limits."""
    p = np.exp(log_p)
    rest = -np.expm1(log_p)
    with np.errstate(divide="ignore", invalid="ignore"):
        return -np.where(p > 0, p * log_p, 0.0) - np.where(rest > 0, rest * np.log(rest), 0.0)


class Calibration(Group):
    """Accuracy, losses and calibration errors; with validation examples also test ECE after temperature scaling."""

    name = "calibration"
    needs_predictions = True

    def of_part(self, part: str, p: Predictions, record: Record) -> float:
        """No cost: the predictions are there."""
        record.update(calibration_of(part, p))
        return 0.0

    def at_end(self, predictions: Mapping[str, Predictions], record: Record) -> float:
        """A forward pass over the validation examples."""
        if "val" not in self.measured.parts or "test" not in predictions:
            return 0.0
        from surefoot.posthoc.temperature import Temperature  # scikit-learn takes seconds, and few runs need it

        val = self.measured.predictions("val", record)
        if val is not None:
            temperature = Temperature().fit(val)
            record.update(calibration_of("val", val))
            record["test.tce"] = float(ece(temperature.apply(predictions["test"])))
            record["temperature"] = float(temperature.temperature_)
        return self.measured.cost_of_passes("val") / 2


class Margins(Group):
    """True margins, their moment log Q, and the examples that dominate Q."""

    name = "margins"
    needs_predictions = True

    def of_part(self, part: str, p: Predictions, record: Record) -> float:
        """No cost: the predictions are there."""
        record.update(margins_of(part, p))
        return 0.0


class Histograms(Group):
    """Histograms of margin and confidence, and the reliability table."""

    name = "histograms"
    needs_predictions = True

    def of_part(self, part: str, p: Predictions, record: Record) -> float:
        """No cost: the predictions are there."""
        record.update(arrays_of(part, p))
        return 0.0


class RobustMargins(Group):
    """log Q over a ball: attacked, and certified where the layers allow it."""

    name = "robust"
    needs_predictions = True

    def of_part(self, part: str, p: Predictions, record: Record) -> float:
        """The cost is that of an attack of ten steps and a bound of some sixty forward passes."""
        m = self.measured
        numbers, m.balls[part] = over_ball(part, m.model, *m.parts[part].take(), m.eps, m.norm, p, m.ranks.rows)
        record.update(numbers)
        return 40 * len(m.labels[part]) / m.batch

    def at_end(self, predictions: Mapping[str, Predictions], record: Record) -> float:
        """Delete the balls: later readings have other balls."""
        self.measured.balls.clear()
        return 0.0


class Bounds(Group):
    """The theorems of Morosini et al. (2026); with the training set's curvature where the loss is cross-entropy."""

    name = "bounds"
    needs_predictions = True

    def check(self) -> None:
        """Refuse a sample: the theorems use the sharpness of all examples."""
        if self.measured.sampled("train") < len(self.measured.labels["train"]):
            raise BadInput("bounds compare with the sharpness of all training examples; leave out sample, or bounds")

    def set_up(self) -> float:
        """The set-up is that of the training set's sharpness."""
        return self.measured.set_up_sharpness("train")

    def of_part(self, part: str, p: Predictions, record: Record) -> float:
        """On the training set the cost is a backward pass for each class and a full matrix-vector product."""
        m = self.measured
        ball = m.balls.get(part)  # set if robust margins were read at this step
        if part != "train" or not m.has_cross_entropy:
            record.update(bounds_of(part, p, None, ball))
            return 0.0
        reading = m.sharpness("train").read(verify=True)
        record |= {"sharpness": reading.value, "sharpness_residual": reading.residual}
        norms = m.ranks.rows(jacobian_norms(m.model, m.parts[part].take()[0])).double().numpy()
        record.update(bounds_of(part, p, Curvature(reading.value, reading.residual, norms), ball))
        return (p.classes + 2) * len(m.labels["train"]) / m.batch


class SharpnessOnTrain(Group):
    """The sharpness of the loss on the training examples, or on a sample of them."""

    name = "curvature"
    part: ClassVar[str] = "train"

    def set_up(self) -> float:
        """The principal directions of the first layer's inputs, once."""
        return self.measured.set_up_sharpness(self.part)

    def read(self, record: Record) -> float:
        """A full product costs 1.0 to 1.5 gradient steps, a compressed one about an eighth of one."""
        name = f"{prefix(self.part)}sharpness"
        if name in record:
            return 0.0  # the bounds have read and verified this value
        reading, count = self.measured.sharpness(self.part).read(), self.measured.sampled(self.part)
        record |= {name: reading.value, f"{name}_residual": reading.residual}
        if count < len(self.measured.labels[self.part]):
            record[f"{name}_sample"] = count
        return count / self.measured.batch * (1 + (1.5 * reading.full_products or 0.12 * reading.matvecs))


class SharpnessOnTest(SharpnessOnTrain):
    """The sharpness of the loss on the test examples, or on a sample of them."""

    name = "test_curvature"
    part = "test"


class LargestOfHessian(Group):
    """The largest eigenvalue of the Hessian of the training loss, and the gradient's norm."""

    name = "hessian"
    largest: ClassVar[bool] = True
    tol: ClassVar[float] = 1e-2
    max_products: ClassVar[int] = 24

    def __init__(self, measured: Measured, schedule: Schedule) -> None:
        super().__init__(measured, schedule)
        self._start: Tensor | None = None

    def read(self, record: Record) -> float:
        """The gradient, and a product for each step of Lanczos."""
        operator = self.measured.hessian()
        record["gradient_norm"] = float(operator.gradient().norm())
        return self.measured.cost_of_passes("train") + self._edge(operator, record)

    def _edge(self, operator: Hessian, record: Record) -> float:
        pairs, start = operator.follow(self._start, self.tol, self.largest, max_products=self.max_products)
        record |= {self.name: float(pairs.values[0]), f"{self.name}_residual": float(pairs.residuals[0])}
        self._start = start
        return self.measured.cost_of_passes("train") * pairs.matvecs

    def state_dict(self) -> dict[str, Tensor]:
        """The eigenvector from which the next reading starts."""
        return {} if self._start is None else {f"hessian.{self.name}": self._start.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of `state_dict`."""
        start = state.get(f"hessian.{self.name}")
        self._start = None if start is None else start.clone()


class SmallestOfHessian(LargestOfHessian):
    """The smallest eigenvalue of the Hessian of the training loss."""

    name = "hessian_min"
    largest = False
    tol = 0.1
    max_products = 40

    def read(self, record: Record) -> float:
        """A product for each step of Lanczos."""
        return self._edge(self.measured.hessian(), record)


class BatchSharpness(Group):
    """The expected sharpness along the gradient of a batch."""

    name = "batch_sharpness"

    def read(self, record: Record) -> float:
        """Small batches cost more per gradient step because of the checks for each batch."""
        m = self.measured
        settings: dict[str, Any] = {"tol": 0.1, "max_batches": 40, "ranks": m.ranks.count > 1}
        reading = batch_sharpness(m.model, *m.parts["train"].take(), m.batch, m.seed, loss=m.loss, **settings)
        record |= {"batch_sharpness": reading.value, "batch_sharpness_error": reading.standard_error}
        return (3.0 if m.cost_of_passes("train") == 1 else 8.0) * reading.batches


class Ascent(Group):
    """κ_min along SAM's ascent step θ → θ̃ = θ + ρ g/‖g‖ on training examples, and λ (Tan et al. 2026, Figure 2)."""

    name = "ascent"
    points: ClassVar[int] = 5  # along the ascent step: 0, 1/4, …, 1

    def check(self) -> None:
        """The optimizer must have one radius, the loss must be cross-entropy, and there must be one process."""
        if not self._radius():
            raise BadInput(
                "readings of 'ascent' need an optimizer that climbs along the gradient: SAM, VASSO or CSAM, with one "
                "rho above 0 for all its groups"
            )
        if not self.measured.has_cross_entropy:
            raise BadInput("readings of 'ascent' are of the cross-entropy; leave them out for another loss")
        if self.measured.ranks.count > 1:
            raise BadInput("readings of 'ascent' are of one process; leave out ascent, or ranks")

    def read(self, record: Record) -> float:
        """Both ends of the spectrum at each point cost some forty products each."""
        m = self.measured
        train, count = m.parts["train"], m.sampled("train")
        drawn = torch.randperm(len(train), generator=generator(m.seed, "sample"))[:count]
        x, y = train.take(drawn) if count < len(train) else train.take()
        record |= self._on(x, y)
        return 2 * 40 * self.points * len(y) / m.batch

    def _radius(self) -> float:
        """ρ of an optimizer with an ascent step of this length; 0 if there is none or there are several."""
        optimizer = self.measured.optimizer
        if not isinstance(optimizer, SAM | VASSO):
            return 0.0
        radii = {float(group["rho"]) for group in optimizer.param_groups}
        return radii.pop() if len(radii) == 1 else 0.0

    def _on(self, x: Tensor, y: Tensor) -> dict[str, float]:
        """The numbers; none for a radius or a gradient of zero, or a model that diverged."""
        try:
            step = sam_step(self.measured.model, x, y, self._radius(), self.points, tol=5e-2)
        except BadInput:
            return {}
        numbers = {f"ascent.kappa_{place}": point.smallest for place, point in enumerate(step.path)}
        numbers |= {f"ascent.{name}": value for name, value in step.coefficients.items()}
        return numbers | {"ascent.allowed": step.allowed, "ascent.rising": step.rising}


# By name, in the order of `surefoot.training.schedule.GROUPS`.
GROUPS_BY_NAME: Mapping[str, type[Group]] = {
    group.name: group
    for group in (
        Calibration,
        Margins,
        Histograms,
        RobustMargins,
        Bounds,
        SharpnessOnTrain,
        LargestOfHessian,
        SmallestOfHessian,
        BatchSharpness,
        Ascent,
        SharpnessOnTest,
    )
}
