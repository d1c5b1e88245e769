"""Names in figures: Greek letters of numbers, learning rates as a study writes them, numbers of seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from surefoot.errors import BadInput
from surefoot.reports.runs import RunFacts
from surefoot.training.spec import number_of

__all__ = ["letter", "mean_text", "rate_text", "run_text", "seeds_text", "setting_text", "setting_words", "value_of"]

_LETTERS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "eps": "ε", "epsilon": "ε", "eta": "η", "lr": "η",
    "lambda": "λ", "mu": "μ", "rho": "ρ", "sigma": "σ", "tau": "τ",
}  # fmt: skip


def letter(axis: str) -> str:
    """Give the papers' letter for an axis.

    Args:
        axis: name of the axis.

    Returns:
        The letter; the axis' name if the papers have no letter.

    Example:
        >>> letter("rho"), letter("lr"), letter("width")
        ('ρ', 'η', 'width')
    """
    return _LETTERS.get(axis, axis)


def value_of(text: str) -> float:
    """Parse ``0.05`` and ``2/70`` as numbers.

    Args:
        text: the text.

    Returns:
        The number; NaN if the text is not a number.

    Example:
        >>> value_of("0.05"), value_of("SAM")
        (0.05, nan)
    """
    try:
        return float(number_of(text))
    except (ValueError, BadInput):
        return math.nan


def rate_text(run: RunFacts) -> str:
    """Write a learning rate: ``η = 2/70`` if the run's study writes the rate as 2/70, otherwise three digits.

    Args:
        run: the run.

    Returns:
        The text.
    """
    shown = run.place.axes.get("lr", "")
    if math.isclose(value_of(shown), run.rate):
        return f"η = {shown}"
    return f"η = {run.rate:.3g}" if math.isfinite(run.rate) else "η not known"


def setting_text(axes: Mapping[str, str]) -> str:
    """Write a study's axes without the seed: names first, then numbers with their letters.

    Args:
        axes: value of every axis, as text.

    Returns:
        The text.

    Example:
        >>> setting_text({"method": "SAM", "rho": "0.05", "seed": "1"})
        'SAM, ρ = 0.05'
    """
    chosen = {axis: text for axis, text in axes.items() if axis != "seed"}
    numbers = [f"{letter(axis)} = {text}" for axis, text in chosen.items() if math.isfinite(value_of(text))]
    names = " ".join(text for text in chosen.values() if not math.isfinite(value_of(text)))
    return ", ".join([names, *numbers] if names else numbers)


def setting_words(run: RunFacts, label: str) -> list[str]:
    """List the value of every axis without the seed.

    Args:
        run: the run.
        label: the word for a run without such axes.

    Returns:
        The words.
    """
    return [text for axis, text in run.place.axes.items() if axis != "seed"] or [label]


def run_text(run: RunFacts) -> str:
    """Write method, setting and seed of a run.

    Args:
        run: the run.

    Returns:
        The text.
    """
    setting = setting_text(run.place.axes)
    method = "" if run.place.method and setting else run.method  # a method that is an axis is part of the setting
    seed = "" if run.seed is None else f"seed {run.seed}"
    return ", ".join(text for text in (method, setting, seed) if text)


def seeds_text(counts: Iterable[int]) -> str:
    """Write how many runs the settings have.

    Args:
        counts: number of runs of every setting, at least one setting.

    Returns:
        The text.

    Example:
        >>> seeds_text([3, 3]), seeds_text([2, 3, 3]), seeds_text([1])
        ('3 seeds', '2 to 3 seeds', '1 seed')
    """
    ordered = sorted(counts)
    low, high = ordered[0], ordered[-1]
    return f"{'' if low == high else f'{low} to '}{high} seed{'' if high == 1 else 's'}"


def mean_text(counts: Iterable[int]) -> str:
    """Write over how many runs the mean of a setting is taken; a single run needs no mean.

    Args:
        counts: number of runs of every setting, at least one setting.

    Returns:
        The text.
    """
    seeds = seeds_text(counts)
    return seeds if seeds == "1 seed" else f"mean over {seeds}"
