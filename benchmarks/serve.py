"""What ``surefoot serve`` costs while it watches a thousand runs.

``python benchmarks/serve.py [--out DIR] [--quick]``. Looks: the time of one look at the folder, with all runs ended,
ten under way, and all under way, and the share of a core that it takes at the pace the server then chooses. Server: the
process itself, its processor time over wall-clock time while two runs grow every two seconds, alone and with a listener
that fetches the data whenever it is told.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from harness import machine, milliseconds, report, table

from surefoot.reports.serve.refresher import Refresher
from surefoot.reports.serve.watch import Watch
from surefoot.runs.records import canonical, encode

TICKS = os.sysconf("SC_CLK_TCK")


def reading(step: int, chance: random.Random) -> bytes:
    names = [f"{part}.{name}" for part in ("train", "test") for name in ("ece", "kce", "nll", "accuracy", "margin")]
    return encode({"step": step, "sharpness": 30.0 / (1 + step), "lr": 0.1} | {name: chance.random() for name in names})


def folder_of(place: Path, runs: int, readings: int, going: int) -> list[Path]:
    """A folder of runs of which the last ``going`` have not ended."""
    chance = random.Random(0)
    journals = [b"".join(reading(step, chance) for step in range(readings)) for _ in range(min(runs, 20))]
    timings = b"".join(encode({"step": step, "time": 1.7e9 + step, "peak_mb": 1.0}) for step in range(readings))
    result = canonical({"outcome": "finished", "step": readings - 1, "final": {"step": readings - 1}})
    found = []
    for name in range(runs):
        run = place / f"{name:016x}"
        run.mkdir()
        spec = {"optimizer": {"name": "sgd", "lr": 0.1}, "seed": name, "stop": {"steps": 10 * readings, "batch": 32}}
        (run / "spec.json").write_text(canonical(spec))
        (run / "journal.jsonl").write_bytes(journals[name % len(journals)])
        (run / "timings.jsonl").write_bytes(timings)
        if name < runs - going:
            (run / "result.json").write_text(result)
        found.append(run)
    return found


def looks(runs: int, going: int, repeats: int) -> tuple[float, float]:
    """Seconds of one look, and the share of a core by the pace that the refresher chooses."""
    with tempfile.TemporaryDirectory() as name:
        folder_of(Path(name), runs, 3, going)
        later = time.time_ns() + 10**12  # the times of the folders have settled
        watch = Watch(Path(name), lambda: later)
        watch.look()
        times = []
        for _ in range(repeats):
            start = time.thread_time()
            watch.look()
            times.append(time.thread_time() - start)
        refresher = Refresher(Path(name), lambda stamps: b"{}")
        refresher.turn()
        time.sleep(2.1)  # until the refresher's own clock believes it, too
        refresher.turn()
        pause = refresher.turn()
    seconds = statistics.median(times)
    return seconds, seconds / pause


def used(process: int) -> float:
    """Seconds of processor time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def fetch(parts: SplitResult) -> int:
    """Bytes of the data, packed; 0 if there are none yet."""
    line = http.client.HTTPConnection("127.0.0.1", parts.port or 80, timeout=60)
    with contextlib.closing(line):
        line.request("GET", f"/data.json?{parts.query}", headers={"Accept-Encoding": "gzip"})
        answer = line.getresponse()
        return len(answer.read()) if answer.status == 200 else 0


class Listener(threading.Thread):
    """A page: hears events, and fetches the data when told that they changed."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.parts, self.fetched = urlsplit(address), 0

    def run(self) -> None:
        """Listen until the server ends."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            events = http.client.HTTPConnection("127.0.0.1", self.parts.port or 80)
            events.request("GET", f"/events?{self.parts.query}")
            for line in events.getresponse():
                if line.startswith(b"event: changed"):
                    self.fetched += bool(fetch(self.parts))


def grow(runs: list[Path], readings: int, seconds: float) -> None:
    """Two runs grow every two seconds."""
    until, step = time.monotonic() + seconds, readings
    while time.monotonic() < until:
        for run in runs:
            with (run / "journal.jsonl").open("ab") as journal:
                journal.write(reading(step, random.Random(step)))
        step += 1
        time.sleep(2)


def server(runs: int, readings: int, seconds: float) -> dict[str, float]:
    """Shares of a core of the process, alone and with a listener, and how long the first data took."""
    with tempfile.TemporaryDirectory() as name:
        growing = folder_of(Path(name), runs, readings, 2)[-2:]
        process = subprocess.Popen(
            [sys.executable, "-m", "surefoot", "serve", name], stdout=subprocess.PIPE, text=True
        )  # fmt: skip
        try:
            assert process.stdout is not None
            address = next(line.strip() for line in process.stdout if "http://" in line)
            start = time.monotonic()
            while not (size := fetch(urlsplit(address))):
                pass
            found = {"first data, s": time.monotonic() - start, "first data, CPU s": used(process.pid)}
            found["data, MB"] = size / 1e6
            time.sleep(45)  # until nobody has asked for a while
            for who, listener in (("alone", None), ("with a listener", Listener(address))):
                if listener is not None:
                    listener.start()
                    time.sleep(5)
                before, start = used(process.pid), time.monotonic()
                grow(growing, readings, seconds)
                found[f"share {who}"] = (used(process.pid) - before) / (time.monotonic() - start)
                if listener is not None:
                    found["data sent"] = float(listener.fetched)
            found["memory, MB"] = peak(process.pid)
        finally:
            process.terminate()
            process.wait()
    return found


def peak(process: int) -> float:
    """Megabytes at most."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for serve.md and serve.json")
    parser.add_argument("--quick", action="store_true", help="few runs, to see that it runs")
    options = parser.parse_args()
    runs = 20 if options.quick else 1000
    cases = {"all ended": 0, "ten under way": 10, "all under way": runs}
    look = {name: looks(runs, going, 5 if options.quick else 50) for name, going in cases.items()}
    whole = server(runs, 20 if options.quick else 2000, 4 if options.quick else 60)
    found: dict[str, Any] = {"machine": machine(), "runs": runs, "looks": look, "server": whole}
    rows = [[name, milliseconds(seconds), f"{share:.2%}"] for name, (seconds, share) in look.items()]
    text = "\n".join(
        [
            f"# Serving {runs:,} runs\n",
            "Made by `python benchmarks/serve.py`.",
            ", ".join(f"{name} {value}" for name, value in found["machine"].items()) + ".\n",
            table([f"a look at {runs:,} runs", "time", "share of a core (goal 5 %)"], rows),
            "",
            f"The server, two of the runs growing every two seconds: {whole['share alone']:.2%} of a core alone, "
            f"{whole['share with a listener']:.2%} with a page open, which fetched the data {whole['data sent']:.0f} "
            f"times ({whole['data, MB']:.1f} MB packed). The first data took {whole['first data, s']:.0f} s "
            f"({whole['first data, CPU s']:.0f} s of processor time); peak memory {whole['memory, MB']:.0f} MB.\n",
        ]
    )
    report(options.out, "serve", text, found)


if __name__ == "__main__":
    main()
