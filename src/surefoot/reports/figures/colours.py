"""Colours for colour-blind readers: one per method, lighter and darker for its learning rates; dashes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from surefoot.losses.registry import LOSSES
from surefoot.optim.registry import OPTIMIZERS

__all__ = ["PALETTE", "Look", "looks", "setting_looks"]

# Okabe and Ito (2008), "Color universal design"; dark grey for black, which a dark page swallows, and no yellow, which
# a light one does.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#6B6B6B")
_DASHES = ("solid", "dash", "dashdot", "longdash")

Look = tuple[str, str]


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
