"""Workers of a study on a Ray cluster, by Ray Core alone: each worker is an actor that holds a worker's process.

All state stays in the study's files; the state of the cluster can be lost at any moment. A cluster of the study's own
(``"local"``) lives inside the study's folder and accepts only clients with a fresh random token. Such a cluster has no
dashboard and sends no usage reports.
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
from surefoot.plugins import VARIABLE
from surefoot.runs.records import locked
from surefoot.studies.node_worker import Files, NodeWorker, files_of, put_files

__all__ = ["RayWorker", "RayWorkers", "ray_workers"]

_STORE = 100 << 20  # bytes of shared memory; messages are small
_ANSWER = 10.0  # seconds within which a cluster must answer
_LISTEN = 1.0  # seconds that a host waits for a message of its worker


@contextlib.contextmanager
def ray_workers(address: str, study: Path, workers: int, threads: int) -> Iterator[RayWorkers]:
    """Connect to a Ray cluster, or start one, for the duration of a ``with`` block.

    Args:
        address: address of the cluster; ``"local"`` starts a cluster that ends with the block.
        study: folder of the study.
        workers: number of workers that a local cluster has room for.
        threads: CPUs of one worker.

    Yields:
        The workers on the cluster.

    Raises:
        BadInput: if no cluster answers, the cluster has fewer CPUs than a run needs, or Ray is already initialised.
        MissingDependency: if Ray is not installed.
    """
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
    """Make Ray read its environment and token again: Ray reads both once, and a process may have several clusters."""
    ray._raylet.Config.initialize("")
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


def _of_its_own() -> dict[str, str]:
    """Environment of a private cluster: the ports of the cluster are open to the network, so that it needs a token."""
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
    """A short name of a folder while the block lasts: paths of sockets in the folder have at most 107 bytes."""
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
    """A worker on some node, as the runner sees it. A request for the worker's messages is always pending.

    Args:
        ray: the module ``ray``.
        runs: folder of the study's runs.
        actor: handle of the actor, a `NodeWorker`.
    """

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
        """Send the worker an order.

        If the node does not see the study's folder, this process locks the run and sends the files of the run.

        Args:
            message: the order, such as ``{"do": "run", "id": ...}``.
        """
        files: Files = {}
        with contextlib.suppress(self._ray.exceptions.RayError):  # `listen` notices a worker that has ended
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
        """Read the messages since the last call.

        Returns:
            The messages; None if the worker or its node has ended.
        """
        messages: list[dict[str, Any]] | None
        try:
            messages, files = self._ray.get(self.heard)
            if files and self._at is not None:
                put_files(self._at, files)
            if messages is None:
                self._left = self._ray.get(self._actor.reap.remote())
        except self._ray.exceptions.RayError as error:
            self._left = 1, str(error)
            messages = None
        for message in messages or []:
            self.pid = message.get("pid", self.pid)
        if messages is None or any(message["type"] not in ("ready", "checked", "step") for message in messages):
            self._at = None
            self._lock.close()
        if messages is not None:
            self.heard = self._actor.listen.remote(_LISTEN)
        return messages

    def ask_to_leave(self) -> None:
        """Ask the worker to commit its run and exit."""
        self.asked = True
        self._actor.ask_to_leave.remote()

    def kill(self) -> None:
        """End the actor at once; a worker whose host has ended commits and exits."""
        self._ray.kill(self._actor)

    def reap(self) -> tuple[int, str]:
        """Release the lock of the run of a worker that has ended.

        Returns:
            The exit code, and the last lines of the worker's log.
        """
        self._lock.close()
        self.kill()  # its place is free for another worker, even while this object is still referred to
        return self._left


class RayWorkers:
    """The workers that are on the cluster, or waiting for room on the cluster.

    Args:
        ray: the module ``ray``.
        runs: folder of the study's runs.
        mark: file in the study's folder; a node that sees the file shares the folder.
        threads: CPUs of one worker.
    """

    def __init__(self, ray: Any, runs: Path, mark: Path, threads: int) -> None:
        self._ray, self._runs, self._mark = ray, runs, str(mark)
        # Two calls at once: the actor receives orders while it listens.
        self._node_worker = ray.remote(NodeWorker).options(num_cpus=threads, max_concurrency=2, max_restarts=0)
        self.workers: list[RayWorker] = []

    def spawn(self) -> RayWorker:
        """Add a worker, which starts as soon as the cluster has room.

        Returns:
            The worker.
        """
        worker = RayWorker(self._ray, self._runs, self._node_worker.remote(self._mark, os.environ.get(VARIABLE, "")))
        self.workers.append(worker)
        return worker

    def listen(self, timeout: float) -> Iterator[tuple[RayWorker, list[dict[str, Any]] | None]]:
        """Yield the messages of all workers within a time.

        A worker that has ended is yielded once and removed from ``workers``.

        Args:
            timeout: seconds to wait.

        Yields:
            A worker and its messages; None instead of messages if the worker has ended.
        """
        waited = {worker.heard: worker for worker in self.workers}
        if not waited:
            time.sleep(timeout)
            return
        self._ray.wait(list(waited), num_returns=1, timeout=timeout)
        for reference in self._ray.wait(list(waited), num_returns=len(waited), timeout=0)[0]:
            worker = waited[reference]
            messages = worker.listen()
            if messages is None:
                self.workers.remove(worker)
            yield worker, messages

    def ask_to_leave(self) -> None:
        """Ask every worker, once, to commit its run and exit; workers that have not started yet are cancelled."""
        for worker in self.workers:
            if worker.asked:
                continue
            if worker.ready:
                worker.ask_to_leave()
            else:
                worker.asked = True
                worker.kill()

    def close(self) -> None:
        """End the remaining workers."""
        for worker in self.workers:
            worker.reap()
        self.workers.clear()
