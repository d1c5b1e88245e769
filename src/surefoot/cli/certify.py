"""``surefoot certify RUN|CHECKPOINT``: the papers' theorems on a trained network, with published and tighter bounds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from surefoot.theory import Certificates
    from surefoot.training.loaded import LoadedRun

__all__ = ["certify"]


def certify(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or one of its .safetensors files.")],
    split: Annotated[str, typer.Option(help="train or test.")] = "train",
    eps: Annotated[
        float | None, typer.Option(help="Radius for robust margins, in units of the raw data (0 to 1 for bytes).")
    ] = None,
    norm: Annotated[str, typer.Option(help="inf or 2.")] = "inf",
    method: Annotated[
        str, typer.Option(help="certified (a lower bound) or pgd (an attack: an estimate).")
    ] = "certified",
    bound: Annotated[str, typer.Option(help="Which lower bound: cheap, crown, interval or lipschitz.")] = "cheap",
    rho: Annotated[
        float | None,
        typer.Option(help="Also the statements of Tan et al. (2026), for a SAM perturbation of this length."),
    ] = None,
    rows: Annotated[int | None, typer.Option(help="Use only this number of examples, from the first.", min=2)] = None,
    tail: Annotated[int, typer.Option(help="Number of examples to list that carry the margin tail.", min=1)] = 5,
    figure: Annotated[Path | None, typer.Option(help="Draw those examples: .png, .svg or .pdf.")] = None,
    best: Annotated[bool, typer.Option("--best", help="The best weights of the run, not the last.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="Also lemmas, and statements that do not apply.")] = False,
    data: Annotated[Path | None, typer.Option(envvar="SUREFOOT_DATA", help="Folder of data sets.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Check the theorems of both papers on a run: hypotheses, both sides, slack, verdict, and the margin tail."""
    from surefoot.errors import BadInput
    from surefoot.theory import certify as prove
    from surefoot.theory import sam_certificates, sam_step
    from surefoot.training.loaded import open_run

    if split not in ("train", "test"):
        raise BadInput(f"--split must be train or test; got {split!r}")
    opened = open_run(run, data, best)
    inputs, labels = getattr(opened.data, split).take(slice(rows))
    radius = None if eps is None else opened.data.radius(eps)
    loss = "mse" if opened.spec.loss.name.startswith("mse") else "ce"
    certificates = prove(
        opened.model, inputs, labels, radius, norm=norm, method=method, bound=bound, held_out=split == "test", loss=loss
    )
    step = None
    if rho is not None:
        step = sam_step(opened.model, inputs, labels, rho, points=5)
        certificates += sam_certificates(step, gamma=float(opened.spec.optimizer.options.get("gamma", 1.0)))
    heavy = _tail(opened, inputs, labels, tail)
    if figure is not None:
        from surefoot.reports.tail import save_tail

        save_tail(opened.data.raw(inputs), heavy, figure)
    if json_:
        _json(opened, split, certificates, heavy, step)
    else:
        _show(opened, split, certificates, heavy, step, all_)
    if any(certificate.verdict == "violated" for certificate in certificates):
        raise typer.Exit(1)


def _tail(opened: LoadedRun, inputs: Any, labels: Any, count: int) -> list[dict[str, Any]]:
    from surefoot.forward import CHUNK
    from surefoot.margins.moments import tail
    from surefoot.predictions import Predictions

    p = Predictions.of(opened.model, inputs, labels, CHUNK)
    heavy = tail(p.true_margin, count)
    return [
        {
            "row": int(row), "margin": float(margin), "share": float(share), "label": int(labels[int(row)]),
            "predicted": int(p.predicted[row]), "confidence": float(p.confidence[row]), "half": heavy.half,
        }
        for row, margin, share in zip(heavy.rows, heavy.margins, heavy.shares, strict=True)
    ]  # fmt: skip


def _facts(opened: LoadedRun, split: str, certificates: Certificates) -> str:
    coupling = next(certificate for certificate in certificates if certificate.name.startswith("Theorem 4.2"))
    gamma = coupling.hypotheses[-1]
    regime = "interpolating" if gamma.holds else "overlap"
    return f"{opened.folder.name}, step {opened.step:,}, {split} set: {regime} regime ({gamma.text}: {gamma.holds})."


def _show(
    opened: LoadedRun, split: str, certificates: Certificates, heavy: list[dict[str, Any]], step: Any, everything: bool
) -> None:
    typer.echo(_facts(opened, split, certificates) + "\n")
    shown = type(certificates)(
        certificate
        for certificate in certificates
        if everything or not (certificate.name.startswith("Lemma B") or certificate.verdict == "not applicable")
    )
    typer.echo("\n".join(shown.lines()))
    counts = Counter(certificate.verdict for certificate in certificates)
    typer.echo("\n" + ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()) + ".")
    if not everything:
        typer.echo("--all adds lemmas, and statements that do not apply with the reason.")
    if step is not None:
        typer.echo(_ascent(step))
    typer.echo(f"\nWhat carries the tail: half of mean e^(-m) lies on {heavy[0]['half']:,} example(s). The heaviest:")
    for row in heavy:
        typer.echo(
            f"  row {row['row']:>6}: margin {row['margin']:8.3f}, {row['share']:6.1%} of the moment; label "
            f"{row['label']}, predicted {row['predicted']} with confidence {row['confidence']:.3f}"
        )


def _ascent(step: Any) -> str:
    coefficients = step.coefficients
    ends = f"κ_min from {step.path[0].smallest:.4g} to {step.path[-1].smallest:.4g}, allowed {step.allowed:.4g}"
    return (
        f"\nAscent of ρ = {step.rho:g}: {ends}; a line through κ_min has R² = {step.linearity:.3f}; the end alone "
        f"decides: {step.end_decides}.\nλ = {coefficients['lambda']:.4g}, λ₀ = {coefficients['lambda0']:.4g}; "
        f"{step.rising:.1%} of the examples have p̃ > p."
    )


def _json(opened: LoadedRun, split: str, certificates: Certificates, heavy: list[dict[str, Any]], step: Any) -> None:
    from dataclasses import asdict

    from surefoot.runs.records import canonical

    contents: dict[str, Any] = {
        "run": opened.folder.name,
        "step": opened.step,
        "split": split,
        **certificates.to_dict(),
    }
    if step is not None:
        contents["ascent"] = {
            "rho": step.rho, "rising": step.rising, "linearity": step.linearity, "end_decides": step.end_decides,
            "path": [asdict(point) for point in step.path], **step.coefficients,
        }  # fmt: skip
    typer.echo(canonical({**contents, "tail": heavy}))
