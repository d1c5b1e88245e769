"""The loss type: values for each example, a reduction, and the product with the Hessian in the logits.

Shapes: ``logits (n, k)``, ``labels (n,)`` integers, ``u (n, k)``.
"""

from __future__ import annotations

import copy
import inspect
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.loss import _Loss as TorchLoss

from surefoot.errors import BadInput
from surefoot.text import settings_of
from surefoot.validation import suggest

__all__ = [
    "CrossEntropy",
    "FunctionLoss",
    "Loss",
    "LossLike",
    "SquaredError",
    "as_loss",
    "check_convex",
    "check_integer_labels",
    "softmax_hessian_product",
    "wide",
]

_REDUCTIONS = ("mean", "none", "sum")


class Loss(nn.Module):
    """A loss of logits and labels: ``loss(logits, labels)``.

    A subclass defines `values`, the part of each example, and may define `term`, a part of the whole batch. With
    ``reduction="none"`` the term is added to every value, so that the mean of the result is always the loss.

    Attributes:
        curvature: name of the loss whose Gauss–Newton matrix is read along a run that minimises this one.
        masks: whether a logit may be −inf, a class that is ruled out.
        convex: whether the values are known to be convex in the logits.
        needs_labels: whether `hessian_product` depends on the labels.
        reads_classes: whether labels are indices of classes, from 0 to k − 1.

    Args:
        reduction: ``"mean"`` over the examples, ``"sum"``, or ``"none"`` for one value each.

    Raises:
        BadInput: if ``reduction`` is another word.
    """

    curvature = "ce"
    masks = True
    convex = False
    needs_labels = True
    reads_classes = True

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in _REDUCTIONS:
            raise BadInput(f"reduction must be one of {', '.join(map(repr, _REDUCTIONS))}; got {reduction!r}")
        self.reduction = reduction

    @abstractmethod
    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The value of each example; the arguments are not checked.

        Args:
            logits: (n, k).
            labels: (n,) integers.

        Returns:
            (n,).
        """

    def term(self, logits: Tensor, labels: Tensor) -> Tensor | None:
        """The part of the batch as a whole (of all ranks).

        Args:
            logits: (n, k).
            labels: (n,) integers.

        Returns:
            Scalar, or None if the loss has no such part.
        """
        return None

    def example_weights(self, labels: Tensor) -> Tensor | None:
        """The weight of each example in the mean.

        The mean is Σ values / Σ weights, as torch's cross-entropy with class weights defines it.

        Args:
            labels: (n,) integers.

        Returns:
            (n,) weights, or None if all examples count equally.
        """
        return None

    def hessian_product(self, logits: Tensor, labels: Tensor | None, u: Tensor) -> Tensor:
        """H_z u of each example, H_z the Hessian of its value in its logits.

        The default differentiates `values` twice; subclasses with a closed form override it.

        Args:
            logits: (n, k).
            labels: (n,) integers, or None if ``needs_labels`` is False.
            u: (n, k).

        Returns:
            (n, k).
        """
        assert labels is not None
        with torch.enable_grad():
            z = logits.detach().requires_grad_()
            values = self.values(z, labels)
            if not values.requires_grad:
                return torch.zeros_like(u)
            (gradient,) = torch.autograd.grad(values.sum(), z, create_graph=True)
            if not gradient.requires_grad:
                return torch.zeros_like(u)
            return torch.autograd.grad(gradient, z, u)[0]

    def epoch(self, validation: Any) -> None:
        """Called after each pass over the data.

        Args:
            validation: a `surefoot.losses.Validation`.
        """

    def check_masks(self, logits: Tensor) -> None:
        """Refuse a logit of −inf where the loss would be infinite.

        Args:
            logits: (n, k).

        Raises:
            BadInput: if the loss does not accept a logit of −inf, and a row has one.
        """
        if self.masks or bool((lowest := logits.detach().amin(dim=1)).isfinite().all()):
            return
        row = int((~lowest.isfinite()).nonzero()[0])
        raise BadInput(
            f"{type(self).__name__} looks at every logit, so that none may be -inf; row {row} has one; leave the class "
            "out, or take a loss of probabilities (CrossEntropy, Focal, …)"
        )

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The reduced loss; half-precision logits are converted to float32 first.

        Args:
            logits: (n, k) floating-point tensor, at least two classes.
            labels: (n,) integer tensor.

        Returns:
            A scalar, or (n,) with ``reduction="none"``.

        Raises:
            BadInput: naming the argument that is not as it must be.
        """
        z, y = _checked(logits, labels)
        self.check_masks(z)
        return self.reduce(self.values(z, y), self.term(z, y), y)

    def reduce(self, values: Tensor, term: Tensor | None, labels: Tensor) -> Tensor:
        """Combine the values and the batch's term by ``reduction``.

        Args:
            values: (n,) the value of each example.
            term: the batch's term, or None.
            labels: (n,) integers.

        Returns:
            A scalar, or (n,) with ``reduction="none"``.
        """
        if term is not None:
            values = values + term
        if self.reduction == "none":
            return values
        weights = self.example_weights(labels) if self.reduction == "mean" else None
        if weights is not None:
            return values.sum() / weights.sum()
        return values.mean() if self.reduction == "mean" else values.sum()

    def extra_repr(self) -> str:
        """The settings, as torch's modules show them.

        Returns:
            The text inside the parentheses of ``repr``.
        """
        return settings_of(self, hidden={"reduction": "mean"})


