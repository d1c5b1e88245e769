"""The three resources of the server: the page, its data, and events that say when the data change.

No part of a request reaches the file system: a request has no path, no name and no number.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import zlib
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from surefoot.reports.serve.refresher import Refresher, State

__all__ = ["LISTENERS", "make_app"]

# A page before and after its data.
Page = tuple[bytes, bytes]

# Browsers that may listen at once; each browser holds one connection.
LISTENERS = 16
# Bytes of a piece of the data; the next piece is sent when the browser has read this piece.
_PIECE = 1 << 16
# Seconds between comments on the connection, which show whether the browser is still connected.
_SILENCE = 15.0
# Seconds that a request waits for newer data.
_PATIENCE = 10.0
# Shown while the first data are read, which takes a minute for a thousand long runs; the page reloads itself.
_WAIT = """<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="1">
<title>surefoot</title><p>Reading the runs. The page opens by itself.</p></html>
"""


def make_app(refresher: Refresher, page: Page) -> Starlette:
    """Make the application without its guard.

    Args:
        refresher: the source of the data.
        page: the HTML before and after the data.

    Returns:
        The application.
    """
    bell, seats = _Bell(), _Seats()

    async def newest() -> State | None:
        if refresher.ask():
            await bell.heard(_PATIENCE)
        return refresher.state

    async def front(request: Request) -> Response:
        state = await newest()
        if state is None:
            return HTMLResponse(_WAIT, 503)
        return StreamingResponse(_filled(page, state), media_type="text/html")

    async def data(request: Request) -> Response:
        state = await newest()
        return _unready() if state is None else _data(state, request)

    async def events(request: Request) -> Response:
        if seats.taken >= LISTENERS:
            return _unready()
        if request.method == "HEAD":
            return Response(media_type=_Events.media_type)
        return _Events(_news(refresher, bell), seats)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()

        def ring() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended before the refresher
                loop.call_soon_threadsafe(bell.ring)

        refresher.start(ring)
        yield
        refresher.stop()

    routes = [Route("/", front), Route("/data.json", data), Route("/events", events)]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.router.redirect_slashes = False
    return app


class _Bell:
    """Wakes all waiting coroutines; a ring without waiting coroutines has no effect."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()

    async def heard(self, seconds: float) -> None:
        """Wait for the next ring, at most for these seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()


class _Seats:
    """The number of listening browsers."""

    taken = 0


class _Events(StreamingResponse):
    """Events for one browser, which has a seat for the duration of the connection."""

    media_type = "text/event-stream"

    def __init__(self, content: AsyncIterator[bytes], seats: _Seats) -> None:
        super().__init__(content)
        self._seats = seats

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._seats.taken += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._seats.taken -= 1


async def _news(refresher: Refresher, bell: _Bell) -> AsyncIterator[bytes]:
    """``changed`` with the tag of the data and ``progress``, each when new to this browser.

    Events that a slow browser missed are not stored: the browser receives the current state.
    """
    tag = progress = None
    yield b"retry: 2000\n\n"
    while not refresher.stopped:
        refresher.ask()
        state = refresher.state
        if state is not None and state.tag != tag:
            tag = state.tag
            yield _event("changed", json.dumps({"tag": tag}))
        elif state is not None and state.progress != progress:
            progress = state.progress
            yield _event("progress", progress)
        else:
            await bell.heard(_SILENCE)
            yield b": here\n\n"


def _event(name: str, data: str) -> bytes:
    """One event; ``data`` is JSON, which has no line breaks that could end the event."""
    return f"event: {name}\ndata: {data}\n\n".encode()


def _data(state: State, request: Request) -> Response:
    tag = f'"{state.tag}"'
    headers = {"ETag": tag, "Vary": "Accept-Encoding"}
    if tag in re.findall(r'"[^"]*"', request.headers.get("If-None-Match", "")):
        return Response(status_code=304, headers=headers)
    packed = re.search(r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))", request.headers.get("Accept-Encoding", ""))
    if packed:
        headers |= {"Content-Encoding": "gzip", "Content-Length": str(len(state.data))}
    pieces = _pieces(state.data) if packed else _unpacked(state.data)
    return StreamingResponse(pieces, media_type="application/json", headers=headers)


async def _filled(page: Page, state: State) -> AsyncIterator[bytes]:
    """The page with the data in it."""
    yield page[0]
    async for piece in _unpacked(state.data):
        yield piece
    yield page[1]


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    """The data in pieces: a slow browser holds one piece in memory, not all data."""
    for start in range(0, len(data), _PIECE):
        yield data[start : start + _PIECE]


async def _unpacked(data: bytes) -> AsyncIterator[bytes]:
    """The data for browsers without gzip."""
    packer = zlib.decompressobj(wbits=31)
    rest = data
    while not packer.eof:
        yield packer.decompress(rest, _PIECE)
        rest = packer.unconsumed_tail


def _unready() -> Response:
    return PlainTextResponse("Service Unavailable\n", 503, {"Retry-After": "10"})
