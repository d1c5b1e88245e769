"""The page as one file: markup, style, the scripts of plotly and of the page, and the data; no network."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from surefoot.files import replace_file
from surefoot.reports.page.payload import payload

__all__ = ["build", "embedded", "policy", "report"]

# In the order of the page; every file is one section or one concern.
_SCRIPTS = (
    "dom", "plots", "state", "overview", "trajectories", "portrait", "machine", "tail", "certificates", "confidence",
    "compared", "shift", "made", "live", "page",
)  # fmt: skip
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def build(folder: Path, live: bool = False, data: dict[str, Any] | None = None) -> str:
    """Make the page of a folder of runs.

    Args:
        folder: a run, a study, or a folder of runs and studies.
        live: whether the page listens to ``events`` at its own address, with the same query string. On every event
            ``changed`` such a page fetches and draws ``data.json``.
        data: result of `payload`; None computes the data.

    Returns:
        The HTML.

    Raises:
        BadInput: if there is no run in the folder.
    """
    shown = payload(folder) if data is None else data
    parts = {
        "TITLE": _text(str(shown["title"])),
        "POLICY": policy(live),
        "STYLE": _asset("page.css"),
        "LIVE": "yes" if live else "no",
        "PLOTLY": _plotly(),
        "SCRIPT": _script(),
        "DATA": embedded(shown),
    }
    # One pass over the template: inserted text is never parsed again.
    pieces = _asset("page.html").split("@@")
    return "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))


def embedded(data: dict[str, Any]) -> str:
    """Write JSON for a script element: no character of the JSON can end the element or start a comment.

    Args:
        data: the data; floats must be finite.

    Returns:
        The JSON.
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter, code in _UNSAFE.items():
        text = text.replace(letter, code)
    return _sound(text)


def policy(live: bool = False) -> str:
    """Write the Content-Security-Policy of the page.

    The policy allows the page's two scripts by their hashes, and pictures inside the page; nothing else.

    Args:
        live: whether the page may connect to its own server.

    Returns:
        The policy.
    """
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in (_plotly(), _script()))
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
    """The script of plotly, from plotly's Python package."""
    return (resources.files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


@cache
def _script() -> str:
    files = "\n".join(_asset(f"script/{name}.js") for name in _SCRIPTS)
    return f'"use strict";\n(() => {{\n{files}\n}})();'


@cache
def _asset(name: str) -> str:
    return (resources.files("surefoot.reports.page") / name).read_text(encoding="utf-8")


def _sound(text: str) -> str:
    """The text without lone surrogates, which JSON and file names may contain and a file cannot."""
    return text.encode(errors="replace").decode()


def _text(text: str) -> str:
    return _sound(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def report(folder: str | Path, out: str | Path) -> Path:
    """Write the page of a run, a study, or a folder of runs and studies.

    Args:
        folder: the folder.
        out: path of the HTML file, which appears complete or not at all.

    Returns:
        The path of the file.

    Raises:
        BadInput: if there is no run in the folder.
    """
    text = build(Path(folder))
    with replace_file(Path(out)) as stream:
        stream.write(text.encode())
    return Path(out)