LossLike = Loss | str | Callable[..., Any]


class CrossEntropy(Loss):
    """ℓ = −log p_y; H_z = diag(p) − p pᵀ (Morosini et al. 2026, Section 4), which no label enters.

    Args:
        reduction: as of `Loss`.

    Example:
        >>> CrossEntropy(), CrossEntropy("none")
        (CrossEntropy(), CrossEntropy(reduction='none'))
        >>> float(CrossEntropy()(torch.zeros(3, 4), torch.tensor([0, 1, 2])).exp())
        4.0
    """

    convex = True
    needs_labels = False

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(n,) −log p_y."""
        return functional.cross_entropy(logits, labels, reduction="none")

    def hessian_product(self, logits: Tensor, labels: Tensor | None, u: Tensor) -> Tensor:
        """(n, k) p ⊙ (u − ⟨p, u⟩)."""
        return softmax_hessian_product(logits, u)


def softmax_hessian_product(logits: Tensor, u: Tensor) -> Tensor:
    """Multiply by diag(p) − p pᵀ, the Hessian of the cross-entropy in the logits.

    u is taken relative to its value at the likeliest class. A constant added to u changes nothing but rounding; where
    that p is nearly 1, u − ⟨p, u⟩ would cancel.

    Args:
        logits: (n, k) logits, with p their softmax.
        u: (n, k) vectors, one for each example.

    Returns:
        (n, k) p ⊙ (u − ⟨p, u⟩).
    """
    p = logits.softmax(dim=1)
    u = u - u.gather(1, logits.argmax(dim=1, keepdim=True))
    return p * (u - (p * u).sum(dim=1, keepdim=True))


class SquaredError(Loss):
    """Squared distance of the logits to the one-hot label, in one of three conventions.

    The optimum has logits e_y, whose softmax is far from confident: e/(e + k − 1).

    Args:
        convention: ``"mean"`` divides by k, H_z = (2/k) I (Morosini et al. 2026, Appendix D, and torch's MSELoss);
            ``"half"`` is ½‖·‖², H_z = I (Cohen et al. 2021); ``"sum"`` is ‖·‖², H_z = 2 I.
        reduction: as of `Loss`.

    Raises:
        BadInput: if ``convention`` is another word.

    Example:
        >>> SquaredError("half")
        SquaredError(convention='half')
        >>> SquaredError("half")(torch.zeros(2, 5), torch.tensor([0, 1]))
        tensor(0.5000)
    """

    masks = False
    convex = True
    needs_labels = False

    def __init__(self, convention: str = "mean", reduction: str = "mean") -> None:
        super().__init__(reduction)
        if convention not in ("mean", "half", "sum"):
            raise BadInput(f"convention of the squared error must be 'mean', 'half' or 'sum'; got {convention!r}")
        self.convention = convention
        self.curvature = "mse" if convention == "mean" else f"mse-{convention}"

    def _scale(self, classes: int) -> float:
        return {"mean": 2.0 / classes, "half": 1.0, "sum": 2.0}[self.convention]

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(n,) the squared distance, scaled."""
        target = functional.one_hot(labels, logits.shape[1]).to(logits.dtype)
        return 0.5 * self._scale(logits.shape[1]) * (logits - target).square().sum(dim=1)

    def hessian_product(self, logits: Tensor, labels: Tensor | None, u: Tensor) -> Tensor:
        """(n, k) a multiple of u."""
        return self._scale(logits.shape[1]) * u


class FunctionLoss(Loss):
    """A function of one's own as a loss; it may read the labels as it likes.

    Args:
        function: (logits, labels) → (n,) values.
        hessian_product: (logits, labels, u) → (n, k) H_z u; by differentiating twice if None.
        needs_labels: whether ``hessian_product`` depends on the labels.

    Example:
        >>> logistic = FunctionLoss(lambda z, y: functional.softplus(-y * z[:, 0]))
        >>> logistic.values(torch.zeros(2, 1), torch.tensor([1, -1]))
        tensor([0.6931, 0.6931])
    """

    reads_classes = False

    def __init__(
        self,
        function: Callable[..., Tensor],
        hessian_product: Callable[..., Tensor] | None = None,
        needs_labels: bool = True,
    ) -> None:
        super().__init__()
        self.function = function
        self.needs_labels, self._hessian_product = needs_labels, hessian_product

    def extra_repr(self) -> str:
        """The function by its name, and the settings that are not the default.

        Returns:
            The text inside the parentheses of ``repr``.
        """
        settings = settings_of(self, hidden={"needs_labels": True})
        if self._hessian_product is None:
            return settings
        return f"{settings}, hessian_product={getattr(self._hessian_product, '__name__', self._hessian_product)}"

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(n,) the function's own values."""
        values = self.function(logits, labels)
        if not isinstance(values, Tensor) or values.shape != logits.shape[:1]:
            shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise BadInput(
                f"loss must return one value per example, shape ({len(logits)},); got {shape}; use reduction='none'"
            )
        return values

    def hessian_product(self, logits: Tensor, labels: Tensor | None, u: Tensor) -> Tensor:
        """(n, k) by the given function, or by differentiating twice."""
        if self._hessian_product is not None:
            return self._hessian_product(logits, labels, u)
        return super().hessian_product(logits, labels, u)


class _TorchCrossEntropy(Loss):
    """torch's cross-entropy with class weights, smoothed labels or a label to ignore, and torch's NLLLoss.

    The value of an example is c ℓ up to a linear function of the log-probabilities, so H_z = c (diag(p) − p pᵀ) with
    c = (1 − s) w_y + s · mean(w) for smoothing s and weights w. NLLLoss is linear in what it is given, which must be
    log-probabilities z = log p: the curvature is then that of the cross-entropy, whose softmax of z is p itself.
    """

    def __init__(self, module: nn.CrossEntropyLoss | nn.NLLLoss) -> None:
        super().__init__(module.reduction)
        self.module = _per_example(module)
        self.convex = module.weight is None or bool((module.weight >= 0).all())
        self.needs_labels = module.weight is not None or module.ignore_index >= 0

    def __repr__(self) -> str:
        return _repr_of_torch(self.module, self.reduction)

    @property
    def weight(self) -> Tensor | None:
        """(k,) the class weights."""
        weight: Tensor | None = self.module.weight
        return weight

    def values(self, logits: Tensor, labels: Tensor) -> Tensor:
        """(n,) torch's own values."""
        self._refuse_ignored(labels)
        values: Tensor = self.module(logits, labels)
        return values

    def example_weights(self, labels: Tensor) -> Tensor | None:
        """(n,) the class weights of the labels."""
        return None if self.weight is None else self.weight[labels]

    def hessian_product(self, logits: Tensor, labels: Tensor | None, u: Tensor) -> Tensor:
        """(n, k) c p ⊙ (u − ⟨p, u⟩)."""
        if isinstance(self.module, nn.NLLLoss):
            _check_log_probabilities(logits)
        if labels is not None:
            self._refuse_ignored(labels)
        product = softmax_hessian_product(logits, u)
        if self.weight is None:
            return product
        assert labels is not None
        smoothing = float(getattr(self.module, "label_smoothing", 0.0))
        scale = (1 - smoothing) * self.weight[labels] + smoothing * self.weight.mean()
        return scale[:, None].to(product) * product

    def _refuse_ignored(self, labels: Tensor) -> None:
        if bool((labels == self.module.ignore_index).any()):
            raise BadInput(
                f"labels must not be ignored (ignore_index={self.module.ignore_index}): such rows have no loss and no "
                "probability; leave those rows out"
            )


class _TorchMultiMargin(FunctionLoss):
    """torch's multi-margin loss."""

    def __init__(self, module: nn.MultiMarginLoss) -> None:
        super().__init__(partial(_multi_margin, module))
        self._shown = _repr_of_torch(module, "mean")

    def __repr__(self) -> str:
        return self._shown


def _repr_of_torch(module: nn.Module, reduction: str) -> str:
    """The name of a loss of torch and the settings that are not torch's default."""
    parameters = inspect.signature(type(module)).parameters
    hidden = {name: parameter.default for name, parameter in parameters.items()}
    settings = [settings_of(module, hidden | {"reduction": module.reduction})]
    settings += [f"reduction={reduction!r}"] * (reduction != "mean")
    return f"{type(module).__name__}({', '.join(filter(None, settings))})"


def as_loss(loss: LossLike, separable: bool = False) -> Loss:
    """The `Loss` that a name, a loss of surefoot or of torch, or a plain function stands for.

    The per-example values of a loss are what is used: where a loss is accepted, the caller says whether the mean or
    the sum of them is taken, and a torch loss may have any reduction.

    Args:
        loss: ``"ce"``, ``"mse"`` (mean over classes), ``"mse-half"``, ``"mse-sum"``; one of `surefoot.losses`;
            ``nn.CrossEntropyLoss`` with any settings, ``nn.NLLLoss``, ``nn.MSELoss`` (against one-hot labels),
            ``nn.MultiMarginLoss``; or a function (logits, labels) → (n,) values.
        separable: refuse a loss with a term of the whole batch, which is no sum over examples.

    Returns:
        The loss, unchanged if it is a `Loss` already.

    Raises:
        BadInput: for a wrong name, a loss of another kind of target, or an object that is no loss.

    Example:
        >>> as_loss("mse-half"), as_loss(nn.CrossEntropyLoss(reduction="sum"))
        (SquaredError(convention='half'), CrossEntropy(reduction='sum'))
    """
    made = _as_loss(loss)
    if separable and type(made).term is not Loss.term:
        raise BadInput(
            f"loss {type(made).__name__} has a term of the whole batch, so its curvature is no sum over examples; "
            "take the loss without that term, such as 'ce'"
        )
    return made


def _as_loss(loss: Any) -> Loss:
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str):
        if loss not in _NAMED:
            raise BadInput(
                f"loss must be one of {', '.join(map(repr, _NAMED))}, an object such as surefoot.losses.Focal(), or a "
                f"function; got {loss!r}{suggest(loss, _NAMED)}"
            )
        return _NAMED[loss]()
    if isinstance(loss, type):
        raise BadInput(f"loss must be an object, not a class; got {loss.__name__}; write {loss.__name__}()")
    if getattr(loss, "needs_model", False):
        raise BadInput(
            f"{type(loss).__name__} is an objective of the model and its inputs, not a loss of logits and labels; take "
            "a loss such as 'ce'"
        )
    if isinstance(loss, TorchLoss):
        return _of_torch(loss)
    if all(hasattr(loss, part) for part in ("needs_labels", "values", "hessian_product")):
        return FunctionLoss(loss.values, loss.hessian_product, loss.needs_labels)
    if callable(loss):
        return FunctionLoss(_per_example(loss))
    raise BadInput(f"loss must be a name or a function (logits, labels) -> (n,) values; got {type(loss).__name__}")


