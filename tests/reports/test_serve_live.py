"""``surefoot serve`` as a process on loopback: its address, its doors, its end; with the real page."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from surefoot.runs.records import canonical
from tests.reports.live_runs import begin, end, everything, grow
from tests.reports.served import heard, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """One server for the tests that leave it as it is."""
    folder = tmp_path_factory.mktemp("runs")
    grow(begin(folder / "aaaa"), 0, 10, 20)
    done = begin(folder / "bbbb", rule="adamw")
    grow(done, 0, 10)
    end(done, 10)
    before = everything(folder)
    with serving(folder) as found:
        yield found
    assert everything(folder) == before  # read only, whatever was asked


def test_the_address(served):
    assert served.address.hostname == "127.0.0.1"
    assert re.fullmatch(r"token=[\w-]{32,}", served.address.query)


def test_the_page(served):
    status, headers, body = served.ask("/")
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert "'unsafe-eval'" not in headers["Content-Security-Policy"]
    assert "script-src 'sha256-" in headers["Content-Security-Policy"]
    assert "Server" not in headers
    text = body.decode()
    assert 'data-live="yes"' in text
    inside = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1]
    assert json.loads(inside) == served.data()
    assert served.address.query not in text


def test_the_data(served):
    runs = {run["id"]: run for run in served.data()["runs"]}
    assert {name: run["outcome"] for name, run in runs.items()} == {"aaaa": "unfinished", "bbbb": "finished"}
    status, headers, _body = served.ask("/data.json", Accept_Encoding="gzip")
    assert (status, headers["Content-Encoding"]) == (200, "gzip")
    assert served.ask("/data.json", If_None_Match=headers["ETag"])[0] == 304


@pytest.mark.parametrize("path", ["/", "/data.json", "/events", "/nowhere"])
def test_no_token_no_answer(served, path):
    assert served.ask(path, query="")[::2] == (403, b"Forbidden\n")
    assert served.ask(path, query="?token=guess")[::2] == (403, b"Forbidden\n")


def test_another_host_name_is_refused(served):
    assert served.ask("/", Host="evil.example")[::2] == (403, b"Forbidden\n")
    assert served.ask("/", Host=f"localhost:{served.address.port}")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT"])
def test_nothing_can_be_changed(served, method):
    assert served.ask("/data.json", method=method)[0] in (400, 405)


@pytest.mark.parametrize("path", ["/../../../etc/passwd", "/%2e%2e%2fetc/passwd", "//etc/passwd", "/aaaa/spec.json"])
def test_no_path_leads_out(served, path):
    assert served.ask(path)[::2] == (404, b"Not Found")


def test_it_listens_to_this_machine_by_one_address(served):
    # All of 127.0.0.0/8 is this machine; whoever listened everywhere would answer here, too.
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", served.address.port), timeout=2)


def test_torch_is_not_loaded(served):
    served.ask("/")
    assert "torch" not in Path(f"/proc/{served.process.pid}/maps").read_text()


def test_one_that_never_reads_holds_up_nobody(served):
    stuck = [served.listen() for _ in range(3)]
    for line in stuck:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        line.sendall(f"GET /{served.query} HTTP/1.1\r\nHost: {served.address.netloc}\r\n\r\n".encode())
    assert served.ask("/", seconds=5)[0] == 200
    for line in stuck:
        line.close()


def test_too_many_connections_are_refused_not_kept(served):
    with contextlib.ExitStack() as stack:
        for _ in range(70):
            stack.enter_context(socket.create_connection(("127.0.0.1", served.address.port), timeout=5))
        assert served.ask("/data.json", seconds=5)[0] == 503
    until = time.monotonic() + 5
    while served.ask("/data.json", seconds=5)[0] != 200:
        assert time.monotonic() < until


def test_a_run_grows_and_a_listener_hears(tmp_path):
    place = begin(tmp_path / "aaaa")
    grow(place, 0, 10)
    with serving(tmp_path) as served, served.listen() as line:
        first = heard(line, b"event: progress")
        assert b"event: changed" in first
        grow(place, 20)
        heard(line, b"event: changed")
        assert served.data()["runs"][0]["step"] == 20
        later = begin(tmp_path / "bbbb")
        grow(later, 0)
        heard(line, b'"run":"bbbb"')


def test_ctrl_c_ends_it_at_once(tmp_path):
    grow(begin(tmp_path / "aaaa"), 0)
    with serving(tmp_path) as served, served.listen() as line:
        heard(line, b"event: changed")
        code, said, seconds = served.ended(signal.SIGINT)
    assert (code, said) == (130, "")
    assert seconds < 2


def test_a_termination_ends_it_at_once(tmp_path):
    grow(begin(tmp_path / "aaaa"), 0)
    with serving(tmp_path) as served, served.listen() as line:
        heard(line, b"event: changed")
        code, said, seconds = served.ended(signal.SIGTERM)
    assert (code, said) == (-signal.SIGTERM, "")
    assert seconds < 2


def test_the_folder_may_vanish(tmp_path):
    folder = tmp_path / "runs"
    grow(begin(folder / "aaaa"), 0)
    with serving(folder) as served, served.listen() as line:
        heard(line, b'"run":"aaaa"')
        shutil.move(folder, tmp_path / "away")
        heard(line, b'"unfinished":0')
        assert [run["id"] for run in served.data()["runs"]] == ["aaaa"]  # the last that were seen
        grow(begin(folder / "bbbb"), 0)
        heard(line, b'"run":"bbbb"')
        heard(line, b"event: changed")
        assert [run["id"] for run in served.data()["runs"]] == ["bbbb"]


def planned(study, *ids):
    """A study's file that plans these runs."""
    runs = [
        {"label": f"run {name}", "axes": {}, "shown": {}, "order": [], "seed": 0, "stage": 1, "id": name, "steps": 9,
         "spec": {}}
        for name in ids
    ]  # fmt: skip
    found = {"schema": 1, "name": "hostile", "scale": None, "axes": [], "entry_axes": [], "select": None,
             "method_axis": None, "chosen": None, "tables": [], "runs": runs}  # fmt: skip
    study.mkdir(parents=True)
    (study / "study.json").write_text(canonical(found))


