"""``surefoot train SPEC.toml``: one run; the same command again resumes the run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from surefoot.training.run import Result

__all__ = ["show", "train"]

_SHOWN = ("train.accuracy", "test.accuracy", "train.ece", "test.ece", "test.nll", "sharpness", "train.log_q")


def train(
    spec: Annotated[Path, typer.Argument(help="The run's .toml file.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Change the spec: optimizer.lr=0.1; may be repeated.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of runs; the run's own folder is named by its spec.")] = Path(
        "runs"
    ),
    data: Annotated[Path | None, typer.Option(envvar="SUREFOOT_DATA", help="Folder of data sets.")] = None,
    allow_version_mismatch: Annotated[
        bool, typer.Option("--allow-version-mismatch", help="Resume under another torch or numpy; bits may differ.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Train a classifier and track calibration, margins and curvature; run again to resume.

    Several processes share a run under torchrun: ``torchrun --nproc-per-node 2 -m surefoot train SPEC.toml``.
    """
    from surefoot.ranks import launched
    from surefoot.runs.records import canonical
    from surefoot.training.run import run
    from surefoot.training.spec import read_spec

    wanted = read_spec(spec, set_)
    with launched() as ranks, _bar(shown=ranks.first) as watch:
        result = run(wanted, out, data, watch, allow_version_mismatch)
    final = {"folder": str(result.folder), "outcome": result.outcome, "step": result.step, "final": result.final}
    if ranks.first and json_:
        typer.echo(canonical(final))
    elif ranks.first:
        show(result)
    codes = {"diverged": 3, "interrupted": 130}
    raise typer.Exit(codes.get(result.outcome, 0))


def show(result: Result) -> None:
    """Print the end of a run in a few lines.

    Args:
        result: the run's result.
    """
    ending = {
        "finished": f"finished after {result.step:,} steps",
        "diverged": f"diverged at step {result.step:,}: its loss is not finite; the last finite reading is below",
        "interrupted": f"interrupted after {result.step:,} steps; the same command resumes the run",
    }[result.outcome]
    typer.echo(f"{result.folder}: {'' if result.fresh else 'had '}{ending}")
    for name in _SHOWN:
        if name in result.final:
            typer.echo(f"  {name:16} {result.final[name]:.4f}")
    if result.final.get("gradients") and result.final.get("step"):
        gradients = result.final["gradients"]
        per_step = gradients / result.final["step"]
        typer.echo(f"  {'cost':16} {gradients:,} gradients of the cross-entropy, {per_step:.3g} a step")


class _bar:  # noqa: N801
    """A progress bar with loss, accuracy, ECE, sharpness and the time left."""

    def __init__(self, shown: bool = True) -> None:
        self._shown = shown

    def __enter__(self) -> Any:
        import sys

        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        self._progress = Progress(
            *columns, console=Console(stderr=True), transient=True, disable=not (self._shown and sys.stderr.isatty())
        )
        self._progress.start()
        self._task = self._progress.add_task("", total=None)
        self._last: dict[str, Any] = {}
        return self._watch

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _watch(self, step: int, steps: int, loss: float, reading: dict[str, Any] | None) -> None:
        self._last |= reading or {}
        facts = [f"loss {loss:.4f}"]
        for label, name in (("accuracy", "test.accuracy"), ("ECE", "test.ece"), ("sharpness", "sharpness")):
            if name in self._last:
                facts.append(f"{label} {self._last[name]:.4g}")
        self._progress.update(self._task, completed=step, total=steps, description="  ".join(facts))
