"""What a repair did, in sentences and as a table of markup for the page."""

from __future__ import annotations

from surefoot.posthoc.auto import Auto
from surefoot.posthoc.calibrator import Calibrator
from surefoot.posthoc.compare import Comparison
from surefoot.reports.figure import escape
from surefoot.reports.text import number

__all__ = ["choice_sentence", "markup", "outcome_sentences"]


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
            f" The whole procedure, choice included, reaches {number(abs(calibrator.estimate_))} on rows it has not "
            f"seen, from {number(abs(calibrator.before_))}."
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


def outcome_sentences(comparison: Comparison) -> list[str]:
    """Is it better than noise, and what became of the answers."""
    said = []
    for metric in ("nll", "ece"):
        change = comparison[metric]
        word = {"better": "better, and more than noise", "worse": "WORSE, and more than noise"}.get(
            change.verdict, "not to be told from noise"
        )
        said.append(
            f"{metric.upper()} goes from {number(change.before)} to {number(change.after)}: {word} (change "
            f"{change.change:+.4f}, {comparison.level:.0%} interval {change.low:+.4f} to {change.high:+.4f})."
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
        f"<tr><td>{c.metric}</td><td>{number(c.before)}</td><td>{number(c.after)}</td><td>{c.change:+.4f}</td>"
        f"<td>{c.low:+.4f} to {c.high:+.4f}</td><td>{c.verdict}</td></tr>"
        for c in comparison.changes
    )
    text = "".join(f'<p class="sf">{escape(sentence)}</p>' for sentence in sentences)
    return f'{_STYLE}{text}<table class="sf"><tr>{head}</tr>{rows}</table>'
