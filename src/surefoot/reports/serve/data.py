"""The page and data of a report, as the server sends them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from surefoot.reports.page import PayloadCache, build, embedded, policy
from surefoot.reports.runs import Place
from surefoot.reports.serve.watch import Stamp

__all__ = ["RunData", "served_policy", "shell"]


class RunData:
    """The page's data as JSON; runs outside the folder, behind a link, are left out.

    Args:
        folder: the folder that is served.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._shelf = PayloadCache(self._folder, self._inside, processes=1)  # no processes that Ctrl-C would wait for
        self._known: dict[str, Stamp] = {}

    def __call__(self, known: dict[str, Stamp]) -> bytes:
        """Compute the data of the folders that the watch has seen; the watch follows no links.

        Args:
            known: stamps of the folders, by path.

        Returns:
            The JSON.
        """
        self._known = known
        return embedded(self._shelf.payload()).encode()

    def _inside(self, place: Place) -> bool:
        if os.path.lexists(place.folder):
            return self._name(place.folder) in self._known
        return self._name(place.folder.parent.parent) in self._known  # planned: only the study's folder exists

    def _name(self, folder: Path) -> str:
        return folder.relative_to(self._folder).as_posix()


def shell(folder: Path) -> tuple[bytes, bytes]:
    """Make the live page around its data.

    Args:
        folder: the folder that is served.

    Returns:
        The HTML before and after the data.
    """
    stand_in = {"title": folder.resolve().name, "data": hashlib.sha256(b"stand-in").hexdigest()}
    before, _, after = build(folder, live=True, data=stand_in).encode().partition(embedded(stand_in).encode())
    return before, after


def served_policy() -> str:
    """Write the policy of the live page, which also forbids frames: only a header can forbid frames.

    Returns:
        The policy.
    """
    return f"{policy(live=True)}; frame-ancestors 'none'"
