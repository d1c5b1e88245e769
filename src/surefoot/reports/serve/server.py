"""The server: a socket on loopback, an address with a token, and an end at the first Ctrl-C."""

from __future__ import annotations

import errno
import secrets
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from surefoot.errors import BadInput
from surefoot.reports.runs import places
from surefoot.reports.serve.app import make_app
from surefoot.reports.serve.data import RunData, served_policy, shell
from surefoot.reports.serve.guard import Guard
from surefoot.reports.serve.refresher import Refresher

__all__ = ["listen", "serve"]

_HOST = "127.0.0.1"
# Connections at once; further connections get the answer 503.
_CONNECTIONS = 64
# Milliseconds after which the kernel ends a connection whose other end reads nothing.
_PATIENCE = 60_000


def serve(folder: Path, port: int, say: Callable[[str], None], note: Callable[[str], None]) -> None:
    """Serve the page of a folder until a signal arrives.

    Args:
        folder: a run, a study, or a folder of runs and studies.
        port: the port; 0 takes a free port.
        say: receives the address.
        note: receives every different error while reading.

    Raises:
        BadInput: if there is no run in the folder, or the port cannot be used.
        KeyboardInterrupt: after Ctrl-C.
    """
    places(folder)  # raises at once if there is no folder or no run
    with listen(port) as listener:
        port, token = listener.getsockname()[1], secrets.token_urlsafe(24)
        refresher = Refresher(folder, RunData(folder), note)
        app = Guard(
            make_app(refresher, shell(folder)), token, [f"{_HOST}:{port}", f"localhost:{port}"], served_policy()
        )
        say(f"http://{_HOST}:{port}/?token={token}")
        server = _Server(app, refresher)
        server.run(sockets=[listener])
    if server.interrupted:  # uvicorn raises the signal again; on a busy machine it was seen to end with 0
        raise KeyboardInterrupt


class _Server(uvicorn.Server):
    """uvicorn without log output; the first signal ends the event streams, which would otherwise never end."""

    def __init__(self, app: ASGIApp, refresher: Refresher) -> None:
        super().__init__(
            uvicorn.Config(
                app, http="h11", ws="none", loop="asyncio", lifespan="on", log_config=None, log_level="error",
                access_log=False, server_header=False, limit_concurrency=_CONNECTIONS, timeout_graceful_shutdown=1,
            )
        )  # fmt: skip
        self._refresher = refresher
        self.interrupted = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop the refresher as well."""
        self.interrupted |= sig == signal.SIGINT
        self._refresher.stop()
        super().handle_exit(sig, frame)


def listen(port: int) -> socket.socket:
    """Open a socket that only this machine can reach.

    Args:
        port: the port; 0 takes a free port.

    Returns:
        The socket.

    Raises:
        BadInput: if the port cannot be used.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was just released is free
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _PATIENCE)
        listener.bind((_HOST, port))
        listener.listen()
    except OSError as error:
        listener.close()
        taken = error.errno == errno.EADDRINUSE
        raise BadInput(
            f"port={port} is {'taken' if taken else f'refused ({error.strerror})'}; "
            "choose another, or leave it out for a free one"
        ) from error
    return listener
