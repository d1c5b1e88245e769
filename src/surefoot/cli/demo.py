"""``surefoot demo``: fit a classifier to the embedded digits and evaluate it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["demo"]


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the predictions and the figure.")] = Path("demo"),
) -> None:
    """Fit a small classifier to scikit-learn's digits, watch it become too sure, and evaluate it."""
    import time

    from surefoot.cli.evaluate import show
    from surefoot.data.digits import digits_predictions

    out.mkdir(parents=True, exist_ok=True)
    typer.echo("Fitting an unregularised classifier to 300 handwritten digits, 5 % of them mislabelled ...")
    start = time.perf_counter()
    p = digits_predictions()
    typer.echo(f"done in {time.perf_counter() - start:.1f} s; its predictions for the other {len(p):,} digits:\n")
    p.save(out / "digits.npz")
    show(p, name="digits.npz", figure=out / "reliability.png")
    typer.echo(f"\nTry it yourself: surefoot evaluate {out / 'digits.npz'} --figure {out / 'reliability.html'}")
