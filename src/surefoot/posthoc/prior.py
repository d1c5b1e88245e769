"""`PriorShift`: probabilities for other class shares than those of the validation rows.

If the classes look the same and only their shares change from π to π', then P'(k | x) ∝ P(k | x) π'_k / π_k. The new
shares are known, or they are estimated from predictions without labels:

- *EM* repeats π' ← mean of P'(k | x), which maximises the likelihood of the predictions. It needs calibrated
  probabilities: fit a calibrator first.
- *BBSE* solves C w = m with the confusion matrix C_jk = P(predicted j, label k) of the validation rows and the shares m
  of predicted classes; then π'_k = w_k π_k. It reads predicted classes only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from surefoot.errors import BadInput
from surefoot.posthoc.calibrator import Calibrator, Floats
from surefoot.posthoc.ovr import check_every_class
from surefoot.predictions import Predictions
from surefoot.validation import check_int, suggest

__all__ = ["PriorShift", "em_shares", "parse_prior", "prior_of"]

_ESTIMATES = ("em", "bbse")
_TOLERANCE = 1e-11  # of a step of EM, in any share
_MOST_STEPS = 20_000
_RESAMPLES = 200
_SUM_TOLERANCE = 0.011  # shares such as .33, .33, .33 are rounded


class PriorShift(Calibrator):
    """Reweight probabilities to other class shares: P(k | x) π'_k / π_k, divided by the sum of the row.

    The method assumes that each class looks the same as in the validation rows and only the shares differ. Estimated
    shares also assume calibrated probabilities (EM), or the same confusion matrix (BBSE).

    Args:
        prior: the new shares π': a mapping from classes (names or numbers) to shares, a sequence of k shares, or one
            number, the share of the positive of two classes. ``"em"`` and ``"bbse"`` estimate the shares from the
            predictions that `apply` is given.
        seed: seed of the resampling that judges the confusion matrix, an integer of at least 0.
        scores: what arrays hold, ``"logits"`` or ``"probs"``; without effect on `Predictions`.

    Attributes:
        shares_: (k,) shares π of the classes in the validation rows.
        confusion_: (k, k) confusion matrix, shares of (predicted class, label).
        smallest_: smallest singular value of the confusion matrix.
        noise_: 97.5 % quantile of the distance between resampled confusion matrices and ``confusion_``.

    Example:
        >>> p = Predictions.from_probs([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7], [0.1, 0.9]] * 25, [0, 0, 1, 1] * 25)
        >>> shift = PriorShift("em").fit(p)
        >>> shift.estimate(p).round(5).tolist()
        [0.32442, 0.67558]
        >>> PriorShift({0: 0.2, 1: 0.8}).fit(p).apply(p).probs[0].round(2).tolist()
        [0.5, 0.5]

    References:
        Saerens, Latinne & Decaestecker (2002), "Adjusting the Outputs of a Classifier to New a Priori Probabilities: A
        Simple Procedure", for EM.
        Lipton, Wang & Smola (2018), "Detecting and Correcting for Label Shift with Black Box Predictors", for BBSE.
        Varadhan & Roland (2008), "Simple and Globally Convergent Methods for Accelerating the Convergence of Any EM
        Algorithm".
    """

    method = "prior-shift"
    learned = ("shares_", "confusion_")

    def __init__(self, prior: Any = "em", seed: int = 0, scores: str = "logits") -> None:
        super().__init__(scores)
        self.prior, self.seed = prior, seed

    def check_settings(self) -> None:
        """Check the kind of prior and the seed; the classes are checked when they are known."""
        if self.scores not in ("logits", "probs"):
            raise BadInput(f"scores must be 'logits' or 'probs'; got {self.scores!r}")
        if isinstance(self.prior, str) and self.prior not in _ESTIMATES:
            raise BadInput(
                f"prior must be 'em', 'bbse', or shares of the classes such as {{'cat': 0.2, 'dog': 0.8}}; got "
                f"{self.prior!r}{suggest(self.prior, _ESTIMATES)}"
            )
        check_int("seed", self.seed, 0)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> PriorShift:  # noqa: N803
        """Learn the class shares and the confusion matrix of the validation rows.

        Args:
            X: `Predictions`, or an array (n, k) of scores.
            y: (n,) labels for an array.
            sample_weight: (n,) weights of the rows of an array, or None.

        Returns:
            The calibrator itself.

        Raises:
            BadInput: when a class has no validation row, the prior does not name the classes, or shares are to be
                estimated and the confusion matrix cannot be distinguished from a singular one.
        """
        if isinstance(X, Predictions) and X.form in ("multilabel", "confidence"):
            raise BadInput(f"prior shift needs predictions of classes; got {X.form} predictions, which have no shares")
        super().fit(X, y, sample_weight)
        return self

    def _fit(self, p: Predictions) -> None:
        if p.soft_labels is None:
            check_every_class("prior shift", p)
        truth = np.eye(p.classes)[p.labels] if p.soft_labels is None else p.soft_labels
        weights = np.ones(len(p)) if p.weights is None else p.weights
        self.shares_: Floats = weights @ truth / weights.sum()
        if not isinstance(self.prior, str):
            prior_of(self.prior, p.classes, p.names, p.positive)
        self.confusion_ = _confusion(p.predicted, truth, weights)
        self.smallest_ = float(np.linalg.svd(self.confusion_, compute_uv=False)[-1])
        self.noise_ = 0.0
        if isinstance(self.prior, str):
            self.noise_ = _noise(p, truth, weights, self.confusion_, int(self.seed))
            if self.smallest_ <= self.noise_:
                raise BadInput(
                    f"the class shares cannot be estimated: the confusion matrix of the {len(p):,} validation rows "
                    f"cannot be distinguished from one without an inverse (smallest singular value "
                    f"{self.smallest_:.2g}, noise {self.noise_:.2g}). Give more rows, or the shares themselves"
                )

    def estimate(self, p: Predictions) -> Floats:
        """The new class shares π': the given ones, or the estimate from predictions; their labels are not read.

        Args:
            p: predictions with the classes of the fit.

        Returns:
            (k,) shares that sum to 1.

        Raises:
            BadInput: when BBSE gives a negative share.
            NotFitted: when nothing is learned yet.
        """
        self.check_fitted()
        self.check_classes(p)
        if not isinstance(self.prior, str):
            return prior_of(self.prior, p.classes, self.names_, p.positive)
        weights = np.ones(len(p)) if p.weights is None else p.weights
        if self.prior == "em":
            return em_shares(p.log_probs, self.shares_, weights)
        predicted = np.bincount(p.predicted, weights, p.classes) / weights.sum()
        found: Floats = np.linalg.solve(self.confusion_, predicted) * self.shares_
        if found.min() < 0:
            worst = int(found.argmin())
            raise BadInput(
                f"BBSE gives class {worst} a negative share ({found[worst]:.3g}): the predicted classes do not fit the "
                "confusion matrix of the validation rows. Use 'em', or give more rows"
            )
        normalised: Floats = found / found.sum()
        return normalised

    def _map(self, p: Predictions) -> tuple[Floats, str]:
        prior = self.estimate(p)
        if isinstance(self.prior, str):
            # A class that the estimate leaves out may still occur: it keeps the share of less than one row.
            prior = np.maximum(prior, 0.5 / (len(p) + 1) / p.classes)
        with np.errstate(divide="ignore"):
            return p.log_probs + (np.log(prior) - np.log(self.shares_)), "logits"

    def save(self, path: Any) -> None:
        """Refuse: the map depends on the predictions that it is applied to.

        Args:
            path: without effect.

        Raises:
            BadInput: always.
        """
        raise BadInput(
            "a prior shift is not saved: it belongs to one pair of class shares. Save the calibrator before it, and "
            "give the shares again"
        )

    def number_of_parameters(self, classes: int) -> int:
        """Return k − 1."""
        return classes - 1


def parse_prior(text: str) -> Any:
    """Read class shares from the command line.

    Args:
        text: ``"em"``, ``"bbse"``, ``"cat=.2,dog=.8"``, or one number, the share of the positive class.

    Returns:
        The ``prior`` of `PriorShift`.

    Raises:
        BadInput: when the text is none of these.

    Example:
        >>> parse_prior("cat=.2,dog=.8")
        {'cat': 0.2, 'dog': 0.8}
    """
    if text in _ESTIMATES:
        return text
    try:
        if "=" not in text:
            return float(text)
        pairs = [part.rpartition("=") for part in text.split(",")]
        found = {name.strip(): float(share) for name, _, share in pairs}
    except ValueError:
        found = {}
    if not found or len(found) < len(text.split(",")):
        raise BadInput(f"the class shares must be em, bbse, or shares such as cat=.2,dog=.8; got {text!r}")
    return found


def prior_of(prior: Any, classes: int, names: Any = None, positive: int | None = None) -> Floats:
    """Check given class shares, and bring them into the order of the classes.

    Args:
        prior: a mapping from classes to shares, k shares, or the share of the positive of two classes.
        classes: number of classes k.
        names: names of the classes, or None.
        positive: the positive of two classes; None for the second class.

    Returns:
        (k,) shares that sum to 1.

    Raises:
        BadInput: when a class is missing or unknown, a share is not above 0, or the shares do not sum to 1.

    Example:
        >>> prior_of({"dog": 0.8, "cat": 0.2}, 2, ("cat", "dog")).tolist()
        [0.2, 0.8]
    """
    known = [str(name) for name in (range(classes) if names is None else names)]
    if isinstance(prior, Mapping):
        given = {str(name): share for name, share in prior.items()}
        wrong = [name for name in given if name not in known]
        if wrong:
            shown = ", ".join(known[:8])
            raise BadInput(f"prior must name the classes {shown}; got {wrong[0]!r}{suggest(wrong[0], known)}")
        missing = [name for name in known if name not in given]
        if missing:
            raise BadInput(f"prior must give every class a share; {missing[0]!r} has none")
        listed = [given[name] for name in known]
    elif isinstance(prior, int | float | np.number) and not isinstance(prior, bool):
        if classes != 2:
            raise BadInput(f"prior must give every class a share; got one number for {classes} classes")
        listed = [1 - float(prior), float(prior)]
        listed = listed[::-1] if positive == 0 else listed
    else:
        listed = list(prior) if isinstance(prior, list | tuple | np.ndarray) else []
        if len(listed) != classes:
            raise BadInput(f"prior must have {classes} shares, one for each class; got {prior!r}")
    try:
        shares: Floats = np.array([float(share) for share in listed])
    except (TypeError, ValueError) as error:
        raise BadInput(f"prior must have numbers as shares; got {prior!r}") from error
    if not (np.isfinite(shares).all() and (shares > 0).all()):
        raise BadInput(f"prior must have shares above 0, so that no label becomes impossible; got {prior!r}")
    if abs(shares.sum() - 1) > _SUM_TOLERANCE:
        raise BadInput(f"prior must have shares that sum to 1; got {prior!r}, which sums to {shares.sum():.4g}")
    normalised: Floats = shares / shares.sum()
    return normalised


def em_shares(log_probs: Floats, shares: Floats, weights: Floats | None = None) -> Floats:
    """Estimate class shares by EM, accelerated so that it converges where plain EM needs thousands of steps.

    Args:
        log_probs: (n, k) log-probabilities.
        shares: (k,) class shares that the probabilities assume, above 0.
        weights: (n,) weights of the rows; None for ones.

    Returns:
        (k,) estimated shares, the maximum of the likelihood up to 10⁻¹¹ in a step of EM.

    Example:
        >>> p = np.array([0.8, 0.6, 0.3, 0.1])
        >>> em_shares(np.log(np.stack([p, 1 - p], axis=1)), np.array([0.5, 0.5])).round(5).tolist()
        [0.32442, 0.67558]
    """
    ratio = np.exp(log_probs - log_probs.max(axis=1, keepdims=True)) / shares
    ratio /= ratio.max(axis=1, keepdims=True)
    w = np.full(len(ratio), 1 / len(ratio)) if weights is None else weights / weights.sum()

    def step(prior: Floats) -> tuple[Floats, float]:
        """The next shares, and the mean log-likelihood of the given ones."""
        total = ratio @ prior
        return prior * ((w / total) @ ratio), float(w @ np.log(total))

    prior, used = shares / shares.sum(), 0
    while used < _MOST_STEPS:
        first, likelihood = step(prior)
        second, _ = step(first)
        used += 2
        change, bend = first - prior, second - 2 * first + prior
        if np.abs(change).max() <= _TOLERANCE:
            return np.asarray(first)
        size = float(np.linalg.norm(bend))
        length = max(1.0, float(np.linalg.norm(change)) / size) if size > 0 else 1.0
        jump = prior + 2 * length * change + length**2 * bend
        if length > 1 and (jump > 0).all():
            landed, higher = step(jump / jump.sum())
            used += 1
            if higher >= likelihood:
                prior = landed
                continue
        prior = second
    return np.asarray(prior)


def _confusion(predicted: Any, truth: Floats, weights: Floats) -> Floats:
    """(k, k) shares of (predicted class, label)."""
    k = truth.shape[1]
    table = np.zeros((k, k))
    np.add.at(table, predicted, truth * weights[:, None])
    return np.asarray(table / weights.sum())


def _noise(p: Predictions, truth: Floats, weights: Floats, confusion: Floats, seed: int) -> float:
    """97.5 % quantile of the spectral distance between confusion matrices of resampled rows, or clusters, and of all.

    By Weyl's inequality the smallest singular value of a singular matrix with so much noise is no larger.
    """
    from scipy.sparse import csr_array

    random = np.random.default_rng(seed)
    k = p.classes
    owner = np.arange(len(p)) if p.clusters is None else np.unique(p.clusters, return_inverse=True)[1]
    units = int(owner.max()) + 1
    rows, labels = np.nonzero(truth)
    cell = p.predicted[rows] * k + labels
    table = csr_array((truth[rows, labels] * weights[rows], (owner[rows], cell)), shape=(units, k * k))
    totals = np.bincount(owner, weights, units)
    distances = []
    for _ in range(_RESAMPLES):
        times = np.bincount(random.integers(0, units, units), minlength=units).astype(np.float64)
        drawn = (times @ table).reshape(k, k) / float(times @ totals)
        distances.append(float(np.linalg.norm(drawn - confusion, 2)))
    return float(np.quantile(distances, 0.975))
