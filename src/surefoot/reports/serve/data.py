"""The report's page and data, as the server gives them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from surefoot.reports.page import PayloadCache, build, embedded, policy
from surefoot.reports.places import Place
from surefoot.reports.serve.watch import Stamp

__all__ = ["RunData", "served_policy", "shell"]


class RunData:
    """The page's data as JSON; runs that lie outside the folder, behind a link, are left out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._shelf = PayloadCache(self._folder, self._inside, processes=1)  # nothing that Ctrl-C would wait for
        self._known: dict[str, Stamp] = {}

    def __call__(self, known: dict[str, Stamp]) -> bytes:
        """The data of the folders that the watch has seen, which follows no links."""
        self._known = known
        return embedded(self._shelf.payload()).encode()

    def _inside(self, place: Place) -> bool:
        if os.path.lexists(place.folder):
            return self._name(place.folder) in self._known
        return self._name(place.folder.parent.parent) in self._known  # planned: its study tells of it

    def _name(self, folder: Path) -> str:
        return folder.relative_to(self._folder).as_posix()


def shell(folder: Path) -> tuple[bytes, bytes]:
    """The live page before and after its data."""
    stand_in = {"title": folder.resolve().name, "data": hashlib.sha256(b"stand-in").hexdigest()}
    before, _, after = build(folder, live=True, data=stand_in).encode().partition(embedded(stand_in).encode())
    return before, after


def served_policy() -> str:
    """The page's policy; that it stands in no frame can only be said in a header."""
    return f"{policy(live=True)}; frame-ancestors 'none'"
