"""``surefoot serve`` as a process, and what a browser and a stranger can do to it."""

import contextlib
import http.client
import json
import select
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest


class Served:
    """A server, and what a browser and a stranger can do to it."""

    def __init__(self, folder, *options):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "surefoot", "serve", str(folder), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.address = None
        for line in self.process.stdout:
            if "http://" in line:
                self.address = urlsplit(line.strip())
                break
        if self.address is None:
            pytest.fail(self.process.stderr.read())
        self.query = f"?{self.address.query}"

    def ask(self, path, query=None, method="GET", seconds=20, **headers):
        """Status, headers and body."""
        line = http.client.HTTPConnection("127.0.0.1", self.address.port, timeout=seconds)
        with contextlib.closing(line):
            headers = {name.replace("_", "-"): value for name, value in headers.items()}
            line.request(method, path + (self.query if query is None else query), headers=headers)
            answer = line.getresponse()
            return answer.status, answer.headers, answer.read()

    def data(self):
        return json.loads(self.ask("/data.json")[2])

    def listen(self):
        """A connection on which events come."""
        line = socket.create_connection(("127.0.0.1", self.address.port), timeout=20)
        line.sendall(f"GET /events{self.query} HTTP/1.1\r\nHost: {self.address.netloc}\r\n\r\n".encode())
        return line

    def ended(self, sign, seconds=3):
        """Its exit code after a signal, what it said on stderr, and how long it took."""
        start = time.monotonic()
        self.process.send_signal(sign)
        _, said = self.process.communicate(timeout=seconds)
        return self.process.returncode, said, time.monotonic() - start

    def close(self):
        self.process.kill()
        self.process.communicate()


def heard(line, wanted, seconds=20):
    """What came on a connection until it held ``wanted``."""
    found, until = b"", time.monotonic() + seconds
    while wanted not in found:
        if time.monotonic() > until or not select.select([line], [], [], seconds)[0]:
            pytest.fail(f"{wanted} did not come; {found[-500:]}")
        piece = line.recv(65536)
        assert piece, found
        found += piece
    return found


@contextlib.contextmanager
def serving(folder, *options):
    served = Served(folder, *options)
    try:
        yield served
    finally:
        served.close()
