"""The table of metrics, the questions that other packages ask about it, and `summary`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from surefoot.errors import BadInput
from surefoot.metrics.bins import check_bins
from surefoot.metrics.value import Value
from surefoot.predictions import Predictions, takes_predictions
from surefoot.registry import Citation, MetricEntry, table
from surefoot.validation import suggest

__all__ = [
    "METRICS",
    "Metric",
    "applicable",
    "check_validation",
    "higher_is_better",
    "metrics_table",
    "shifted_metrics",
    "summary",
    "tracked_metrics",
]

_KUMAR2019 = Citation("Kumar, Liang and Ma", 2019, "Verified Uncertainty Calibration")
_GEIFMAN2019 = Citation(
    "Geifman, Uziel and El-Yaniv", 2019, "Bias-Reduced Uncertainty Estimation for Deep Neural Classifiers"
)
_HENDRYCKS2017 = Citation(
    "Hendrycks and Gimpel", 2017,
    "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural Networks",
)  # fmt: skip
_AUSTIN2019 = Citation(
    "Austin and Steyerberg", 2019,
    "The Integrated Calibration Index (ICI) and Related Metrics for Quantifying the Calibration of Logistic "
    "Regression Models",
)  # fmt: skip
_COX1958 = Citation("Cox", 1958, "Two Further Applications of a Model for Binary Regression")
_NAEINI2015 = Citation(
    "Naeini, Cooper and Hauskrecht", 2015, "Obtaining Well Calibrated Probabilities Using Bayesian Binning"
)

METRICS: dict[str, MetricEntry] = table(
    [
        MetricEntry(
            "accuracy", "surefoot.metrics.scores:accuracy", better="higher", tracked="all", shifted=True,
        ),
        MetricEntry("mean_confidence", "surefoot.metrics.scores:mean_confidence", better=None),
        MetricEntry("gap", "surefoot.metrics.gap:gap", better=None, tracked="all"),
        MetricEntry("nll", "surefoot.metrics.scores:nll", label="NLL", tracked="all", shifted=True),
        MetricEntry(
            "brier", "surefoot.metrics.scores:brier", tracked="all",
            citation=Citation("Brier", 1950, "Verification of Forecasts Expressed in Terms of Probability"),
        ),
        MetricEntry(
            "brier_skill", "surefoot.metrics.skill:brier_skill", better="higher", needs="binary",
            citation=Citation("Murphy", 1973, "Hedging and Skill Scores for Probability Forecasts"),
        ),
        MetricEntry(
            "ece", "surefoot.metrics.ece:ece", label="ECE", bins=True, tracked="all", shifted=True,
            citation=Citation("Guo et al.", 2017, "On Calibration of Modern Neural Networks"),
        ),
        MetricEntry(
            "over_confidence", "surefoot.metrics.gap:over_confidence", bins=True, better=None, tracked="all",
        ),
        MetricEntry(
            "under_confidence", "surefoot.metrics.gap:under_confidence", bins=True, better=None, tracked="all",
        ),
        MetricEntry("event_ece", "surefoot.metrics.gap:event_ece", label="event ECE", bins=True, needs="two classes"),
        MetricEntry(
            "calibration_intercept", "surefoot.metrics.cox:calibration_intercept", better=None, needs="binary",
            citation=_COX1958,
        ),
        MetricEntry(
            "calibration_slope", "surefoot.metrics.cox:calibration_slope", better=None, needs="binary",
            citation=_COX1958,
        ),
        MetricEntry(
            "calibration_in_the_large", "surefoot.metrics.cox:calibration_in_the_large", better=None, costly=True,
            citation=Citation("Miller, Hui and Tierney", 1991, "Validation Techniques for Logistic Regression Models"),
        ),
        MetricEntry(
            "spiegelhalter_z", "surefoot.metrics.skill:spiegelhalter_z", better=None, needs="binary", soft=False,
            citation=Citation(
                "Spiegelhalter", 1986, "Probabilistic Prediction in Patient Management and Clinical Trials"
            ),
        ),
        MetricEntry("ici", "surefoot.metrics.ici:ici", label="ICI", costly=True, citation=_AUSTIN2019),
        MetricEntry("e50", "surefoot.metrics.ici:e50", label="E50", costly=True, citation=_AUSTIN2019),
        MetricEntry("e90", "surefoot.metrics.ici:e90", label="E90", costly=True, citation=_AUSTIN2019),
        MetricEntry(
            "adaptive_ece", "surefoot.metrics.ece:adaptive_ece", label="AdaECE", bins=True, tracked="all",
            citation=Citation(
                "Nguyen and O'Connor", 2015,
                "Posterior Calibration and Exploratory Analysis for Natural Language Processing Models",
            ),
        ),
        MetricEntry(
            "classwise_ece", "surefoot.metrics.ece:classwise_ece", label="classwise ECE", bins=True, tracked="test",
            needs="classes",
            citation=Citation(
                "Kull et al.", 2019,
                "Beyond Temperature Scaling: Obtaining Well-Calibrated Multiclass Probabilities with Dirichlet "
                "Calibration",
            ),
        ),
        MetricEntry(
            "threshold_ece", "surefoot.metrics.threshold:threshold_ece", bins=True, costly=True,
            citation=Citation("Nixon et al.", 2019, "Measuring Calibration in Deep Learning"),
        ),
        MetricEntry(
            "top_k_accuracy", "surefoot.metrics.top_k:top_k_accuracy", better="higher", costly=True, needs="classes",
        ),
        MetricEntry(
            "top_k_ece", "surefoot.metrics.top_k:top_k_ece", bins=True, costly=True, needs="classes",
            citation=Citation("Gupta et al.", 2021, "Calibration of Neural Networks Using Splines"),
        ),
        MetricEntry("mce", "surefoot.metrics.ece:mce", bins=True, citation=_NAEINI2015),
        MetricEntry("rmsce", "surefoot.metrics.ece:rmsce", bins=True, citation=_KUMAR2019),
        MetricEntry("debiased_ece", "surefoot.metrics.debiased:debiased_ece", bins=True, citation=_KUMAR2019),
        MetricEntry(
            "sweep_ece", "surefoot.metrics.debiased:sweep_ece",
            citation=Citation("Roelofs et al.", 2022, "Mitigating Bias in Calibration Error Estimation"),
        ),
        MetricEntry(
            "kce", "surefoot.metrics.kce:kce", label="KCE", tracked="all",
            citation=Citation(
                "Kumar, Sarawagi and Jain", 2018,
                "Trainable Calibration Measures for Neural Networks from Kernel Mean Embeddings",
            ),
        ),
        MetricEntry(
            "smooth_ece", "surefoot.metrics.smooth:smooth_ece",
            citation=Citation("Błasiok and Nakkiran", 2023, "Smooth ECE: Principled Reliability Diagrams via Kernel "
                              "Smoothing"),
        ),
        # Tan et al. (2026) do not say which AUROC they report, so both are read of the test part.
        MetricEntry(
            "auroc_misclassification", "surefoot.metrics.ranking:auroc_misclassification", label="AUROC of errors",
            better="higher", tracked="test", soft=False, citation=_HENDRYCKS2017,
        ),
        MetricEntry("aurc", "surefoot.metrics.ranking:aurc", soft=False, citation=_GEIFMAN2019),
        MetricEntry("e_aurc", "surefoot.metrics.ranking:e_aurc", soft=False, citation=_GEIFMAN2019),
        MetricEntry("fpr95", "surefoot.metrics.ranking:fpr95", soft=False, citation=_HENDRYCKS2017),
        MetricEntry(
            "auroc_ovr", "surefoot.metrics.ranking:auroc_ovr", label="AUROC of classes", better="higher", costly=True,
            tracked="test", needs="classes", soft=False,
            citation=Citation("Hand and Till", 2001, "A Simple Generalisation of the Area Under the ROC Curve for "
                              "Multiple Class Classification Problems"),
        ),
        MetricEntry(
            "skce", "surefoot.metrics.skce:skce", costly=True, needs="classes",
            citation=Citation("Widmann, Lindsten and Zachariah", 2019, "Calibration Tests in Multi-Class "
                              "Classification: A Unifying Framework"),
        ),
    ]
)  # fmt: skip


def tracked_metrics(part: str) -> list[str]:
    """Return the metrics that readings hold of a part of the data.

    Args:
        part: ``"train"``, ``"val"`` or ``"test"``.

    Returns:
        Names of the metrics, in the order of the table.

    Example:
        >>> tracked_metrics("val")
        ['accuracy', 'gap', 'nll', 'brier', 'ece', 'over_confidence', 'under_confidence', 'adaptive_ece', 'kce']
    """
    return [name for name, entry in METRICS.items() if entry.tracked in ("all", part)]


def shifted_metrics() -> list[str]:
    """Return the metrics that are measured on corrupted images.

    Returns:
        Names of the metrics, in the order of the table.
    """
    return [name for name, entry in METRICS.items() if entry.shifted]


def check_validation(quantity: str) -> str:
    """Check that a quantity is a metric of the validation part that readings hold, with a better direction.

    Args:
        quantity: name as in readings, such as ``"val.nll"``.

    Returns:
        ``quantity`` itself.

    Raises:
        BadInput: when ``quantity`` is anything else; the error lists the names.

    Example:
        >>> check_validation("val.nll")
        'val.nll'
    """
    known = [f"val.{name}" for name in tracked_metrics("val") if METRICS[name].better is not None]
    if quantity not in known:
        hint = suggest(quantity, known) if str(quantity).startswith("val.") else ""
        raise BadInput(f"choices are made on validation, by one of {', '.join(known)}; got {quantity!r}{hint}")
    return quantity


def higher_is_better(quantity: str) -> bool | None:
    """Tell whether the higher value of a metric is better.

    Args:
        quantity: name of the metric, or name as in readings, such as ``"val.nll"``.

    Returns:
        True if higher is better, False if lower is better, None if neither is.

    Example:
        >>> higher_is_better("accuracy"), higher_is_better("val.nll")
        (True, False)
    """
    better = METRICS[quantity.rpartition(".")[2]].better
    return None if better is None else better == "higher"


Metric = Callable[[Predictions], Value]


def metrics_table(bins: int = 15) -> dict[str, Metric]:
    """Return every metric of the registry by its name.

    Args:
        bins: number of bins of the binned metrics, from 1 to 10,000.

    Returns:
        Functions from `Predictions` to a `Value`, by name.

    Raises:
        BadInput: when ``bins`` is out of range.

    Example:
        >>> metrics_table()["accuracy"](Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0]))
        Value(0.5, n=2)
    """
    bins = check_bins(bins)
    return {
        name: partial(entry.resolve(), **entry.fixed, **({"bins": bins} if entry.bins else {}))
        for name, entry in METRICS.items()
    }


def applicable(p: Predictions) -> list[str]:
    """The metrics that predictions have.

    Args:
        p: the predictions.

    Returns:
        Names of the metrics, in the order of the table. Metrics of rankings need one label a row, and some metrics the
        probabilities of all classes.

    Example:
        >>> "classwise_ece" in applicable(Predictions.from_confidence([0.9], [1]))
        False
    """
    fits = {
        "any": True,
        "classes": p.form != "confidence",
        "two classes": p.form == "classes" and p.classes == 2,
        "binary": p.form in ("classes", "positive") and p.classes == 2,
    }
    hard = p.soft_labels is None
    return [name for name, entry in METRICS.items() if fits[entry.needs] and (hard or entry.soft)]


@takes_predictions
def summary(p: Predictions, bins: int = 15) -> dict[str, Value]:
    """Compute the metrics of the first screen: all that predictions have, except the costly and the special ones.

    The entries of the registry say which metrics a summary leaves out; `metrics_table` has all of them.

    Args:
        p: the predictions.
        bins: number of bins of the binned metrics, from 1 to 10,000.

    Returns:
        Values by the name of the metric.

    Raises:
        BadInput: when ``bins`` is out of range, or ``p`` is no `Predictions`.

    Example:
        >>> p = Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        >>> summary(p)["accuracy"]
        Value(0.5, n=2)
    """
    everything = metrics_table(bins)
    table = {name: everything[name] for name in applicable(p) if not METRICS[name].costly}
    # Classwise ECE comes first: its pass over all probabilities also derives the columns for the other metrics.
    first = ["classwise_ece"] if "classwise_ece" in table else []
    values = {name: table[name](p) for name in first}
    values.update((name, metric(p)) for name, metric in table.items() if name not in values)
    return {name: values[name] for name in table}
