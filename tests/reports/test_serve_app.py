"""The page, its data and its events, without a network; a stand-in makes the data."""

import asyncio
import contextlib
import gzip
import json

import pytest
from starlette.testclient import TestClient

from surefoot.reports.serve.app import LISTENERS, make_app
from surefoot.reports.serve.guard import Guard
from surefoot.reports.serve.refresher import Refresher
from tests.reports.asgi import HOST, Browser, scope
from tests.reports.live_runs import begin, end, everything, grow

PAGE = (b"<!doctype html><script>", b"</script>")


class Maker:
    """Makes data that tell what the folders are, and counts how often."""

    def __init__(self, padding=0):
        self.made, self.padding, self.fails = 0, padding, None

    def __call__(self, stamps):
        self.made += 1
        if self.fails is not None:
            raise self.fails
        sizes = {name: sum(size for _, size, _ in stamp) for name, stamp in stamps.items()}
        return json.dumps({"runs": sizes, "padding": "x" * self.padding}).encode()


def guarded(refresher):
    return Guard(make_app(refresher, PAGE), "right", [HOST], "default-src 'none'")


@pytest.fixture
def folder(tmp_path):
    grow(begin(tmp_path / "a"), 0, 10)
    return tmp_path


@contextlib.contextmanager
def client(folder, make=None, period=0.02):
    app = guarded(Refresher(folder, make or Maker(), period=period))
    with TestClient(app, base_url=f"http://{HOST}") as found:
        found.params = {"token": "right"}
        yield found


def in_loop(folder, visit, make=None, period=0.02):
    """Run ``visit(app, refresher)`` in an event loop, between the app's start and end."""

    async def all_of_it():
        refresher = Refresher(folder, make or Maker(), period=period)
        app = make_app(refresher, PAGE)
        async with app.router.lifespan_context(app), asyncio.timeout(20):
            await visit(Guard(app, "right", [HOST], "default-src 'none'"), refresher)

    asyncio.run(all_of_it())


def test_the_page_holds_the_data(folder):
    with client(folder) as browser:
        page, data = browser.get("/"), browser.get("/data.json")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.content == PAGE[0] + data.content + PAGE[1]
    assert list(data.json()["runs"]) == ["a"]


def test_the_data_are_packed_for_those_who_can(folder):
    with client(folder, Maker(300_000)) as browser:
        packed = browser.get("/data.json", headers={"Accept-Encoding": "br, gzip"})
        for refused in ("identity", "", "gzip;q=0", "br, gzip; q=0.0"):
            plain = browser.get("/data.json", headers={"Accept-Encoding": refused})
            assert "Content-Encoding" not in plain.headers
            assert plain.content == packed.content
    assert packed.headers["Content-Encoding"] == "gzip"
    assert int(packed.headers["Content-Length"]) < 10_000 < len(packed.content)
    assert packed.headers["Vary"] == "Accept-Encoding"


def test_unchanged_data_are_not_sent_again(folder):
    with client(folder) as browser:
        first = browser.get("/data.json")
        tag = first.headers["ETag"]
        assert first.json()["tag"] == tag.strip('"')
        for same in (tag, f'W/{tag}, "other"'):
            again = browser.get("/data.json", headers={"If-None-Match": same})
            assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
        assert browser.get("/data.json", headers={"If-None-Match": '"other"'}).status_code == 200


def test_head_tells_no_more_than_headers(folder):
    with client(folder) as browser:
        for path in ("/", "/data.json", "/events"):
            answer = browser.head(path)
            assert answer.status_code == 200
            assert answer.headers["Content-Security-Policy"] == "default-src 'none'"


@pytest.mark.parametrize(
    "path",
    ["/..", "/../", "/%2e%2e/etc/passwd", "/a/spec.json", "//etc/passwd", "/data.json/", "/data.json/../spec.json",
     "/events/", "/static/../../spec.json", "/a%00", "/data.json%2f..%2fspec.json", "/\\..\\spec.json", "/a"],
)  # fmt: skip
def test_no_path_leads_to_a_file(folder, path):
    visited = {}

    async def visit(app, refresher):
        # Past the client, which would tidy the path.
        browser = Browser(app, scope(path))
        await browser.task
        visited["status"], visited["body"] = browser.status, browser.body

    in_loop(folder, visit)
    assert visited == {"status": 404, "body": b"Not Found"}


def test_a_listener_is_told_when_a_journal_grows(folder):
    async def visit(app, refresher):
        browser = Browser(app, scope("/events"))
        await browser.until(lambda b: b.events("changed") and b.events("progress"))
        grow(folder / "a", 20)
        await browser.until(lambda b: len(b.events("changed")) == 2 and len(b.events("progress")) == 2)
        assert json.loads(browser.events("changed")[-1])["tag"] == refresher.state.tag
        told = json.loads(browser.events("progress")[-1])
        assert [(run["run"], run["step"], run["steps"]) for run in told["runs"]] == [("a", 20, 1000)]
        assert (told["unfinished"], told["ended"]) == (1, 0)
        end(folder / "a", 20)
        await browser.until(lambda b: len(b.events("progress")) == 3)
        assert json.loads(browser.events("progress")[-1]) == {"ended": 1, "unfinished": 0, "runs": []}
        await browser.go()

    in_loop(folder, visit)


