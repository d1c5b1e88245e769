"""`evaluate`: the output of ``surefoot evaluate`` as an object that prints itself, and the verdict in sentences."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from io import StringIO
from typing import TYPE_CHECKING, Any

from surefoot.deprecated import renamed_arguments
from surefoot.evaluation.groups import Group, Groups, SameInAll, by_group
from surefoot.metrics.ece import ChanceECE, chance_ece
from surefoot.metrics.gap import gap_interval
from surefoot.metrics.interval import Interval, intervals
from surefoot.metrics.registry import METRICS, applicable, metrics_table, summary
from surefoot.metrics.reliability import Reliability, reliability
from surefoot.metrics.skce import skce
from surefoot.metrics.value import Value
from surefoot.predictions import Predictions, check_predictions
from surefoot.text import number, plain, plain_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

__all__ = ["Evaluation", "Verdict", "evaluate", "verdict"]

_WIDTH = 40  # of a bar in the terminal
_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True, repr=False)
class Evaluation:
    """How calibrated predictions are, how certain those numbers are, and what to do.

    ``str`` and ``repr`` give the text that ``surefoot evaluate`` prints; notebooks show a table.

    Attributes:
        name: what was evaluated, such as a file's name.
        n: number of examples.
        classes: number of classes; 0 where only sums of events are known.
        level: coverage of the intervals.
        metrics: values by name; each `Value` knows what it was measured with.
        intervals: intervals by the metric's name; the costly metrics have none.
        reliability: data of the reliability diagram.
        verdict: the direction of the error, whether it is more than noise, and sentences.
        form: the kind of predictions, as `Predictions.form`.
        grouped: the groups of the columns ``by``, with their tests; None without ``by``.
    """

    name: str
    n: int
    classes: int
    level: float
    metrics: dict[str, Value]
    intervals: dict[str, Interval]
    reliability: Reliability
    verdict: Verdict
    form: str = "classes"
    grouped: Groups | None = None

    @property
    def groups(self) -> list[Group]:
        """One entry for each group of each column ``by``; empty without ``by``."""
        return [] if self.grouped is None else self.grouped.groups

    @property
    def group_tests(self) -> list[SameInAll]:
        """For each column ``by``, the test of "the gap is the same in all groups"."""
        return [] if self.grouped is None else self.grouped.tests

    @property
    def sentences(self) -> tuple[str, ...]:
        """The verdict's sentences, a warning where every row is right or wrong, and what the groups show."""
        groups = () if self.grouped is None else self.grouped.sentences
        if self.verdict.accuracy not in (0.0, 1.0):
            return *self.verdict.sentences, *groups
        kind = "right" if self.verdict.accuracy else "wrong"
        return (
            *self.verdict.sentences,
            f"Every row is {kind}: resampling cannot show what it has not seen, so intervals without a width prove "
            f"nothing; up to {min(1.0, 3 / self.n):.1%} of all cases could be otherwise (rule of three).",
            *groups,
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values that JSON can hold: the object that ``surefoot evaluate --json`` prints.

        Returns:
            Keys ``file``, ``n``, ``classes``, ``level``, ``metrics``, ``reliability`` and ``verdict``; with groups also
            ``groups`` and ``group_tests``. NaN (an empty bin) is None, and infinities are the strings ``"inf"`` and
            ``"-inf"``.
        """
        groups: dict[str, Any] = {}
        if self.grouped is not None:
            groups["groups"] = self.grouped.to_list()
            groups["group_tests"] = [dataclasses.asdict(test) for test in self.grouped.tests]
        values: dict[str, Any] = plain_json(
            {
                "file": self.name,
                "n": self.n,
                "classes": self.classes,
                "form": self.form,
                "level": self.level,
                "metrics": {metric: self._entry(metric) for metric in self.metrics},
                "reliability": {
                    **{name: column for name, column in vars(self.reliability.table).items() if column is not None},
                    "interval": self.reliability.interval,
                    "band": self.reliability.band,
                },
                "verdict": {
                    **dataclasses.asdict(self.verdict),
                    "direction": self.verdict.direction,
                    "sentences": self.verdict.sentences,
                },
                **groups,
            }
        )
        return values

    def print_to(self, console: Console) -> None:
        """Print the table, the diagram and the sentences.

        Args:
            console: a console of the package rich.
        """
        from rich.table import Table
        from rich.text import Text

        console.print(Text(self._heading(), style="bold"))
        console.print()
        table = Table(box=None, pad_edge=False, header_style="bold")
        for heading in self._columns():
            table.add_column(heading, justify="right" if heading == "value" else "left")
        for metric, value, span, note in self._rows():
            table.add_row(metric, value, span, Text(note, style="dim"))
        console.print(table)
        console.print()
        console.print(terminal_diagram(self.reliability, event=self.verdict.event), soft_wrap=True)
        if self.grouped is not None:
            self.grouped.print_to(console)
            console.print()
        for sentence in self.sentences:
            console.print(sentence)

    def __str__(self) -> str:
        from rich.console import Console

        text = StringIO()
        self.print_to(Console(file=text, width=100, highlight=False))
        return text.getvalue().rstrip("\n")

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(heading)}</th>" for heading in self._columns())
        rows = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in self._rows())
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        sentences = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self.sentences)
        return (
            f"<p><b>{html.escape(self._heading())}</b></p><table><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>{'' if self.grouped is None else self.grouped.html()}{sentences}"
        )

    def _heading(self) -> str:
        kinds = {
            "positive": f"{self.n:,} probabilities of one event",
            "multilabel": f"{self.n:,} labels that are present or absent",
            "confidence": f"{self.n:,} confidences",
        }
        of_classes = f" of {self.classes} classes" if self.classes else ""
        return f"{plain(self.name)}: {kinds.get(self.form, f'{self.n:,} predictions{of_classes}')}"

    def _columns(self) -> tuple[str, ...]:
        return "metric", "value", f"{self.level:.0%} interval", "measured with"

    def _rows(self) -> list[tuple[str, str, str, str]]:
        rows = []
        for metric, value in self.metrics.items():
            span = " – ".join(number(end) for end in self.intervals.get(metric, ()))
            note = "nothing to rank: chance" if value.facts.get("pairs") == 0 else _note(value.facts)
            rows.append((metric, number(value), span, note))
        return rows

    def _entry(self, metric: str) -> dict[str, Any]:
        value, interval = self.metrics[metric], self.intervals.get(metric)
        low, high = (None, None) if interval is None else interval
        method = None if interval is None else interval.method
        return {"value": float(value), "low": low, "high": high, "interval": method, **value.facts}


@renamed_arguments(every="costly")
def evaluate(
    p: Predictions,
    bins: int = 15,
    *,
    by: str | Sequence[str] | None = None,
    min_rows: int = 30,
    costly: bool = False,
    level: float = 0.95,
    seed: int = 0,
    name: str = "predictions",
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Evaluate predictions, as the command ``surefoot evaluate`` does.

    Args:
        p: the predictions.
        bins: number of bins of the binned metrics and of the diagram.
        by: name of a column of ``p.groups``, or several: each group's gap, ECE and accuracy, and tests of whether the
            groups differ, as `surefoot.evaluation.by_group`.
        min_rows: smallest number of rows of a group that is tested.
        costly: also the metrics that take longer (``auroc_ovr``, ``skce``); these metrics get no intervals.
        level: coverage of the intervals, between 0 and 1.
        seed: of the resampling behind the intervals.
        name: what the result calls the predictions.
        progress: called as ``progress(done, of)`` after each resample.

    Returns:
        The metrics with intervals, the reliability diagram's data and the verdict.

    Raises:
        BadInput: if ``p`` is no `Predictions`, or a setting is out of range.

    Example:
        >>> p = Predictions([[2.0, 0.0], [0.0, 1.0]] * 50, [0, 0] * 50)
        >>> result = evaluate(p)
        >>> round(result.metrics["ece"], 4), result.verdict.direction
        (0.4251, 'over')
        >>> result.intervals["accuracy"].method
        'Wilson'
        >>> print(result.sentences[-1])
        Fit a temperature above 1 on held-out predictions; it lowers every confidence and changes no predicted class.
    """
    check_predictions("p", p)
    grouped = None if by is None else by_group(p, by, bins, level=level, min_rows=min_rows, seed=seed)
    table, values = metrics_table(bins), summary(p, bins)
    if costly:
        # skce: all pairs of rows while that takes seconds; a single row has none.
        table["skce"] = partial(skce, estimator="biased" if len(p) < 2 else "unbiased" if len(p) <= 20_000 else "block")
        values |= {metric: table[metric](p) for metric in applicable(p) if metric not in values}
    # Costly metrics get no interval: hundreds of resamples would take hours where one value takes a minute.
    cheap = {metric: table[metric] for metric in values if not METRICS[metric].costly}
    ranges = intervals(cheap, p, level, seed, known=values, progress=progress)
    diagram = reliability(p, bins, level=level)
    judged = verdict(p, bins, level, seed)
    # The table and the sentences state one interval of the gap.
    method = (
        "Wilson"
        if p.events().plain and p.clusters is None
        else "t of the rows"
        if p.clusters is None
        else "t of clusters"
    )
    ranges["gap"] = Interval(judged.gap_low, judged.gap_high, method, level, 0)
    return Evaluation(name, len(p), p.classes, diagram.level, values, ranges, diagram, judged, p.form, grouped)


def _note(facts: dict[str, Any]) -> str:
    """The settings of a value, short enough for a table; n is in the heading."""
    parts = []
    if "bins" in facts:
        parts.append(f"{facts['bins']} bins, {facts['binning']}")
    if "norm" in facts:
        parts.append(f"{facts['norm']}-norm")
    if "bandwidth" in facts:
        parts.append(f"kernel width {facts['bandwidth']:.3g}")
    if facts.get("impossible"):
        parts.append(f"{facts['impossible']} labels of probability 0")
    return "; ".join([*parts, *(str(facts[name]) for name in ("unit", "estimator") if name in facts)])


def terminal_diagram(diagram: Reliability, width: int = _WIDTH, event: str = "top") -> Text:
    """A reliability diagram for the terminal, one line per bin, from the table behind the numbers.

    Bars show the accuracy, marks the mean confidence. A bin outside its consistency band is red.
    """
    from rich.text import Text

    table = diagram.table
    text = Text()
    said, happened = ("confidence", "accuracy") if event in ("top", "given") else ("probability", "share")
    text.append(f"{said:^16}{'n':>10}  {f'{happened} ▉  {said} ┃':<{width + 2}}  gap\n", style="bold")
    for index, count in enumerate(table.count.tolist()):
        bracket = "(" if index and diagram.binning == "width" else "["
        text.append(f"{bracket}{table.lower[index]:.4f}, {table.upper[index]:.4f}]".center(16))
        text.append(f"{count:>10,}  ")
        if count == 0:
            text.append("·" * (width + 2) + "\n", style="dim")
            continue
        low, high = diagram.band[:, index]
        accuracy, confidence = float(table.accuracy[index]), float(table.confidence[index])
        inside = low <= accuracy <= high
        style = "green" if inside else "red"
        text.append(_bar(accuracy, confidence, width), style=style)
        text.append(f"  {confidence - accuracy:+.3f}\n", style=style)
    return text


def _bar(accuracy: float, confidence: float, width: int) -> str:
    eighths = round(accuracy * width * 8)
    cells = list(("█" * (eighths // 8) + _EIGHTHS[eighths % 8].rstrip()).ljust(width + 2))
    cells[min(int(confidence * width), width)] = "┃"
    return "".join(cells)


# Words of the verdict: too high, too low, neither; what was said, and what happened.
_CONFIDENCE = ("Overconfident", "Underconfident", "Neither over- nor underconfident", "mean confidence", "accuracy")
_PROBABILITY = (
    "Probabilities too high",
    "Probabilities too low",
    "Probabilities right on average",
    "mean probability",
    "share of events",
)


@dataclass(frozen=True)
class Verdict:
    """Direction and size of the miscalibration of a set of predictions.

    Attributes:
        confidence: mean confidence, or mean probability of the events.
        accuracy: share of rows that are right, or of events that happened.
        gap: mean confidence − accuracy.
        gap_low: lower end of the interval of the gap.
        gap_high: upper end of the interval of the gap.
        chance: ECE that a calibrated model would show on as many rows.
        n: number of rows.
        level: coverage of the interval.
        event: which events these are; ``"top"`` for the predicted class.
        positive: for two classes, the ECE of P(positive) and what a calibrated model would show; otherwise None.
    """

    confidence: float
    accuracy: float
    gap: float
    gap_low: float
    gap_high: float
    chance: ChanceECE
    n: int
    level: float
    event: str = "top"
    positive: ChanceECE | None = None

    @property
    def direction(self) -> str:
        """``"over"``, ``"under"``, or ``"neither"`` where the interval of the gap contains 0."""
        return "over" if self.gap_low > 0 else "under" if self.gap_high < 0 else "neither"

    @property
    def beyond_chance(self) -> bool:
        """Whether an ECE exceeds the ECE of a calibrated model in all but 5 % of cases (of two, each in 2.5 %)."""
        if self.positive is None:
            return self.chance.p_value < 0.05
        return min(self.chance.p_value, self.positive.p_value) < 0.025

    @property
    def sentences(self) -> tuple[str, ...]:
        """The direction and its size, the comparison with noise, for two classes that of P(positive), the advice."""
        first = self._direction(), _noise("ECE", self.chance, self.n, self._certain(self.chance))
        if self.positive is None:
            return *first, self._advice()
        return (
            *first,
            _noise("event ECE of P(positive)", self.positive, self.n, self._certain(self.positive)),
            self._advice(),
        )

    def _certain(self, chance: ChanceECE) -> bool:
        return chance.p_value < (0.05 if self.positive is None else 0.025)

    def _direction(self) -> str:
        high, low, neither, said, happened = _CONFIDENCE if self.event in ("top", "given") else _PROBABILITY
        kind = {"over": high, "under": low, "neither": neither}[self.direction]
        lowest, highest = 100 * self.gap_low, 100 * self.gap_high
        return (
            f"{kind}: the {said} is {self.confidence:.1%} and the {happened} {self.accuracy:.1%}, a gap of "
            f"{100 * self.gap:+.1f} points ({self.level:.0%} interval {lowest:+.1f} to {highest:+.1f})."
        )

    def _advice(self) -> str:
        if not self.beyond_chance:
            return "Leave the model as it is, or measure again on more examples."
        if self.event in ("positive", "pooled") or (self.positive is not None and not self._certain(self.chance)):
            return (
                "Fit Platt scaling on held-out predictions; it moves the probability of the event in either direction "
                "and can change the predicted class."
            )
        if self.direction == "over":
            return (
                "Fit a temperature above 1 on held-out predictions; it lowers every confidence and changes no "
                "predicted class."
            )
        if self.direction == "under":
            return (
                "Fit a temperature below 1 on held-out predictions; it raises every confidence and changes no "
                "predicted class."
            )
        return "Some bins are overconfident and others underconfident: fit a calibrator with more than one parameter."


def _noise(name: str, chance: ChanceECE, n: int, certain: bool) -> str:
    smallest = 1 / (1 + chance.resamples)
    value = f"p < {2 * smallest:.3f}" if chance.p_value <= smallest else f"p = {chance.p_value:.3f}"
    would = f"a calibrated model would show {chance.mean:.4f} at n = {n:,}, seldom above {chance.upper:.4f}"
    verb = "is more than noise" if certain else "cannot be distinguished from noise"
    return f"The {name} of {chance.observed:.4f} {verb}: {would} ({value})."


def verdict(p: Predictions, bins: int = 15, level: float = 0.95, seed: int = 0) -> Verdict:
    """Judge predictions by the gap of confidence and accuracy, and by `surefoot.metrics.chance_ece`.

    Predictions of two classes are judged by P(positive) too: the top-label ECE folds both classes onto the winner, and
    errors of opposite sign cancel there.

    Args:
        p: the predictions.
        bins: number of bins of the ECE.
        level: coverage of the interval, between 0 and 1.
        seed: seed of the draws behind ``chance``.

    Returns:
        The verdict, on the usual events of the predictions.

    Example:
        >>> p = Predictions([[2.0, 0.0], [0.0, 1.0]] * 50, [0, 0] * 50)
        >>> judged = verdict(p)
        >>> judged.direction, round(judged.gap, 4), judged.beyond_chance
        ('over', 0.3059, True)
    """
    e = p.events()
    low, high = gap_interval(e, level)
    right = float(e.weights @ e.happened) / e.total
    claimed = float(e.weights @ e.prob) / e.total
    two = p.form == "classes" and p.positive is not None
    positive = chance_ece(p, bins, seed=seed, event="positive") if two else None
    chance = chance_ece(e, bins, seed=seed)
    return Verdict(claimed, right, claimed - right, low, high, chance, len(e), level, e.name, positive)
