"""Options that say which columns of a table hold labels, scores, weights and clusters."""

from __future__ import annotations

from typing import Annotated, Any

import typer

__all__ = ["arguments", "kind"]

FILES = "Predictions: .npz, .csv, .parquet, .jsonl or .feather; a folder or 'pattern*' of parts; - for standard input."

Label = Annotated[str | None, typer.Option("--label", metavar="COLUMN", help="Column of the labels.")]
Prob = Annotated[
    str | None,
    typer.Option("--prob", metavar="COLUMN", help="Column of P(positive), or prefix of the classes' columns."),
]
Logit = Annotated[str | None, typer.Option("--logit", metavar="COLUMN", help="The same for logits.")]
Confidence = Annotated[str | None, typer.Option("--confidence", metavar="COLUMN", help="Column of a confidence alone.")]
Correct = Annotated[
    str | None, typer.Option("--correct", metavar="COLUMN", help="Column that says whether a prediction was right.")
]
Weight = Annotated[str | None, typer.Option("--weight", metavar="COLUMN", help="Column of weights.")]
Cluster = Annotated[
    str | None, typer.Option("--cluster", metavar="COLUMN", help="Column of clusters: rows that belong together.")
]
Positive = Annotated[str | None, typer.Option("--positive", help="Label of the positive event, for two classes.")]
Names = Annotated[str | None, typer.Option("--names", metavar="A,B,...", help="Names of the classes in column order.")]
IgnoreIndex = Annotated[int | None, typer.Option("--ignore-index", help="Label of rows that are left out: -100.")]
Split = Annotated[str | None, typer.Option("--split", help="Which set of an .npz with several: test for test_logits.")]
Probs = Annotated[bool, typer.Option("--probs", help="The columns beside the label hold probabilities.")]
Logits = Annotated[bool, typer.Option("--logits", help="The columns beside the label hold logits.")]


def kind(probs: bool, logits: bool) -> str | None:
    """The kind of scores that two flags state.

    Args:
        probs: whether ``--probs`` was given.
        logits: whether ``--logits`` was given.

    Returns:
        ``"probs"``, ``"logits"``, or None where the header tells.

    Raises:
        BadInput: when both were given.
    """
    from surefoot.errors import BadInput

    if probs and logits:
        raise BadInput("the columns hold logits or probabilities; give --logits or --probs, not both")
    return "probs" if probs else "logits" if logits else None


def arguments(
    label: str | None,
    prob: str | None,
    logit: str | None,
    confidence: str | None,
    correct: str | None,
    weight: str | None,
    cluster: str | None,
    positive: str | None,
    names: str | None,
    ignore_index: int | None,
) -> dict[str, Any]:
    """The arguments of `surefoot.Predictions.load` that the options state.

    Args:
        label: column of the labels.
        prob: column or prefix of probabilities.
        logit: column or prefix of logits.
        confidence: column of a confidence.
        correct: column of what was right.
        weight: column of weights.
        cluster: column of clusters.
        positive: label of the positive event; a number where it is one.
        names: names of the classes, separated by commas.
        ignore_index: label of rows that are left out.

    Returns:
        Arguments by name.
    """
    number = positive is not None and positive.lstrip("-").isdigit()
    return {
        "label": label,
        "prob": prob,
        "logit": logit,
        "confidence": confidence,
        "correct": correct,
        "weight": weight,
        "cluster": cluster,
        "positive": int(positive) if number and positive is not None else positive,
        "names": None if names is None else [name.strip() for name in names.split(",")],
        "ignore_index": ignore_index,
    }
