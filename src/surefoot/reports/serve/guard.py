"""Access control: only this machine, by its own name, with the token, may read. All other requests get no information.

A page elsewhere on the web can make a browser on this machine send a request to the server. The page can use ``fetch``,
a form, or a host name that points at 127.0.0.1. Such a page does not know the token and has another name in ``Host``.
No header of the server allows such a page to read an answer.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from urllib.parse import parse_qs

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Guard"]

_METHODS = ("GET", "HEAD")
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",  # the address holds the token
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Guard:
    """Checks every request before the application receives the request.

    Args:
        app: the application.
        token: the token that a request must contain.
        hosts: host names and ports that a request may use.
        policy: Content-Security-Policy of the answers.
    """

    def __init__(self, app: ASGIApp, token: str, hosts: Collection[str], policy: str) -> None:
        self._app, self._token = app, token.encode()
        self._hosts = {host.encode() for host in hosts}
        self._headers = {**_HEADERS, "Content-Security-Policy": policy}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 403 or 405, or pass the request on; every answer has the security headers.

        Args:
            scope: scope of the request (ASGI).
            receive: function that receives messages.
            send: function that sends messages.
        """
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close"})
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        app = self._app
        if not self._known(scope):
            app = PlainTextResponse("Forbidden\n", 403)
        elif scope["method"] not in _METHODS:
            app = PlainTextResponse("Method Not Allowed\n", 405, {"Allow": ", ".join(_METHODS)})
        await app(scope, receive, send_with_headers)

    def _known(self, scope: Scope) -> bool:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return False
        try:
            given = parse_qs(scope["query_string"].decode("ascii"), max_num_fields=8).get("token", [])
        except ValueError:  # not ASCII, or too many fields
            return False
        # In constant time, so that timing does not reveal the token character by character.
        return len(given) == 1 and secrets.compare_digest(given[0].encode(errors="replace"), self._token)
