"""What a repair did, in sentences and as a table of markup for the page."""

from __future__ import annotations

from math import isnan

from surefoot.posthoc.auto import Auto
from surefoot.posthoc.calibrator import Calibrator
from surefoot.posthoc.compare import FEWEST, Comparison
from surefoot.reports.figure import escape
from surefoot.text import number

__all__ = ["choice_sentence", "fit_warnings", "markup", "outcome_sentences", "shift", "span"]


def choice_sentence(calibrator: Calibrator) -> str:
    """Which repair it is, and why it was chosen."""
    if not isinstance(calibrator, Auto):
        return f"Repair: {_described(calibrator)}."
    tried = sum(candidate.left_out is None for candidate in calibrator.scores_)
    found = f"by {calibrator.metric} over {calibrator.folds} folds of the {calibrator.n_:,} validation rows"
    if calibrator.name_ == "none":
        return f"Leave it as it is: of {tried} candidates {found}, none gains more than its standard error."
    best = next(c for c in calibrator.scores_ if c.name == calibrator.name_)
    gain = f"it gains {best.gain:.4g} ± {best.gain_error:.1g}"
    text = f"Repair: {_described(calibrator.best_)}, chosen among {tried} {found}; {gain}."
    if calibrator.estimate_ is not None:
        text += (
            f" The whole procedure, choice included, reaches {number(calibrator.estimate_)} on rows it has not "
            f"seen, from {number(calibrator.before_)}."
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
    """What the fit itself says against what was learned."""
    used = calibrator.best_ if isinstance(calibrator, Auto) else calibrator
    outcome = getattr(used, "outcome_", None)
    if outcome == "separable":
        return [
            "Every validation row is answered right, so no temperature is the best one; the one used is a guess from "
            "the number of rows alone. Is it the training set? Give rows that the model has not seen."
        ]
    if outcome == "uninformative":
        return [
            "The logits rank the classes of the validation rows no better than chance, so the temperature makes them "
            "all but flat. Do the labels belong to these rows?"
        ]
    return []


def span(low: float, high: float) -> str:
    """An interval of a change, if there is one."""
    return "none" if isnan(low) else f"{low:+.4f} to {high:+.4f}"


def shift(change: float) -> str:
    """A change with its sign; "undefined" between two infinities."""
    return "undefined" if isnan(change) else f"{change:+.4f}"


_WORDS = {
    "better": "better, and more than noise",
    "worse": "WORSE, and more than noise",
    "noise": "not to be told from noise",
    "undefined": "infinite before and after, so not to be compared",
}


def outcome_sentences(comparison: Comparison) -> list[str]:
    """Is it better than noise, and what became of the answers."""
    said = []
    for metric in ("nll", "ece"):
        change = comparison[metric]
        word = _WORDS.get(change.verdict, f"too few rows to judge ({comparison.n} of at least {FEWEST})")
        said.append(
            f"{metric.upper()} goes from {number(change.before)} to {number(change.after)}: {word} (change "
            f"{shift(change.change)}, {comparison.level:.0%} interval {span(change.low, change.high)})."
        )
    if comparison.impossible_before or comparison.impossible_after:
        said.append(
            f"{comparison.impossible_before:,} of {comparison.n:,} rows give their label probability 0 before and "
            f"{comparison.impossible_after:,} after; one such row makes the NLL infinite."
        )
    accuracy = comparison["accuracy"]
    if comparison.answers_changed == 0:
        said.append("No answer changes, so accuracy stays as it is.")
    else:
        said.append(
            f"{comparison.answers_changed:,} of {comparison.n:,} answers change; accuracy goes from "
            f"{accuracy.before:.4f} to {accuracy.after:.4f} (change {accuracy.change:+.4f}, interval "
            f"{accuracy.low:+.4f} to {accuracy.high:+.4f})."
        )
    return said


_STYLE = (
    "<style>body{font-family:sans-serif}table.sf{border-collapse:collapse;margin:1em auto}"
    ".sf td,.sf th{padding:.25em .8em;text-align:right}.sf th{border-bottom:1px solid #999}"
    "p.sf{max-width:50em;margin:.6em auto;padding:0 1em}</style>"
)


def markup(comparison: Comparison, sentences: list[str]) -> str:
    """The table of changes and the sentences as HTML."""
    head = "".join(f"<th>{h}</th>" for h in ("metric", "before", "after", "change", "interval", "verdict"))
    rows = "".join(
        f"<tr><td>{c.metric}</td><td>{number(c.before)}</td><td>{number(c.after)}</td><td>{shift(c.change)}</td>"
        f"<td>{span(c.low, c.high)}</td><td>{c.verdict}</td></tr>"
        for c in comparison.changes
    )
    text = "".join(f'<p class="sf">{escape(sentence)}</p>' for sentence in sentences)
    return f'{_STYLE}{text}<table class="sf"><tr>{head}</tr>{rows}</table>'