_NAMED: dict[str, Callable[[], Loss]] = {
    "ce": CrossEntropy,
    "mse": SquaredError,
    "mse-half": lambda: SquaredError("half"),
    "mse-sum": lambda: SquaredError("sum"),
}


def _of_torch(loss: TorchLoss) -> Loss:
    """One of torch's own losses; those whose targets are no classes are refused, since labels are classes here."""
    if type(loss) is nn.CrossEntropyLoss and loss.weight is None and not loss.label_smoothing and loss.ignore_index < 0:
        return CrossEntropy(loss.reduction)  # a negative label is refused as any label out of range is
    if type(loss) in (nn.CrossEntropyLoss, nn.NLLLoss):
        return _TorchCrossEntropy(loss)  # type: ignore[arg-type]
    if type(loss) is nn.MSELoss:
        # Over n rows and k classes alike: the mean divides by both, the sum by neither.
        return SquaredError("sum" if loss.reduction == "sum" else "mean", loss.reduction)
    if type(loss) is nn.MultiMarginLoss:
        return _TorchMultiMargin(loss)
    if type(loss).__module__ != TorchLoss.__module__:  # a subclass of one's own
        return FunctionLoss(_per_example(loss))
    raise BadInput(
        f"loss {type(loss).__name__} needs targets other than one class for each example; give a function "
        "(logits, labels) -> (n,) values that makes them from the labels, or nn.CrossEntropyLoss()"
    )


