"""``surefoot shift RUN|CHECKPOINT``: accuracy and calibration under corruption, and out-of-distribution detection."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surefoot.cli.terminal import check_folder, progress_bar

if TYPE_CHECKING:
    from surefoot.shift.measure import Subject
    from surefoot.training.loaded import LoadedRun

__all__ = ["shift"]


def shift(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of runs on one data set, or .safetensors files."),
    ],
    corruptions: Annotated[str, typer.Option(help="all (15), extra (4), none, or names with commas between.")] = "all",
    severities: Annotated[str, typer.Option(help="From 1 to 5, with commas between.")] = "1,2,3,4,5",
    ood: Annotated[
        list[str] | None, typer.Option(help="Out-of-distribution data: a set or arrays:NAME; may be repeated.")
    ] = None,
    calibrate: Annotated[
        str, typer.Option(help="Calibrators to fit on clean validation data, with commas between; or none.")
    ] = "temperature",
    ensemble: Annotated[bool, typer.Option("--ensemble", help="Also the mean of all runs, as an ensemble.")] = False,
    official: Annotated[bool, typer.Option("--official", help="The official arrays in the data folder.")] = False,
    rows: Annotated[
        int | None, typer.Option(help="Use only this number of test images, from the first.", min=20)
    ] = None,
    resamples: Annotated[int, typer.Option(help="Resamples of the intervals of ECE; 0 for no intervals.", min=0)] = 100,
    figure: Annotated[
        Path | None,
        typer.Option(
            help="Draw ECE against severity, or after each calibrator if only clean data is read: .png, .svg or .pdf."
        ),
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="The best weights of the runs, not the last.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the corruptions.")] = 0,
    data: Annotated[Path | None, typer.Option(envvar="SUREFOOT_DATA", help="Folder of data sets.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Evaluate runs on corrupted and out-of-distribution images, with calibrators fitted on clean data."""
    from surefoot.posthoc.registry import build_calibrator
    from surefoot.shift.corruptions import NAME, kinds_named, try_kinds
    from surefoot.shift.measure import ood_rows, shifted_rows
    from surefoot.shift.ood import ood_by_name
    from surefoot.shift.sources import generated, published
    from surefoot.shift.view import View
    from surefoot.training.loaded import open_run

    kinds, levels = kinds_named(corruptions), _levels(severities)
    if figure is not None:
        from surefoot.reports.shift import figure_format

        figure_format(figure)
        check_folder("--figure", figure)
    for name in [] if calibrate == "none" else calibrate.split(","):
        build_calibrator(name.strip())  # a wrong name raises before the long work
    opened = {name: open_run(run, data, best) for name, run in _named(runs).items()}
    first = _same_data(list(opened.values()))
    view = View(first.data)
    out_of_distribution = ood_by_name(ood or [], data, view.shape)
    test = first.data.test.part(slice(rows))
    pictures, labels = view.pictures(test), test.labels.numpy()
    source = published(first.spec.data.name, data, labels) if official else generated(pictures, labels, seed)
    if not official:
        try_kinds(pictures, kinds)
    subjects = _subjects(opened, calibrate, ensemble, view.white)
    with progress_bar("reading") as tick:
        results = shifted_rows(subjects, (pictures, labels), source, kinds, levels, resamples, tick)
        detection = ood_rows(subjects, (pictures, labels), out_of_distribution)
    if figure is not None and kinds:
        from surefoot.reports.shift import save_shift

        save_shift(results, figure)
    elif figure is not None:
        from surefoot.reports.figures.recalibration import save_recalibration, settings_named

        save_recalibration(results, settings_named({name: run.folder for name, run in opened.items()}), figure)
    name = "official" if official else NAME
    if json_:
        from surefoot.runs.records import canonical
        from surefoot.shift.measure import means

        mean = [*means(results, "subject", "method", "kind"), *means(results, "subject", "method")]
        facts = {"data": first.spec.data.name, "corruptions": name, "seed": None if official else seed, "bins": 15}
        typer.echo(canonical({**facts, "rows": results, "means": mean, "ood": detection}))
    else:
        _show(results, detection, name, first)


def _named(runs: list[Path]) -> dict[str, Path]:
    """Name the runs briefly; by their complete paths if the brief names are the same."""
    from surefoot.errors import BadInput
    from surefoot.shift.measure import TOGETHER

    names = [_name(run) for run in runs]
    if len({*names, TOGETHER}) <= len(names):
        names = [str(run.resolve()) for run in runs]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise BadInput(f"every run must be given once; {str(runs[place])!r} is there twice")
    return dict(zip(names, runs, strict=True))


def _name(run: Path) -> str:
    return f"{run.parent.name}/{run.stem}" if run.suffix == ".safetensors" else run.resolve().name


