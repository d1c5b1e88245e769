"""``surefoot calibrate VAL TEST``: fit a calibrator, show its effect, write calibrated predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surefoot.cli import columns
from surefoot.cli.terminal import check_figure, check_folder, progress_bar, terminal

if TYPE_CHECKING:
    from rich.table import Table

    from surefoot.posthoc import ByGroup, Calibrator, Comparison, PriorShift
    from surefoot.predictions import Predictions

__all__ = ["calibrate"]

_SHOWN = 20  # groups in the terminal


def calibrate(
    val: Annotated[
        Path,
        typer.Argument(metavar="VAL", help="Held-out predictions to fit on, or a .json file of --calibrator."),
    ],
    test: Annotated[
        Path, typer.Argument(metavar="TEST", help="Predictions to calibrate, and to measure the effect on.")
    ],
    method: Annotated[str | None, typer.Option(help="auto, or the name of a calibrator.", show_default="auto")] = None,
    metric: Annotated[str | None, typer.Option(help="Metric that auto improves.", show_default="nll")] = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="COLUMN", help="An offset for each group, shrunk; method temperature or platt."),
    ] = None,
    to_prior: Annotated[
        str | None,
        typer.Option(
            "--to-prior", metavar="SHARES|em|bbse", help="Class shares to expect: cat=.2,dog=.8, or estimated."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="OUT.csv|npz|parquet", help="Write calibrated TEST.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(metavar="OUT.html|svg|png|pdf", help="Draw before and after side by side.")
    ] = None,
    saved: Annotated[
        Path | None, typer.Option("--calibrator", metavar="OUT.json", help="Write the fitted calibrator.")
    ] = None,
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
    val_split: Annotated[str | None, typer.Option(help="Which set of an .npz with several: val.")] = None,
    test_split: Annotated[str | None, typer.Option(help="Which set of an .npz with several: test.")] = None,
    probs: columns.Probs = False,
    logits: columns.Logits = False,
    val_used_for_selection: Annotated[
        bool, typer.Option("--val-used-for-selection", help="VAL also chose the model's stopping point or settings.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout, nothing else.")] = False,
    bins: Annotated[int, typer.Option(min=1, help="Bins of the diagrams.")] = 15,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the folds and of the resampling.")] = 0,
) -> None:
    """Choose the best calibrator on VAL, measure its effect on TEST, and write calibrated predictions."""
    from surefoot.errors import BadInput
    from surefoot.metrics.reliability import reliability
    from surefoot.posthoc import Auto, ByGroup, PriorShift, build_calibrator, check_splits, compare, load
    from surefoot.posthoc.auto import check_metric
    from surefoot.posthoc.calibrator import check_names
    from surefoot.posthoc.groups import check_base
    from surefoot.posthoc.prior import parse_prior
    from surefoot.predictions import Predictions
    from surefoot.reports.recalibration import choice_sentence, fit_warnings, markup, outcome_sentences
    from surefoot.text import plain

    if figure is not None:
        check_figure(figure)
    for option, path in (("--out", out), ("--calibrator", saved)):
        if path is not None:
            check_folder(option, path)
    if out is not None and out.suffix.lower() not in (".npz", ".csv", ".parquet"):
        raise BadInput(f"--out must end in .npz, .csv or .parquet; got {out.name!r}")
    if saved is not None and saved.suffix.lower() != ".json":
        raise BadInput(f"--calibrator must end in .json; got {saved.name!r}")
    for option, path in (("--out", out), ("--calibrator", saved), ("--figure", figure)):
        _check_not_an_input(option, path, (val, test))
    learned = val.suffix.lower() == ".json"
    if learned:
        fits = {
            "--method": method,
            "--metric": metric,
            "--val-split": val_split,
            "--val-used-for-selection": val_used_for_selection,
            "--by": by,
            "--to-prior": to_prior,
        }
        _check_nothing_to_fit(val, [option for option, given in fits.items() if given])
    if by is not None and to_prior is not None:
        raise BadInput(
            "--by and --to-prior do not go together; calibrate by group first, then its output to the shares"
        )
    asked, method, metric = method, "auto" if method is None else method, "nll" if metric is None else metric
    check_metric(metric)
    prior = None if to_prior is None else parse_prior(to_prior)
    chosen: Calibrator = Auto(metric, seed=seed) if method == "auto" else build_calibrator(method)
    wanted = columns.arguments(label, prob, logit, confidence, correct, weight, cluster, positive, names, ignore_index)
    wanted["kind"] = columns.kind(probs, logits)
    wanted["by"] = () if by is None else (by,)
    before = Predictions.load(test, split=test_split, **wanted)
    if by is not None:
        chosen = ByGroup(check_base(asked or ("platt" if before.classes == 2 else "temperature")), by, seed=seed)
    calibrator: Calibrator
    shift: PriorShift | None = None
    warnings: list[str] = []
    if learned:
        calibrator = load(val)
    else:
        held_out = Predictions.load(val, split=val_split, **wanted)
        if held_out.classes != before.classes:
            raise BadInput(f"VAL has {held_out.classes} classes and TEST {before.classes}; both must be of one model")
        check_names(held_out.names, before.names, "VAL", "TEST")
        warnings = check_splits(held_out, before, val_used_for_selection)
        with progress_bar("choosing a calibrator" if method == "auto" else "fitting"):
            calibrator = chosen.fit(held_out)
        warnings += fit_warnings(calibrator)
        shift = None if prior is None else PriorShift(prior, seed).fit(calibrator.apply(held_out))
    after = calibrator.apply(before)
    if shift is not None:
        shares = _shares(shift, after)
        after = shift.apply(after)
    with progress_bar("comparing") as report:
        comparison = compare(before, after, seed=seed, progress=report)
    about = calibrator.sentences if isinstance(calibrator, ByGroup) else [choice_sentence(calibrator)]
    if shift is not None:
        about.append(_prior_sentence(shares))
    sentences = [*about, *outcome_sentences(comparison), *(f"Beware: {w}" for w in warnings)]
    if out is not None:
        # Probabilities stay probabilities, whatever the calibrator computes with.
        (after.with_scores(after.probs, "probs") if before.scores == "probs" else after).save(out)
    if saved is not None:
        calibrator.save(saved)
    if figure is not None:
        from surefoot.reports.figure import save_figure

        panels = [(f"{plain(test.name)}: before", reliability(before, bins)), ("after", reliability(after, bins))]
        save_figure(panels, figure, markup(comparison, sentences))
    if as_json:
        more = {} if shift is None else {"prior": shares}
        typer.echo(_json(calibrator, comparison, warnings, more))
        return
    _print(before, plain(test.name), calibrator, comparison, sentences)
    for what, path in (("calibrated predictions", out), ("calibrator", saved), ("figure", figure)):
        if path is not None:
            typer.echo(f"{what}: {plain(str(path))}")


def _check_not_an_input(option: str, path: Path | None, inputs: tuple[Path, ...]) -> None:
    """Refuse to overwrite an input file."""
    from surefoot.errors import BadInput

    for given in inputs:
        if path is not None and path.exists() and given.exists() and path.samefile(given):
            raise BadInput(f"{option} must not be an input file; got {str(path)!r}. Give it another name")


def _check_nothing_to_fit(val: Path, options: list[str]) -> None:
    """Refuse options of a fit if a fitted calibrator is given."""
    from surefoot.errors import BadInput

    if options:
        raise BadInput(
            f"{options[0]} is for fitting on predictions, but {val.name!r} is a fitted calibrator; leave "
            f"{options[0]} out, or give predictions as VAL"
        )


def _shares(shift: PriorShift, p: Predictions) -> dict[str, Any]:
    """The class shares of VAL and the new ones, by class."""
    names = [str(name) for name in (range(p.classes) if p.names is None else p.names)]
    return {
        "method": shift.prior if isinstance(shift.prior, str) else "given",
        "validation": dict(zip(names, shift.shares_.tolist(), strict=True)),
        "new": dict(zip(names, shift.estimate(p).tolist(), strict=True)),
    }


def _prior_sentence(shares: dict[str, Any]) -> str:
    from surefoot.text import plain

    old, new = shares["validation"], shares["new"]
    moved = sorted(old, key=lambda name: -abs(new[name] - old[name]))
    shown = ", ".join(f"{plain(name)} from {old[name]:.1%} to {new[name]:.1%}" for name in moved[:5])
    more = f" and {len(moved) - 5} more classes" if len(moved) > 5 else ""
    how = "as given" if shares["method"] == "given" else f"as estimated by {shares['method'].upper()} on TEST"
    return (
        f"Class shares move {how}: {shown}{more}. This is right only if each class looks the same as in VAL and only "
        "the shares differ."
    )


def _json(calibrator: Calibrator, comparison: Comparison, warnings: list[str], more: dict[str, Any]) -> str:
    import dataclasses
    import json

    from surefoot.posthoc import Auto, ByGroup
    from surefoot.text import plain_json

    used = calibrator.best_ if isinstance(calibrator, Auto) else calibrator
    learned = {name: getattr(used, name) for name in used.learned if getattr(getattr(used, name), "size", 1) <= 1000}
    values: dict[str, Any] = {
        "method": used.method,
        "settings": used.get_params(),
        "learned": learned,
        "n": comparison.n,
        "level": comparison.level,
        "answers_changed": comparison.answers_changed,
        "impossible": {"before": comparison.impossible_before, "after": comparison.impossible_after},
        "changes": {c.metric: {**vars(c), "verdict": c.verdict} for c in comparison.changes},
        "warnings": warnings,
        **more,
    }
    if isinstance(calibrator, ByGroup):
        values["by"] = calibrator.by
        values["groups"] = [{**vars(gain), "verdict": gain.verdict} for gain in calibrator.gains_]
    if isinstance(calibrator, Auto):
        values["candidates"] = [dataclasses.asdict(c) for c in calibrator.scores_]
        values["nested estimate"] = calibrator.estimate_
    return json.dumps(plain_json(values), allow_nan=False, indent=1)


def _print(
    before: Predictions, name: str, calibrator: Calibrator, comparison: Comparison, sentences: list[str]
) -> None:
    from rich.table import Table
    from rich.text import Text

    from surefoot.posthoc import Auto, ByGroup
    from surefoot.reports.recalibration import shift, span
    from surefoot.text import number, plain

    console = terminal()
    console.print(Text(f"{name}: {len(before):,} predictions of {before.classes} classes", style="bold"))
    console.print()
    if isinstance(calibrator, Auto):
        table = Table(box=None, pad_edge=False, header_style="bold")
        for heading in ("candidate", f"{calibrator.metric} over folds", "gain", ""):
            table.add_column(heading, justify="left" if heading in ("candidate", "") else "right")
        for c in calibrator.scores_:
            chosen = "chosen" if c.name == calibrator.name_ else ""
            if c.left_out is not None:
                table.add_row(c.name, "", "", Text(f"left out: {plain(c.left_out)}", style="dim"))
            else:
                table.add_row(c.name, number(c.score), f"{c.gain:+.4f} ± {c.gain_error:.4f}", chosen)
        console.print(table)
        console.print()
    if isinstance(calibrator, ByGroup) and calibrator.gains_:
        console.print(_group_table(calibrator))
        console.print()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("metric", "before", "after", "change", f"{comparison.level:.0%} interval", ""):
        table.add_column(heading, justify="left" if heading in ("metric", "") else "right")
    for change in comparison.changes:
        row = (number(change.before), number(change.after), shift(change.change), span(change.low, change.high))
        table.add_row(change.metric, *row, change.verdict)
    console.print(table)
    console.print()
    for sentence in sentences:
        console.print(Text(sentence))


def _group_table(calibrator: ByGroup) -> Table:
    """Offset and gain of each group; of many groups, those with the largest gains and losses."""
    from rich.table import Table
    from rich.text import Text

    from surefoot.text import plain

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in (plain(calibrator.by), "n", "offset", "alone", "gain in nats", ""):
        table.add_column(heading, justify="left" if heading in (plain(calibrator.by), "") else "right")
    order = sorted(calibrator.gains_, key=lambda gain: -abs(gain.gain or 0.0))[:_SHOWN]
    for gain in (gain for gain in calibrator.gains_ if gain in order):
        known = gain.gain is not None and gain.gain_error is not None
        table.add_row(
            Text(plain(gain.value)),
            f"{gain.n:,}",
            f"{gain.offset:+.3f}",
            f"{gain.separate:+.3f} ± {gain.error:.3f}",
            f"{gain.gain:+.4f} ± {gain.gain_error:.4f}" if known else "too few rows",
            gain.verdict,
        )
    hidden = len(calibrator.gains_) - len(order)
    if hidden:
        table.add_row(Text(f"… {hidden} more", style="dim"))
    return table
