"""One request to an app without a network, for answers that do not end by themselves."""

import asyncio

HOST = "127.0.0.1:8000"


def scope(path, token="right", host=HOST, method="GET", **headers):
    """A request."""
    pairs = [(b"host", host.encode()), *((name.encode(), value.encode()) for name, value in headers.items())]
    return {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": method,
        "scheme": "http", "path": path, "raw_path": path.encode(), "root_path": "", "headers": pairs,
        "query_string": f"token={token}".encode(), "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000),
    }  # fmt: skip


class Browser:
    """Asks once and takes what comes, while it is ready to: until told, or for so many messages."""

    def __init__(self, app, request, ready_for=None):
        self.status, self.body, self.messages, self._ready_for = None, b"", 0, ready_for
        self.ready, self._gone, self._news = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.ready.set()
        self.task = asyncio.create_task(app(request, self._receive, self._send))

    async def _receive(self):
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        await self.ready.wait()
        self.messages += 1
        if message["type"] == "http.response.start":
            self.status = message["status"]
        self.body += message.get("body", b"")
        if self.messages == self._ready_for:
            self.ready.clear()
        self._news.set()

    async def until(self, wanted, seconds=5):
        """Wait until the body holds so many events of a kind, or text."""
        async with asyncio.timeout(seconds):
            while not wanted(self):
                self._news.clear()
                await self._news.wait()

    def events(self, kind):
        """Data of the events of a kind, as text."""
        parts = [part.split("\n") for part in self.body.decode().split("\n\n")]
        return [part[1].removeprefix("data: ") for part in parts if part[0] == f"event: {kind}"]

    async def go(self):
        """Close the window."""
        self._gone.set()
        self.ready.set()
        async with asyncio.timeout(5):
            await asyncio.gather(self.task, return_exceptions=True)
