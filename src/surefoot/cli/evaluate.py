"""``surefoot evaluate FILE``: how calibrated, how sure are we of that number, what to do."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surefoot.cli.terminal import check_figure, progress_bar, terminal

if TYPE_CHECKING:
    from surefoot.predictions import Predictions

__all__ = ["evaluate"]


def evaluate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Predictions: .npz, .csv or .parquet.")],
    bins: Annotated[int, typer.Option(min=1, help="Number of bins.")] = 15,
    split: Annotated[str | None, typer.Option(help="Which set of an .npz with several: test for test_logits.")] = None,
    probs: Annotated[bool, typer.Option("--probs", help="The class columns hold probabilities, not logits.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Also the metrics that take longer.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")] = False,
    figure: Annotated[Path | None, typer.Option(metavar="OUT.svg|png|pdf|html", help="Draw the diagram.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resampling behind the intervals.")] = 0,
) -> None:
    """Metrics with 95 % intervals, a reliability diagram, and what they mean in plain words."""
    from surefoot.predictions import Predictions
    from surefoot.text import plain

    if figure is not None:
        check_figure(figure)
    p = Predictions.load(file, split=split, kind="probs" if probs else None)
    show(p, name=plain(file.name), bins=bins, every=every, as_json=as_json, figure=figure, seed=seed)


def show(
    p: Predictions,
    name: str,
    bins: int = 15,
    every: bool = False,
    as_json: bool = False,
    figure: Path | None = None,
    seed: int = 0,
) -> None:
    """Print the evaluation of ``p``, as a person or a machine reads it, and draw the figure if asked."""
    from surefoot.metrics.interval import intervals
    from surefoot.metrics.registry import METRICS
    from surefoot.metrics.reliability import reliability
    from surefoot.metrics.skce import skce
    from surefoot.metrics.summary import metrics_table, summary
    from surefoot.reports.verdict import verdict
    from surefoot.text import plain

    table = metrics_table(bins)
    values = summary(p, bins)
    if every:
        # skce: all pairs of rows while that takes seconds; a single row has none.
        table["skce"] = partial(skce, estimator="biased" if len(p) < 2 else "unbiased" if len(p) <= 20_000 else "block")
        values |= {metric: table[metric](p) for metric in table if metric not in values}
    # The costly ones are left without: hundreds of resamples would take hours where one value takes a minute.
    cheap = {metric: table[metric] for metric in values if not METRICS[metric].costly}
    with progress_bar("resampling") as report:
        ranges = intervals(cheap, p, seed=seed, known=values, progress=report)
    diagram = reliability(p, bins)
    judged = verdict(p, bins, seed=seed)
    if figure is not None:
        from surefoot.reports.figure import save_figure

        save_figure([(name, diagram)], figure)
    if as_json:
        typer.echo(_json(p, name, values, ranges, diagram, judged))
    else:
        _print(p, name, values, ranges, diagram, judged)
        if figure is not None:
            typer.echo(f"figure: {plain(str(figure))}")


def _json(p: Predictions, name: str, values: Any, ranges: Any, diagram: Any, judged: Any) -> str:
    import dataclasses
    import json

    from surefoot.reports.encode import plain_json

    metrics = {}
    for metric, value in values.items():
        low, high = ranges.get(metric, (None, None))
        method = ranges[metric].method if metric in ranges else None
        metrics[metric] = {"value": float(value), "low": low, "high": high, "interval": method, **value.facts}
    found = {
        "file": name,
        "n": len(p),
        "classes": p.classes,
        "level": diagram.level,
        "metrics": metrics,
        "reliability": {**vars(diagram.table), "interval": diagram.interval, "band": diagram.band},
        "verdict": {**dataclasses.asdict(judged), "direction": judged.direction, "sentences": judged.sentences},
    }
    return json.dumps(plain_json(found), allow_nan=False, indent=1)


def _print(p: Predictions, name: str, values: Any, ranges: Any, diagram: Any, judged: Any) -> None:
    from rich.table import Table
    from rich.text import Text

    from surefoot.reports.diagram import terminal_diagram
    from surefoot.text import number, plain

    console = terminal()
    console.print(Text(f"{plain(name)}: {len(p):,} predictions of {p.classes} classes", style="bold"))
    console.print()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("metric", "value", f"{diagram.level:.0%} interval", "measured with"):
        table.add_column(heading, justify="right" if heading == "value" else "left")
    for metric, value in values.items():
        span = " – ".join(number(end) for end in ranges.get(metric, ()))
        note = "nothing to rank: chance" if value.facts.get("pairs") == 0 else _facts(value.facts)
        table.add_row(metric, number(value), span, Text(note, style="dim"))
    console.print(table)
    console.print()
    console.print(terminal_diagram(diagram), soft_wrap=True)
    for sentence in judged.sentences:
        console.print(sentence)
    if judged.accuracy in (0.0, 1.0):
        kind = "right" if judged.accuracy else "wrong"
        console.print(
            f"Every row is {kind}: resampling cannot show what it has not seen, so intervals without a width prove "
            f"nothing; up to {min(1.0, 3 / len(p)):.1%} of all cases could be otherwise (rule of three)."
        )


def _facts(facts: dict[str, Any]) -> str:
    """What a value depends on, short enough for a table; n stands in the heading."""
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