def _multi_margin(loss: nn.MultiMarginLoss, logits: Tensor, labels: Tensor) -> Tensor:
    """(n,) the values of torch's multi-margin loss, whose own code cannot be differentiated twice."""
    own = labels[:, None]
    parts = functional.relu(loss.margin - logits.gather(1, own) + logits) ** loss.p
    values = parts.scatter(1, own, 0.0).sum(dim=1) / logits.shape[1]
    return values if loss.weight is None else loss.weight[labels] * values


def _per_example(loss: Any) -> Any:
    """A module with a reduction as one without, the given one left alone; anything else as it is."""
    if not isinstance(loss, nn.Module) or getattr(loss, "reduction", "none") == "none":
        return loss
    loss = copy.copy(loss)
    loss.reduction = "none"
    return loss


def _check_log_probabilities(logits: Tensor) -> None:
    total = logits.detach().logsumexp(dim=1).abs().amax()
    if not float(total) < 1e-3:
        raise BadInput(
            "NLLLoss takes log-probabilities, and the model's outputs are none (the exponentials of a row must add up "
            "to 1); take nn.CrossEntropyLoss(), or end the model in nn.LogSoftmax(dim=1)"
        )


def check_convex(loss: Loss, labels: Tensor | None, like: Tensor) -> None:
    """Check on random logits that a loss is convex in the logits; otherwise its Gauss–Newton matrix is none.

    The model's own logits would not do: where they are saturated, only rounding is left of H_z.

    Args:
        loss: the loss; one with ``convex = True`` is not tried.
        labels: (n,) labels of a few examples, or None for a loss whose Hessian in the logits needs none.
        like: (n, k) tensor whose shape, dtype and device the random logits have.

    Raises:
        BadInput: if some uᵀ H_z u is negative.
    """
    if loss.convex:
        return
    generator = torch.Generator().manual_seed(0)
    for size in (0.5, 1.0, 2.0, 4.0):
        logits, u = (torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like) for _ in range(2))
        image = loss.hessian_product(size * logits, labels, u)
        bound = 1e-3 * u.norm(dim=1) * image.norm(dim=1)
        if bool(((u * image).sum(dim=1) < -bound).any()):
            raise BadInput(
                "loss must be convex in the logits, or its Gauss–Newton matrix is none; got one with negative "
                "curvature; use Hessian, or read the curvature of the cross-entropy (loss='ce')"
            )


