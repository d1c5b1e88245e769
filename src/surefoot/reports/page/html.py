"""The page as one file: markup, style, plotly's script, our own, and the data; nothing comes from a network."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from surefoot.reports.page.payload import payload

__all__ = ["build", "embedded", "policy"]

# In the order of the page; a file is one section or one concern.
_SCRIPTS = (
    "dom", "plots", "state", "overview", "trajectories", "portrait", "machine", "tail", "certificates", "confidence",
    "compared", "shift", "made", "live", "page",
)  # fmt: skip
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def build(folder: Path, live: bool = False, data: dict[str, Any] | None = None) -> str:
    """The whole page for a folder of runs.

    Args:
        folder: a run, a study, or a folder of runs and studies.
        live: the page then listens to ``events`` beside its own address, with the same query string, and on every
            event ``changed`` fetches ``data.json`` there and draws it.
        data: what `payload` gave, where it is at hand.
    """
    found = payload(folder) if data is None else data
    parts = {
        "TITLE": _text(str(found["title"])),
        "POLICY": policy(live),
        "STYLE": _asset("page.css"),
        "LIVE": "yes" if live else "no",
        "PLOTLY": _plotly(),
        "SCRIPT": _script(),
        "DATA": embedded(found),
    }
    # One pass over the template: what is put in is never looked at again.
    pieces = _asset("page.html").split("@@")
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def embedded(data: dict[str, Any]) -> str:
    """JSON that can stand inside a script element: no letter in it can end the element or begin a comment."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter, code in _UNSAFE.items():
        text = text.replace(letter, code)
    return _sound(text)


def policy(live: bool = False) -> str:
    """The Content-Security-Policy: our two scripts by their hashes, pictures from the page itself, nothing else."""
    hashes = " ".join(f"'sha256-{_hash(each)}'" for each in (_plotly(), _script()))
    connect = "'self'" if live else "'none'"
    # plotly writes style elements and attributes; a style cannot run anything.
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def _plotly() -> str:
    """plotly's script, as its Python package carries it."""
    return (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


@cache
def _script() -> str:
    files = "\n".join(_asset(f"script/{name}.js") for name in _SCRIPTS)
    return f'"use strict";\n(() => {{\n{files}\n}})();'


@cache
def _asset(name: str) -> str:
    return (resources.files("surefoot.reports.page") / name).read_text(encoding="utf-8")


def _sound(text: str) -> str:
    """``text`` without halves of letters, which JSON and file names may hold and no file can."""
    return text.encode(errors="replace").decode()


def _text(text: str) -> str:
    return _sound(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
