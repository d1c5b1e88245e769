"""Names and looks of lines in figures: letters, rates, numbers of seeds; colours for colour-blind readers, dashes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from surefoot.errors import BadInput
from surefoot.losses.registry import LOSSES
from surefoot.optim.registry import OPTIMIZERS
from surefoot.reports.runs import RunFacts
from surefoot.training.spec import number_of

__all__ = [
    "PALETTE",
    "Look",
    "letter",
    "looks",
    "mean_text",
    "rate_text",
    "run_text",
    "seeds_text",
    "setting_looks",
    "setting_text",
    "setting_words",
    "value_of",
]

# Okabe and Ito (2008), "Color universal design"; dark grey for black, which a dark page swallows, and no yellow, which
# a light one does.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6B6B6B")
_DASHES = ("solid", "dash", "dashdot", "longdash")

Look = tuple[str, str]

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


def looks(lines: Sequence[tuple[str, float]]) -> list[Look]:
    """Choose colour and dash of every line.

    Methods take the palette in order of appearance, then the palette again with another dash. The smallest rate of a
    method is the lightest, the largest the darkest. A single rate has the palette's own colour. A method with a colour
    in the registry has that colour.

    Args:
        lines: method and learning rate of every line; NaN for an unknown rate.

    Returns:
        Colour as ``#rrggbb`` and name of the dash, for every line.

    Example:
        >>> looks([("SGD", 0.1), ("SAM", 0.1)])
        [('#0072b2', 'solid'), ('#d55e00', 'solid')]
    """
    methods = list(dict.fromkeys(method for method, _ in lines))
    rates = {name: sorted({r for m, r in lines if m == name and math.isfinite(r)}) for name in methods}
    line_looks = []
    for method, rate in lines:
        place = methods.index(method)
        known = rates[method]
        shade = 0.0
        if len(known) > 1 and rate in known:
            shade = 2 * known.index(rate) / (len(known) - 1) - 1  # −1 lightest, 1 darkest
        dash = _DASHES[place // len(PALETTE) % len(_DASHES)]
        line_looks.append((_shaded(_own(method) or PALETTE[place % len(PALETTE)], shade), dash))
    return line_looks


def _own(method: str) -> str | None:
    """The colour of a method in the registry; a figure may write the method in capitals."""
    entry = OPTIMIZERS.get(method.lower()) or LOSSES.get(method.lower())
    return None if entry is None else entry.colour


def setting_looks(settings: Sequence[Sequence[str]]) -> list[Look]:
    """Choose colour and dash of every setting by its words: the first word gives the colour, the other words the dash.

    If the first words are all different, every dash is solid. If colours and dashes are too few, every setting takes
    the next look.

    Args:
        settings: words of every setting, at least one each.

    Returns:
        Colour as ``#rrggbb`` and name of the dash, for every setting.

    Example:
        >>> setting_looks([("SGD", "dropout"), ("SAM", "dropout"), ("SGD", "ensemble")])
        [('#0072B2', 'solid'), ('#D55E00', 'solid'), ('#0072B2', 'dash')]
    """
    firsts = list(dict.fromkeys(words[0] for words in settings))
    others = list(dict.fromkeys(tuple(words[1:]) for words in settings))
    distinct = len(firsts) == len(settings)
    places = [(firsts.index(words[0]), 0 if distinct else others.index(tuple(words[1:]))) for words in settings]
    if len(set(places)) == len(places) and all(c < len(PALETTE) and d < len(_DASHES) for c, d in places):
        return [(PALETTE[colour], _DASHES[dash]) for colour, dash in places]
    return looks([(str(place), math.nan) for place in range(len(settings))])


def _shaded(colour: str, shade: float) -> str:
    """Mix the colour with white (shade below 0, up to half) or with black (shade above 0, up to a third)."""
    parts = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    if shade < 0:
        parts = [round(part + (255 - part) * 0.5 * -shade) for part in parts]
    else:
        parts = [round(part * (1 - 0.35 * shade)) for part in parts]
    return "#" + "".join(f"{part:02x}" for part in parts)
