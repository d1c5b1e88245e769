"""The effect of a recalibration, in sentences and as an HTML table."""

from __future__ import annotations

from math import isnan

from surefoot.posthoc.auto import Auto
from surefoot.posthoc.calibrator import Calibrator
from surefoot.posthoc.compare import FEWEST, FEWEST_CLUSTERS, Comparison
from surefoot.reports.figure import escape
from surefoot.text import number

__all__ = ["choice_sentence", "fit_warnings", "markup", "outcome_sentences", "shift", "span"]


def choice_sentence(calibrator: Calibrator) -> str:
    """Describe the fitted calibrator, and why the calibrator was chosen.

    Args:
        calibrator: a fitted calibrator.

    Returns:
        A sentence or two.
    """
    if not isinstance(calibrator, Auto):
        return f"Recalibration: {_described(calibrator)}."
    tried = sum(candidate.left_out is None for candidate in calibrator.scores_)
    selection = f"by {calibrator.metric} over {calibrator.folds} folds of the {calibrator.n_:,} validation rows"
    if calibrator.name_ == "none":
        return f"No recalibration: of {tried} candidates {selection}, none gains more than its standard error."
    best = next(c for c in calibrator.scores_ if c.name == calibrator.name_)
    gain = f"it gains {best.gain:.4g} ± {best.gain_error:.1g}"
    text = f"Recalibration: {_described(calibrator.best_)}, chosen among {tried} {selection}; {gain}."
    if calibrator.estimate_ is not None:
        text += (
            f" The whole procedure, including the choice, reaches {number(calibrator.estimate_)} on unseen rows, from "
            f"{number(calibrator.before_)}."
        )
    return text


def _described(calibrator: Calibrator) -> str:
    if calibrator.method == "temperature":
        return f"temperature {calibrator.temperature_:.4f}"
    if calibrator.method == "ets":
        weights = ", ".join(f"{w:.3f}" for w in calibrator.weights_)
        return f"ensemble of temperatures ({calibrator.temperature_:.4f}; weights {weights})"
    if calibrator.method == "isotonic":
        return "isotonic regression, " + ("all classes pooled" if calibrator.pooled else "one class against the rest")
    return calibrator.method


def fit_warnings(calibrator: Calibrator) -> list[str]:
    """List warnings from the fit of a calibrator.

    Args:
        calibrator: a fitted calibrator.

    Returns:
        The warnings; empty if there are none.
    """
    used = calibrator.best_ if isinstance(calibrator, Auto) else calibrator
    outcome = getattr(used, "outcome_", None)
    if outcome == "separable":
        return [
            "Every validation row is classified correctly, so no temperature is optimal; the temperature is a guess "
            "from the number of rows alone. Is it the training set? Give rows that the model has not seen."
        ]
    if outcome == "uninformative":
        return [
            "The logits rank the classes of the validation rows no better than chance, so the temperature makes the "
            "probabilities almost uniform. Do the labels belong to these rows?"
        ]
    return []


def span(low: float, high: float) -> str:
    """Write an interval of a change.

    Args:
        low: lower end; NaN if there is no interval.
        high: upper end.

    Returns:
        The text.

    Example:
        >>> span(-0.01, 0.02)
        '-0.0100 to +0.0200'
    """
    return "none" if isnan(low) else f"{low:+.4f} to {high:+.4f}"


def shift(change: float) -> str:
    """Write a change with its sign.

    Args:
        change: the change; NaN between two infinities.

    Returns:
        The text.

    Example:
        >>> shift(0.5), shift(float("nan"))
        ('+0.5000', 'undefined')
    """
    return "undefined" if isnan(change) else f"{change:+.4f}"


_WORDS = {
    "better": "better, and more than noise",
    "worse": "WORSE, and more than noise",
    "noise": "not distinguishable from noise",
    "undefined": "infinite before and after, so not comparable",
}


def outcome_sentences(comparison: Comparison) -> list[str]:
    """Say whether NLL and ECE change by more than noise, and how many predicted classes change.

    Args:
        comparison: predictions before and after the calibration.

    Returns:
        The sentences.
    """
    sentences = []
    for metric in ("nll", "ece"):
        change = comparison[metric]
        tests = f"; {change.evidence}" if change.evidence and change.verdict in _WORDS else ""
        of = " of the debiased change" if change.method == "flips and t" else ""
        few = f"too few rows to judge ({comparison.n} of at least {FEWEST})"
        if change.verdict == "too few clusters":
            few = f"too few clusters to judge ({change.clusters} of at least {FEWEST_CLUSTERS})"
        word = _WORDS.get(change.verdict, few)
        sentences.append(
            f"{metric.upper()} goes from {number(change.before)} to {number(change.after)}: {word} (change "
            f"{shift(change.change)}, {comparison.level:.0%} interval{of} {span(change.low, change.high)}{tests})."
        )
    if comparison.impossible_before or comparison.impossible_after:
        sentences.append(
            f"{comparison.impossible_before:,} of {comparison.n:,} rows give their label probability 0 before and "
            f"{comparison.impossible_after:,} after; one such row makes the NLL infinite."
        )
    accuracy = comparison["accuracy"]
    if comparison.answers_changed == 0:
        sentences.append("No predicted class changes, so the accuracy is unchanged.")
    else:
        sentences.append(
            f"{comparison.answers_changed:,} of {comparison.n:,} predicted classes change; accuracy goes from "
            f"{accuracy.before:.4f} to {accuracy.after:.4f} (change {accuracy.change:+.4f}, interval "
            f"{accuracy.low:+.4f} to {accuracy.high:+.4f})."
        )
    return sentences


_STYLE = (
    "<style>body{font-family:sans-serif}table.sf{border-collapse:collapse;margin:1em auto}"
    ".sf td,.sf th{padding:.25em .8em;text-align:right}.sf th{border-bottom:1px solid #999}"
    "p.sf{max-width:50em;margin:.6em auto;padding:0 1em}</style>"
)


def markup(comparison: Comparison, sentences: list[str]) -> str:
    """Write the table of changes and the sentences as HTML.

    Args:
        comparison: predictions before and after the calibration.
        sentences: sentences above the table.

    Returns:
        The HTML.
    """
    head = "".join(f"<th>{h}</th>" for h in ("metric", "before", "after", "change", "interval", "verdict"))
    rows = "".join(
        f"<tr><td>{c.metric}</td><td>{number(c.before)}</td><td>{number(c.after)}</td><td>{shift(c.change)}</td>"
        f"<td>{span(c.low, c.high)}</td><td>{c.verdict}</td></tr>"
        for c in comparison.changes
    )
    text = "".join(f'<p class="sf">{escape(sentence)}</p>' for sentence in sentences)
    return f'{_STYLE}{text}<table class="sf"><tr>{head}</tr>{rows}</table>'
