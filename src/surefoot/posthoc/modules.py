"""Calibrators as torch modules from logits (n, k) to calibrated log-probabilities (n, k), for deployment.

The modules consist of plain tensor operations in float64, cast back to the dtype of the logits: the modules can be
traced, scripted and exported.
"""

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.jit import is_scripting  # type: ignore[attr-defined]
from torch.onnx import is_in_onnx_export

from surefoot.errors import BadInput
from surefoot.posthoc.calibrator import Calibrator
from surefoot.posthoc.ensemble import EnsembleTemperature
from surefoot.posthoc.identity import Identity
from surefoot.posthoc.linear import Dirichlet, Matrix, Vector
from surefoot.posthoc.ovr import CLIP, Beta, Platt
from surefoot.posthoc.registry import CALIBRATORS
from surefoot.posthoc.structured import StructuredMatrix, StructuredVector
from surefoot.posthoc.tables import Isotonic, Tables
from surefoot.posthoc.temperature import Temperature
from surefoot.registry import resolve

__all__ = ["module_of"]


def module_of(calibrator: Calibrator) -> nn.Module:
    """Convert a fitted calibrator to a torch module.

    Args:
        calibrator: a fitted calibrator.

    Returns:
        A module from logits (n, k) to calibrated log-probabilities (n, k).

    Raises:
        BadInput: when the class of the calibrator has no module.

    Example:
        >>> from surefoot.predictions import Predictions
        >>> fitted = Temperature().fit(Predictions([[4.0, 0.0]] * 10, [0] * 8 + [1] * 2))
        >>> module_of(fitted)(torch.tensor([[4.0, 0.0]])).exp()
        tensor([[0.8000, 0.2000]])
    """
    entry = CALIBRATORS.get(calibrator.method)
    if entry is None or entry.module is None:
        raise BadInput(f"{type(calibrator).__name__} has no module")
    module: nn.Module = resolve(entry.module)(calibrator)
    return _Mixed(module, calibrator.uniform_) if calibrator.uniform_ else module


def temperature_module(calibrator: Identity | Temperature) -> nn.Module:
    """The module of a calibrator that divides logits by one number."""
    return _Scaled(getattr(calibrator, "temperature_", 1.0))


def ensemble_module(calibrator: EnsembleTemperature) -> nn.Module:
    """The module of an ensemble temperature."""
    return _Ensemble(calibrator)


def affine_module(calibrator: Vector | Matrix | Dirichlet) -> nn.Module:
    """The module of a calibrator that maps rows of scores linearly."""
    return _Affine(calibrator)


def structured_module(calibrator: StructuredVector | StructuredMatrix) -> nn.Module:
    """The module of structured vector or matrix scaling."""
    return _Structured(calibrator)


def logistic_module(calibrator: Platt | Beta) -> nn.Module:
    """The module of a calibrator that maps log-probabilities one by one through logistic curves."""
    return _Logistic(calibrator)


def table_module(calibrator: Tables) -> nn.Module:
    """The module of a calibrator that maps probabilities one by one through tables."""
    return _Table(calibrator)


def _buffer(values: object) -> Tensor:
    return torch.from_numpy(np.array(values, dtype=np.float64))


class _Scaled(nn.Module):
    temperature: Tensor

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.register_buffer("temperature", _buffer(temperature))

    def forward(self, logits: Tensor) -> Tensor:
        return torch.log_softmax(logits.double() / self.temperature, 1).to(logits.dtype)


class _Mixed(nn.Module):
    """A module whose result is mixed with the uniform distribution."""

    def __init__(self, inner: nn.Module, share: float) -> None:
        super().__init__()
        self.inner, self.share = inner, share

    def forward(self, logits: Tensor) -> Tensor:
        return _mixed(self.inner(logits.double()), self.share).to(logits.dtype)


def _mixed(log_probs: Tensor, share: float) -> Tensor:
    flat = torch.full_like(log_probs, math.log(share) - math.log(log_probs.shape[1]))
    return torch.logaddexp(log_probs + math.log1p(-share), flat)


