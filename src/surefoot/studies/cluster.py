"""A study's workers on a Ray cluster, by Ray Core alone: each is an actor that holds a worker's process.

All state stays in our files; what the cluster knows can be lost at any moment. A cluster of one's own (``"local"``)
lives inside the study's folder, answers only those who know a token that is made for it, and has no dashboard and no
usage reports.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from surefoot.errors import BadInput, MissingDependency, RunLocked
from surefoot.files import make_folder
from surefoot.runs.lock import locked
from surefoot.studies.node_worker import Files, NodeWorker, files_of, put_files

__all__ = ["RayWorker", "RayWorkers", "ray_workers"]

_STORE = 100 << 20  # bytes of shared memory; what goes through it is small
_ANSWER = 10.0  # seconds within which a cluster must answer
_LISTEN = 1.0  # seconds that a host waits for its worker to speak


@contextlib.contextmanager
def ray_workers(address: str, study: Path, workers: int, threads: int) -> Iterator[RayWorkers]:
    """Connect to the cluster at ``address``, or start one (``"local"``) for as long as the block lasts."""
    place = study.resolve() / "ray"
    before = dict(os.environ)
    try:
        if address == "local":
            os.environ.update(_of_its_own())
        ray = _imported()
        place.mkdir(parents=True, exist_ok=True)
        mark = place / f"mark-{uuid.uuid4().hex}"
        mark.touch()
        try:
            _read_anew(ray)
            with _short(place) as name, _ended(ray):
                _start(ray, place, name, workers * threads) if address == "local" else _join(ray, address, threads)
                yield RayWorkers(ray, study / "runs", mark, threads)
        finally:
            mark.unlink(missing_ok=True)
            if address == "local":
                shutil.rmtree(place, ignore_errors=True)
            with contextlib.suppress(OSError):
                place.rmdir()
    finally:
        os.environ.clear()
        os.environ.update(before)


def _imported() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingDependency("ray=... needs Ray; install it with: pip install 'surefoot[ray]'") from error
    if ray.is_initialized():
        raise BadInput("ray: this process is connected to a cluster already; call ray.shutdown() first")
    return ray


def _read_anew(ray: Any) -> None:
    """Ray reads its environment when it is imported, and a token once: a process may have several clusters."""
    ray._raylet.Config.initialize("")
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


def _of_its_own() -> dict[str, str]:
    """Environment of a cluster that nobody else may use: its ports are open to the network."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray warns about accelerators otherwise
    }


def _start(ray: Any, place: Path, name: str, cpus: int) -> None:
    with _plainly("a local Ray cluster does not start"):
        ray.init(
            address="local",
            num_cpus=cpus,
            num_gpus=0,
            object_store_memory=_STORE,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
            _temp_dir=name,
            _plasma_directory=str(place),
        )


def _join(ray: Any, address: str, threads: int) -> None:
    with _plainly(f"no Ray cluster answers at {address!r}"):
        host, _, port = address.rpartition(":")
        if host and port.isdigit():  # Ray itself would try for minutes
            socket.create_connection((host.removeprefix("ray://"), int(port)), _ANSWER).close()
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    cpus = ray.cluster_resources().get("CPU", 0.0)
    if cpus < threads:
        raise BadInput(f"ray={address!r}: a run takes {threads} CPUs, and the whole cluster has {cpus:.0f}")


@contextlib.contextmanager
def _ended(ray: Any) -> Iterator[None]:
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _short(place: Path) -> Iterator[str]:
    """A short name of a folder for as long as we live: sockets in it may have paths of 107 bytes at most."""
    if not Path("/proc/self/fd").exists():
        yield str(place)
        return
    handle = os.open(place, os.O_RDONLY)
    try:
        yield f"/proc/{os.getpid()}/fd/{handle}"
    finally:
        os.close(handle)


