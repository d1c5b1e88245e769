"""``surefoot evaluate FILE``: metrics with intervals, a reliability diagram, and a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from surefoot.cli import columns
from surefoot.cli.terminal import check_figure, progress_bar, terminal

__all__ = ["evaluate"]


def evaluate(
    file: Annotated[str, typer.Argument(metavar="FILE", help=columns.FILES)],
    label: columns.Label = None,
    prob: columns.Prob = None,
    logit: columns.Logit = None,
    confidence: columns.Confidence = None,
    correct: columns.Correct = None,
    weight: columns.Weight = None,
    cluster: columns.Cluster = None,
    positive: columns.Positive = None,
    names: columns.Names = None,
    ignore_index: columns.IgnoreIndex = None,
    split: columns.Split = None,
    probs: columns.Probs = False,
    logits: columns.Logits = False,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", metavar="COLUMN", help="Also each group of a column; give it again for more columns."),
    ] = None,
    min_rows: Annotated[int, typer.Option(min=2, help="With --by: rows of the smallest group that is tested.")] = 30,
    bins: Annotated[int, typer.Option(min=1, help="Number of bins.")] = 15,
    every: Annotated[bool, typer.Option("--all", help="Also the metrics that take longer.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")] = False,
    figure: Annotated[
        Path | None, typer.Option(metavar="OUT.svg|png|pdf|html", help="Draw the diagram; the groups with --by.")
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Read batch by batch: files larger than memory.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resampling behind the intervals.")] = 0,
) -> None:
    """Print metrics with 95 % intervals, a reliability diagram, and what they mean."""
    from surefoot import evaluation
    from surefoot.errors import BadInput
    from surefoot.predictions import Predictions
    from surefoot.text import plain

    if figure is not None:
        check_figure(figure)
    wanted = columns.arguments(label, prob, logit, confidence, correct, weight, cluster, positive, names, ignore_index)
    wanted["kind"] = columns.kind(probs, logits)
    title = plain(Path(file).name)
    if stream:
        if split is not None:
            raise BadInput(f"split={split!r} picks arrays inside an .npz file, which is read as a whole")
        if by:
            raise BadInput(
                "groups of a stream are not tested; leave out --stream, or see docs/STREAMS.md for their states"
            )
        result = evaluation.evaluate_batches(Predictions.batches(file, **wanted), bins, seed=seed, name=title)
    else:
        p = Predictions.load(file, split=split, by=by or (), **wanted)
        with progress_bar("resampling") as report:
            result = evaluation.evaluate(
                p, bins, by=by or None, min_rows=min_rows, costly=every, seed=seed, name=title, progress=report
            )
    if figure is not None and result.grouped is not None:
        from surefoot.reports.groups import save_groups

        save_groups(result.name, result.grouped, figure)
    elif figure is not None:
        from surefoot.reports.figure import save_figure

        save_figure([(result.name, result.reliability)], figure)
    if as_json:
        import json

        typer.echo(json.dumps(result.to_dict(), allow_nan=False, indent=1))
        return
    result.print_to(terminal())
    if figure is not None:
        typer.echo(f"figure: {plain(str(figure))}")