class _Structured(nn.Module):
    weight: Tensor
    bias: Tensor

    def __init__(self, calibrator: StructuredVector | StructuredMatrix) -> None:
        super().__init__()
        weight = np.asarray(calibrator.weight_)
        self.register_buffer("weight", _buffer(np.diag(weight) if weight.ndim == 1 else weight))
        self.register_buffer("bias", _buffer(calibrator.bias_))
        self.cooled = _Mixed(_Scaled(calibrator.temperature_), calibrator.share_)

    def forward(self, logits: Tensor) -> Tensor:
        x = self.cooled(logits.double())
        return torch.log_softmax(x @ self.weight.T + self.bias, 1).to(logits.dtype)


class _Ensemble(nn.Module):
    temperature: Tensor
    log_weights: Tensor

    def __init__(self, calibrator: EnsembleTemperature) -> None:
        super().__init__()
        self.register_buffer("temperature", _buffer(calibrator.temperature_))
        self.register_buffer("log_weights", _buffer(calibrator.weights_).log())
        self.log_uniform = -float(np.log(len(calibrator.classes_)))

    def forward(self, logits: Tensor) -> Tensor:
        z = logits.double()
        cooled = torch.log_softmax(z / self.temperature, 1) + self.log_weights[0]
        plain = torch.log_softmax(z, 1) + self.log_weights[1]
        mixed = torch.logaddexp(cooled, plain)
        flat = torch.zeros_like(mixed) + self.log_uniform + self.log_weights[2]
        return torch.logaddexp(mixed, flat).to(logits.dtype)


class _Affine(nn.Module):
    weight: Tensor
    bias: Tensor

    def __init__(self, calibrator: Vector | Matrix | Dirichlet) -> None:
        super().__init__()
        weight = np.asarray(calibrator.weight_)
        self.register_buffer("weight", _buffer(np.diag(weight) if weight.ndim == 1 else weight))
        self.register_buffer("bias", _buffer(calibrator.bias_))
        self.dirichlet = isinstance(calibrator, Dirichlet)
        self.of_log_probs = self.dirichlet or calibrator.kind_ == "probs"
        self.lowest = float(np.log(CLIP) if isinstance(calibrator, Dirichlet) else calibrator.lowest_)

    def forward(self, logits: Tensor) -> Tensor:
        z = logits.double()
        if self.of_log_probs:
            z = torch.log_softmax(z, 1)
        if self.dirichlet:
            x = torch.clamp(z, min=self.lowest)
        else:
            x = torch.maximum(z, z.amax(1, keepdim=True) + self.lowest)
        return torch.log_softmax(x @ self.weight.T + self.bias, 1).to(logits.dtype)


class _Logistic(nn.Module):
    """Logistic curves of ln p and ln (1 − p), divided by the sum of the row."""

    coefficients: Tensor

    def __init__(self, calibrator: Platt | Beta) -> None:
        super().__init__()
        coefficients = np.asarray(calibrator.coefficients_)
        self.of_odds = isinstance(calibrator, Platt)
        if self.of_odds:
            coefficients = coefficients[:, [0, 0, 1]]
        self.register_buffer("coefficients", _buffer(coefficients))
        self.clips, self.clip = calibrator.limit_ == 0, CLIP
        self.limit = float(calibrator.limit_)

    def forward(self, logits: Tensor) -> Tensor:
        log_probs = torch.log_softmax(logits.double(), 1)
        two = log_probs.shape[1] == 2
        if self.clips:
            probs = torch.clamp(log_probs.exp(), self.clip, 1 - self.clip)
            first, rest = probs.log(), (-probs).log1p()
        elif two:
            first, rest = log_probs, log_probs.flip(1)
        else:
            top = torch.zeros_like(log_probs).scatter(1, log_probs.argmax(1, keepdim=True), 1.0) > 0
            others = torch.where(top, torch.full_like(log_probs, -torch.inf), log_probs)
            first, rest = log_probs, torch.where(top, others.logsumexp(1, keepdim=True), (-others.exp()).log1p())
        if two:
            first, rest = first[:, 1:], rest[:, 1:]
        c = self.coefficients
        if self.of_odds:
            x = self.finite(first - rest) * c[:, 0] + c[:, 2]
        else:
            x = self.finite(first) * c[:, 0] + self.finite(-rest) * c[:, 1] + c[:, 2]
        mapped = torch.nn.functional.logsigmoid(x)
        if two:
            return torch.cat([torch.nn.functional.logsigmoid(-x), mapped], 1).to(logits.dtype)
        return torch.log_softmax(mapped, 1).to(logits.dtype)

    def finite(self, values: Tensor) -> Tensor:
        return torch.where(torch.isinf(values), torch.sign(values) * self.limit, values)


