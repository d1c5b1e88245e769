"""Every line about the page server in the list of security promises: who is let in, and what each answer carries."""

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from surefoot.reports.serve.guard import Guard

HOST = "127.0.0.1:8000"
POLICY = "default-src 'none'; frame-ancestors 'none'"
asked = []


async def secret(request):
    asked.append(request)
    return PlainTextResponse("secret")


app = Guard(Starlette(routes=[Route("/", secret)]), "right", [HOST, "localhost:8000"], POLICY)


def client(host=HOST):
    asked.clear()
    return TestClient(app, base_url=f"http://{host}")


def test_the_token_opens():
    assert client().get("/?token=right").text == "secret"
    assert client("localhost:8000").get("/?token=right").text == "secret"


@pytest.mark.parametrize(
    "query",
    ["", "?token=", "?token=wrong", "?token=righ", "?token=rightx", "?token=RIGHT", "?token=right&token=right",
     "?token=%00right", "?token=r%C3%ADght", "?token=%ff", "?Token=right", "?token[]=right", "?token=right%20",
     "?a=1&b=1&c=1&d=1&e=1&f=1&g=1&h=1&token=right"],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_without_it_nothing_is_told(query, method):
    answer = client().request(method, f"/{query}")
    assert answer.status_code == 403
    assert answer.text == ("" if method == "HEAD" else "Forbidden\n")
    assert not asked


def test_no_such_page_and_no_token_look_the_same():
    there, nowhere = client().get("/"), client().get("/nowhere/../../etc/passwd")
    assert (there.status_code, there.content, there.headers) == (nowhere.status_code, nowhere.content, nowhere.headers)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8000", "127.0.0.1", "localhost", "127.0.0.1:8001", "127.0.0.1:8000.evil.example",
     "127.0.0.2:8000", "0.0.0.0:8000", "[::1]:8000", "127.1:8000"],
)  # fmt: skip
def test_another_name_is_not_ours(host):
    """A page whose own name points at 127.0.0.1 (DNS rebinding) sends that name."""
    answer = client().get("/?token=right", headers={"Host": host})
    assert (answer.status_code, answer.text) == (403, "Forbidden\n")
    assert not asked


def test_names_are_compared_without_case():
    assert client().get("/?token=right", headers={"Host": "LocalHost:8000"}).text == "secret"


def test_the_comparison_takes_constant_time(monkeypatch):
    compared = []
    monkeypatch.setattr("secrets.compare_digest", lambda a, b: compared.append((a, b)) or True)
    client().get("/?token=wrong")
    assert compared == [(b"wrong", b"right")]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"])
def test_reading_only(method):
    answer = client().request(method, "/?token=right")
    assert answer.status_code == 405
    assert answer.headers["Allow"] == "GET, HEAD"
    assert not asked


@pytest.mark.parametrize("path", ["/?token=right", "/", "/nowhere?token=right"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
def test_every_answer_carries_the_headers(path, method):
    headers = client().request(method, path, headers={"Origin": "https://evil.example"}).headers
    assert headers["Content-Security-Policy"] == POLICY
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"


@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
def test_no_other_origin_is_let_read(method):
    asks = {"Origin": "https://evil.example", "Access-Control-Request-Method": "GET"}
    answer = client().request(method, "/?token=right", headers=asks)
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


def test_web_sockets_are_closed_unheard():
    with pytest.raises(WebSocketDisconnect), client().websocket_connect("/?token=right"):
        pass
    assert not asked