@contextlib.contextmanager
def _plainly(what: str) -> Iterator[None]:
    try:
        yield
    except (ConnectionError, RuntimeError, TimeoutError, ValueError, OSError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BadInput(f"ray=...: {what}: {first}") from error


class RayWorker:
    """A worker on some node, as the runner sees it; what it says is asked for all the time."""

    def __init__(self, ray: Any, runs: Path, actor: Any) -> None:
        self._ray, self._runs, self._actor = ray, runs, actor
        self.ready, self.asked = False, False
        self.pid: int | None = None  # on its node
        self.heard = actor.listen.remote(_LISTEN)
        self._away = actor.away.remote()
        self._at: Path | None = None
        self._lock = contextlib.ExitStack()
        self._left = 1, "its node is gone"

    def order(self, message: Mapping[str, Any]) -> None:
        """Tell it what to do. For a run that is made elsewhere we hold the lock, and send what there is of it."""
        files: Files = {}
        with contextlib.suppress(self._ray.exceptions.RayError):  # noticed when it is listened to
            if message["do"] == "run" and self._ray.get(self._away):
                self._at = self._runs / message["id"]
                make_folder(self._at)
                try:
                    self._lock.enter_context(locked(self._at))
                except RunLocked:
                    self._at = None
                    self.heard = self._ray.put(([{"type": "taken"}], {}))
                    return
                files = files_of(self._at)
            self._actor.order.remote(message, files)

    def listen(self) -> list[dict[str, Any]] | None:
        """What it said since; None if it, or its node, has gone."""
        said: list[dict[str, Any]] | None
        try:
            said, files = self._ray.get(self.heard)
            if files and self._at is not None:
                put_files(self._at, files)
            if said is None:
                self._left = self._ray.get(self._actor.reap.remote())
        except self._ray.exceptions.RayError as error:
            self._left = 1, str(error)
            said = None
        for each in said or []:
            self.pid = each.get("pid", self.pid)
        if said is None or any(each["type"] not in ("ready", "checked", "step") for each in said):
            self._at = None
            self._lock.close()
        if said is not None:
            self.heard = self._actor.listen.remote(_LISTEN)
        return said

    def ask_to_leave(self) -> None:
        """Ask it to commit what it does and leave."""
        self.asked = True
        self._actor.ask_to_leave.remote()

    def kill(self) -> None:
        """End it, whatever it does: a worker whose host is gone commits and leaves."""
        self._ray.kill(self._actor)

    def reap(self) -> tuple[int, str]:
        """The exit code of one that has gone, and the last lines it left."""
        self._lock.close()
        return self._left


class RayWorkers:
    """The workers that are on the cluster, or on their way."""

    def __init__(self, ray: Any, runs: Path, mark: Path, threads: int) -> None:
        self._ray, self._runs, self._mark = ray, runs, str(mark)
        # Two calls at once: orders come while it listens.
        self._node_worker = ray.remote(NodeWorker).options(num_cpus=threads, max_concurrency=2, max_restarts=0)
        self.workers: list[RayWorker] = []

    def spawn(self) -> RayWorker:
        """One more, as soon as the cluster has room."""
        worker = RayWorker(self._ray, self._runs, self._node_worker.remote(self._mark))
        self.workers.append(worker)
        return worker

    def listen(self, timeout: float) -> Iterator[tuple[RayWorker, list[dict[str, Any]] | None]]:
        """Who said what within the time; None for one that has gone, who is then no longer listed."""
        waited = {worker.heard: worker for worker in self.workers}
        if not waited:
            time.sleep(timeout)
            return
        self._ray.wait(list(waited), num_returns=1, timeout=timeout)
        for reference in self._ray.wait(list(waited), num_returns=len(waited), timeout=0)[0]:
            worker = waited[reference]
            said = worker.listen()
            if said is None:
                self.workers.remove(worker)
            yield worker, said

    def ask_to_leave(self) -> None:
        """Ask every worker, once, to commit what it does and leave; those that are still to come, not to."""
        for worker in self.workers:
            if worker.asked:
                continue
            if worker.ready:
                worker.ask_to_leave()
            else:
                worker.asked = True
                worker.kill()

    def close(self) -> None:
        """End those that are left."""
        for worker in self.workers:
            worker.kill()
            worker.reap()
        self.workers.clear()