def _places(knots: Tensor, p: Tensor) -> Tensor:
    """(t, n) number of knots below p (t, n) in every row of ``knots`` (t, m)."""
    if is_scripting():  # a script does not compile the other branch
        return torch.searchsorted(knots, p)
    else:  # noqa: RET505
        if is_in_onnx_export():
            # ONNX has no binary search, so the knots are counted.
            return (knots[:, None, :] < p[:, :, None]).sum(2)
        return torch.searchsorted(knots, p)


class _Table(nn.Module):
    """Tables of single probabilities, divided by the sum of the row."""

    knots: Tensor
    values: Tensor
    last: Tensor

    def __init__(self, calibrator: Tables) -> None:
        super().__init__()
        self.steps = calibrator.steps
        self.old_weight = float(getattr(calibrator, "old_weight_", 0.0))
        self.old_isotonic = isinstance(calibrator, Isotonic) and self.old_weight == 0
        tables = calibrator.tables()
        classes = len(calibrator.classes_)
        pooled = isinstance(calibrator, Isotonic) and calibrator.pooled and not self.old_isotonic
        self.complement = classes == 2 and not pooled
        if len(tables) == 1 and not self.complement:
            tables = tables * classes
        longest = max(len(knots) for knots, _ in tables)
        # Tables are padded to one length: padding knots are never reached, padding values repeat the last value.
        knots = np.full((len(tables), longest), np.inf)
        values = np.zeros((len(tables), longest + calibrator.steps))
        for row, (x, y) in enumerate(tables):
            knots[row, : len(x)] = x
            values[row, : len(y)], values[row, len(y) :] = y, y[-1]
        self.register_buffer("knots", _buffer(knots))
        self.register_buffer("values", _buffer(values))
        self.register_buffer("last", torch.tensor([len(x) - 1 for x, _ in tables]))

    def forward(self, logits: Tensor) -> Tensor:
        log_probs = torch.log_softmax(logits.double(), 1)
        probs = log_probs.exp()
        if self.complement:
            second = self.image(probs[:, 1:])
            image = torch.cat([1 - second, second], 1)
        else:
            image = self.image(probs)
        if self.old_weight > 0:
            mixed = image * (1 - self.old_weight) + probs * self.old_weight
            # In logarithms, probabilities that would round to 0 stay apart.
            mapped = torch.where(image > 0, mixed.log(), log_probs + math.log(self.old_weight))
            return torch.log_softmax(mapped, 1).to(logits.dtype)
        total = image.sum(1, keepdim=True)
        normalised = torch.where(total > 0, image / torch.where(total > 0, total, torch.ones_like(total)), probs)
        return torch.log(normalised).to(logits.dtype)

    def image(self, probs: Tensor) -> Tensor:
        p = probs.T.contiguous()
        at = _places(self.knots, p)
        if self.steps:
            return torch.gather(self.values, 1, at).T
        # Linear interpolation, constant beyond the first and last knot.
        last = self.last[:, None]
        right = torch.minimum(torch.clamp(at, min=1), torch.clamp(last, min=0))
        left = torch.clamp(right - 1, min=0)
        x0, x1 = torch.gather(self.knots, 1, left), torch.gather(self.knots, 1, right)
        y0, y1 = torch.gather(self.values, 1, left), torch.gather(self.values, 1, right)
        wide = x1 > x0
        share = torch.where(wide, (p - x0) / torch.where(wide, x1 - x0, torch.ones_like(x0)), torch.ones_like(p))
        image = y0 + torch.clamp(share, 0, 1) * (y1 - y0)
        if self.old_isotonic:
            image = torch.clamp(image + 1e-9 * p, max=1.0)
        return image.T