def test_hostile_names_cannot_break_out_of_an_event(tmp_path):
    name = "evil\ndata: {}\n\nevent: changed\r\u2028<script>"
    grow(begin(tmp_path / name), 0)

    async def visit(app, refresher):
        browser = Browser(app, scope("/events"))
        await browser.until(lambda b: b.events("progress"))
        assert len(browser.events("changed")) == 1
        assert b"\r" not in browser.body
        assert json.loads(browser.events("progress")[0])["runs"][0]["run"] == name
        await browser.go()

    in_loop(tmp_path, visit)


def test_seats_are_few_and_freed(folder):
    async def visit(app, refresher):
        sitting = [Browser(app, scope("/events")) for _ in range(LISTENERS)]
        for each in sitting:
            await each.until(lambda b: b.events("changed"))
        late = Browser(app, scope("/events"))
        await late.task
        assert (late.status, late.body) == (503, b"Service Unavailable\n")
        await sitting[0].go()
        next_one = Browser(app, scope("/events"))
        await next_one.until(lambda b: b.events("changed"))
        for each in [*sitting[1:], next_one]:
            await each.go()

    in_loop(folder, visit)


def test_a_slow_listener_misses_the_middle_and_piles_nothing_up(folder):
    async def visit(app, refresher):
        slow, quick = Browser(app, scope("/events")), Browser(app, scope("/events"))
        for each in (slow, quick):
            await each.until(lambda b: b.events("changed") and b.events("progress"))
        slow.ready.clear()
        for step in range(20, 120, 10):
            grow(folder / "a", step)
            seen = refresher.state.tag
            await quick.until(lambda b, seen=seen: json.loads(b.events("changed")[-1])["tag"] != seen)
        taken = slow.messages
        slow.ready.set()
        await slow.until(lambda b: json.loads(b.events("progress")[-1])["runs"][0]["step"] == 110)
        assert json.loads(slow.events("changed")[-1])["tag"] == refresher.state.tag
        assert len(quick.events("changed")) >= 10
        # What it was being handed when it stopped reading, and how things stand now.
        assert slow.messages - taken <= 5
        for each in (slow, quick):
            await each.go()

    in_loop(folder, visit)


def test_a_slow_browser_holds_one_piece_of_the_data(folder):
    async def visit(app, refresher):
        browser = Browser(app, scope("/data.json"), ready_for=2)  # the headers and a piece
        await browser.until(lambda b: b.body)
        await asyncio.sleep(0.1)
        assert len(browser.body) == 1 << 16
        browser.ready.set()
        await browser.task
        assert len(browser.body) > 2_000_000

    in_loop(folder, visit, Maker(2_000_000))


def test_streams_end_with_the_server(folder):
    async def visit(app, refresher):
        browser = Browser(app, scope("/events"))
        await browser.until(lambda b: b.events("changed"))
        refresher.stop()
        async with asyncio.timeout(2):
            await browser.task

    in_loop(folder, visit)


def test_requests_cause_no_work(folder):
    make = Maker()
    with client(folder, make) as browser:
        for _ in range(50):
            browser.get("/data.json")
            browser.get("/")
    assert make.made == 1


def test_the_first_data_are_waited_for(folder):
    make = Maker()
    with client(folder, make, period=0.01) as browser:
        assert browser.get("/").status_code == 200
    assert make.made == 1


def test_no_data_at_all_are_said_soon(folder):
    make = Maker()
    make.fails = ValueError("broken")
    with client(folder, make) as browser:
        answer = browser.get("/data.json")
        assert (answer.status_code, answer.text) == (503, "Service Unavailable\n")
        assert answer.headers["Retry-After"] == "10"
        page = browser.get("/")
        assert page.status_code == 503
        assert 'http-equiv="refresh"' in page.text


def test_nothing_is_written(folder):
    before = everything(folder)
    with client(folder) as browser:
        browser.get("/")
        browser.get("/data.json")
    assert everything(folder) == before


def test_data_that_cannot_be_made_leave_the_last(folder):
    make = Maker()

    async def visit(app, refresher):
        browser = Browser(app, scope("/events"))
        await browser.until(lambda b: b.events("progress"))
        before = refresher.state.data
        make.fails = RuntimeError("broken")
        grow(folder / "a", 20)
        await browser.until(lambda b: len(b.events("progress")) == 2)
        assert refresher.state.data == before
        make.fails = None
        await browser.until(lambda b: len(b.events("changed")) == 2)
        assert "a" in json.loads(gzip.decompress(refresher.state.data))["runs"]
        await browser.go()

    in_loop(folder, visit, make)