def test_damaged_and_hostile_runs_hide_nobody(tmp_path):
    secret = tmp_path / "outside"
    secret.mkdir()
    for name in ("secret.txt", "journal.jsonl"):
        (secret / name).write_text("root:SECRET\n")
    grow(begin(secret / "run", rule="SECRET"), 0)
    end(secret / "run", 0)
    folder = tmp_path / "runs"
    grow(begin(folder / "good"), 0, 10)
    (begin(folder / "harmed") / "journal.jsonl").write_bytes(b"\xff" * 500)
    (begin(folder / "nested") / "arrays.jsonl").write_bytes(b"[" * 100_000 + b"\n")
    os.mkfifo(begin(folder / "pipe") / "journal.jsonl")
    (begin(folder / "link") / "journal.jsonl").symlink_to(secret / "journal.jsonl")
    (begin(folder / "zero") / "arrays.jsonl").symlink_to("/dev/zero")
    (folder / "elsewhere").symlink_to(secret / "run")
    (begin(folder / "half") / "result.json").write_text('{"outcome": "\\ud800", "step": 1, "final": {}}')
    study = folder / "study"
    planned(study, "0" * 16, "1" * 16, "2" * 16)
    (study / "study.toml").symlink_to(secret / "secret.txt")
    (study / "runs").mkdir()
    (study / "runs" / ("0" * 16)).symlink_to(secret / "run")
    (study / "failed").mkdir()
    (study / "failed" / f"{'1' * 16}.txt").symlink_to(secret / "secret.txt")
    os.mkfifo(study / "failed" / f"{'2' * 16}.txt")
    with serving(folder) as served:
        _, _, body = served.ask("/data.json")
        assert b"SECRET" not in body
        runs = {run["id"]: run for run in json.loads(body)["runs"]}
        assert runs["good"]["readings"] == 2
        assert {"harmed", "nested", "pipe", "link", "zero", "half", "1" * 16, "2" * 16} <= set(runs)
        assert "elsewhere" not in runs
        assert "0" * 16 not in runs
        with served.listen() as line:
            assert b"SECRET" not in heard(line, b"event: progress")


@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        (lambda folder: None, [], "there is no folder"),
        (lambda folder: folder.mkdir(), [], "there is no run in"),
        (lambda folder: begin(folder), ["--port", "70000"], "65535"),
    ],
)
def test_what_cannot_be_served_is_said(tmp_path, make, options, said):
    make(tmp_path / "runs")
    done = subprocess.run(
        [sys.executable, "-m", "surefoot", "serve", str(tmp_path / "runs"), *options],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert said in done.stderr


def test_a_port_that_is_taken_is_said(tmp_path):
    begin(tmp_path / "runs")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "surefoot", "serve", str(tmp_path / "runs"), "--port", str(port)],
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == f"surefoot: --port {port} is taken; choose another, or leave it out for a free one\n"


def test_a_port_of_ones_own_again_and_again(tmp_path):
    begin(tmp_path / "runs")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    tokens = set()
    for _ in range(2):
        with serving(tmp_path / "runs", "--port", str(port)) as served:
            assert served.address.port == port
            served.ask("/data.json")
            tokens.add(served.query)
            served.ended(signal.SIGINT)
    assert len(tokens) == 2
