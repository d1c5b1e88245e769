"""What figures call things: numbers by their Greek letters, learning rates as a study writes them, how many seeds."""

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
    """The letter that the papers have for a study's axis; its own name where they have none.

    >>> letter("rho"), letter("lr"), letter("width")
    ('ρ', 'η', 'width')
    """
    return _LETTERS.get(axis, axis)


def value_of(text: str) -> float:
    """``0.05`` and ``2/70`` as numbers; NaN for a name."""
    try:
        return float(number_of(text))
    except (ValueError, BadInput):
        return math.nan


def rate_text(run: RunFacts) -> str:
    """``η = 2/70`` where the run's study writes its learning rate so, else three digits of it."""
    shown = run.place.axes.get("lr", "")
    if math.isclose(value_of(shown), run.rate):
        return f"η = {shown}"
    return f"η = {run.rate:.3g}" if math.isfinite(run.rate) else "η not known"


def setting_text(axes: Mapping[str, str]) -> str:
    """A study's axes but the seed: names as they are, then numbers with their letters.

    >>> setting_text({"method": "SAM", "rho": "0.05", "seed": "1"})
    'SAM, ρ = 0.05'
    """
    chosen = {axis: text for axis, text in axes.items() if axis != "seed"}
    numbers = [f"{letter(axis)} = {text}" for axis, text in chosen.items() if math.isfinite(value_of(text))]
    names = " ".join(text for text in chosen.values() if not math.isfinite(value_of(text)))
    return ", ".join([names, *numbers] if names else numbers)


def setting_words(run: RunFacts, label: str) -> list[str]:
    """What each axis but the seed is; the setting's label where there are none."""
    return [text for axis, text in run.place.axes.items() if axis != "seed"] or [label]


def run_text(run: RunFacts) -> str:
    """Method, setting and seed of one run."""
    setting = setting_text(run.place.axes)
    method = "" if run.place.method and setting else run.method  # a method that is an axis is part of the setting
    seed = "" if run.seed is None else f"seed {run.seed}"
    return ", ".join(each for each in (method, setting, seed) if each)


def seeds_text(counts: Iterable[int]) -> str:
    """How many runs there are of each setting.

    >>> seeds_text([3, 3]), seeds_text([2, 3, 3]), seeds_text([1])
    ('3 seeds', '2 to 3 seeds', '1 seed')
    """
    found = sorted(counts)
    least, most = found[0], found[-1]
    return f"{'' if least == most else f'{least} to '}{most} seed{'' if most == 1 else 's'}"


def mean_text(counts: Iterable[int]) -> str:
    """Over how many runs of each setting a mean is taken; of one run it is none."""
    seeds = seeds_text(counts)
    return seeds if seeds == "1 seed" else f"mean over {seeds}"