def _levels(text: str) -> list[int]:
    from surefoot.errors import BadInput
    from surefoot.validation import check_int

    try:
        levels = [int(word) for word in text.split(",")]
    except ValueError as error:
        raise BadInput(f"--severities must be integers from 1 to 5 with commas between; got {text!r}") from error
    return sorted({check_int("severity", level, 1, 5) for level in levels})


def _same_data(opened: list[LoadedRun]) -> LoadedRun:
    from surefoot.errors import BadInput

    first = opened[0]
    for other in opened[1:]:
        if other.spec.data.name != first.spec.data.name or len(other.data.test) != len(first.data.test):
            raise BadInput(
                f"runs must have the same test set; {first.folder.name} has {first.spec.data.name} "
                f"({len(first.data.test):,}), {other.folder.name} {other.spec.data.name} "
                f"({len(other.data.test):,})"
            )
    return first


def _subjects(opened: dict[str, LoadedRun], calibrate: str, ensemble: bool, white: float) -> list[Subject]:
    from surefoot.ensembles.mean import mean_predictions
    from surefoot.errors import BadInput
    from surefoot.forward import CHUNK
    from surefoot.posthoc.registry import build_calibrator
    from surefoot.predictions import Predictions
    from surefoot.shift.measure import TOGETHER, Subject
    from surefoot.shift.view import View

    if ensemble and len(opened) < 2:
        raise BadInput("--ensemble needs two runs at least")
    names = [] if calibrate == "none" else [word.strip() for word in calibrate.split(",")]

    def fitted(p: Predictions | None) -> dict[str, Any]:
        return {} if p is None else {name: build_calibrator(name).fit(p) for name in names}

    def predictor(run: LoadedRun) -> Any:
        view = View(run.data, white)
        return lambda pictures, labels: Predictions.of(run.model, view.dataset(pictures, labels), batch_size=CHUNK)

    predictors = {name: predictor(run) for name, run in opened.items()}
    vals = {name: run.data.val for name, run in opened.items()}
    held_out = {
        n: None if val is None else Predictions.of(opened[n].model, val, batch_size=CHUNK) for n, val in vals.items()
    }
    subjects = [Subject(name, ask, fitted(held_out[name])) for name, ask in predictors.items()]
    if ensemble:
        known = [p for p in held_out.values() if p is not None]
        # Validation rows differ if runs drew them separately; one run's validation rows may be another's training rows.
        parts = {(one.spec.data.order, len(one.data.train), one.spec.data.val) for one in opened.values()}
        shared = len(known) == len(held_out) and len(parts) == 1 and parts.pop()[0] == "first"
        p = mean_predictions(known) if shared else None
        ask_all = list(predictors.values())
        subjects.append(Subject(TOGETHER, lambda x, y: mean_predictions([ask(x, y) for ask in ask_all]), fitted(p)))
    return subjects


def _show(results: list[dict[str, Any]], detection: list[dict[str, Any]], name: str, first: LoadedRun) -> None:
    from surefoot.shift.measure import means

    n = results[0]["n"]
    typer.echo(f"{first.spec.data.name}, {n:,} test images; corruptions: {name}; ECE with 15 bins of equal width.")
    if first.data.val is None:
        typer.echo("No calibrators: the run has no validation examples (data.val).")
    for subject in dict.fromkeys(row["subject"] for row in results):
        own = [row for row in results if row["subject"] == subject]
        levels = sorted({row["severity"] for row in own} - {0})
        typer.echo(f"\n{subject}")
        typer.echo(f"{'':20}{'accuracy':>9}{'NLL':>8}{'ECE':>8}  " + "".join(f"{f'ECE {s}':>8}" for s in levels))
        for method in dict.fromkeys(row["method"] for row in own):
            rows = [row for row in own if row["method"] == method]
            if method != "none":
                typer.echo(f"  after {method}, fitted on clean validation data")
            _line("clean", rows[0], [])
            for mean in means(rows, "kind"):
                _line(mean["kind"], mean, [row["ece"] for row in rows if row["kind"] == mean["kind"]])
            for mean in means(rows, "method"):
                by_level = [[row["ece"] for row in rows if row["severity"] == level] for level in levels]
                _line("mean", mean, [sum(eces) / len(eces) for eces in by_level])
        aurocs = [mean["auroc"] for mean in means(own, "subject") if mean["auroc"] is not None]
        for auroc in aurocs:
            typer.echo(f"  AUROC of clean against corrupted, by the largest probability: {auroc:.4f}")
        for row in [row for row in detection if row["subject"] == subject]:
            typer.echo(f"  {row['set']} by {row['score']}: AUROC {row['auroc']:.4f}, FPR95 {row['fpr95']:.4f}")


def _line(label: str, row: dict[str, Any], levels: list[float]) -> None:
    cells = "".join(f"{value:>8.4f}" for value in levels)
    typer.echo(f"  {label:18}{row['accuracy']:>9.4f}{row['nll']:>8.3f}{row['ece']:>8.4f}  {cells}".rstrip())