def wide(logits: Tensor) -> Tensor:
    """Convert half-precision logits to float32.

    Args:
        logits: any floating-point tensor.

    Returns:
        The logits in float32 if they are float16 or bfloat16; otherwise the tensor itself.
    """
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def _checked(logits: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Logits in float32 or better and labels in int64, or an error that says what is wrong and what to do."""
    if not isinstance(logits, Tensor) or logits.ndim != 2 or not logits.is_floating_point() or logits.shape[1] < 2:
        given = f"{logits.dtype} {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise BadInput(f"logits must be a floating-point tensor of shape (n, k), two classes at least; got {given}")
    if len(logits) == 0:
        raise BadInput("logits must have at least one row; got none")
    check_integer_labels(labels)
    if labels.shape != logits.shape[:1]:
        raise BadInput(f"labels must have shape ({len(logits)},), one per row of logits; got {tuple(labels.shape)}")
    lowest, highest = (int(bound) for bound in labels.aminmax())
    if lowest < 0 or highest >= logits.shape[1]:
        row = int(((labels < 0) | (labels >= logits.shape[1])).nonzero()[0])
        raise BadInput(
            f"labels must lie in 0..{logits.shape[1] - 1}; got {int(labels[row])} in row {row}; "
            "leave out rows without a label"
        )
    # The largest entry is finite unless a row holds NaN or +inf, or nothing but −inf.
    finite = logits.detach().amax(dim=1).isfinite()
    if not bool(finite.all()):
        raise BadInput(f"logits must be finite; row {int((~finite).nonzero()[0])} is not; did the training diverge?")
    return wide(logits), labels.long()


def check_integer_labels(labels: Any) -> None:
    """Check that labels are a tensor of integers (n,): torch's cross-entropy takes soft labels without an error.

    Args:
        labels: the labels as given.

    Raises:
        BadInput: if they are no integer tensor with one axis.
    """
    if not isinstance(labels, Tensor):
        raise BadInput(f"labels must be a tensor of shape (n,); got {type(labels).__name__}")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise BadInput(
            f"labels must be integers, one class for each example; got {labels.dtype} {tuple(labels.shape)}; "
            "for soft labels use Mixup or LabelSmoothing, which make their own"
        )
    if labels.ndim != 1:
        raise BadInput(f"labels must have shape (n,), one class for each example; got {tuple(labels.shape)}")
