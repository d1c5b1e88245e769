"""Two processes on this machine that meet in a file; what each returns, in order of rank."""

import datetime
import multiprocessing
from pathlib import Path

import torch
import torch.distributed as dist

COUNT = 2
PROCESSES = multiprocessing.get_context("forkserver")


def join_group(rank, folder):
    """Meet the other rank in a file of ``folder``."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=COUNT,
        timeout=datetime.timedelta(minutes=8),
    )


def _worker(rank, work, folder):
    join_group(rank, folder)
    try:
        torch.save(work(rank, Path(folder)), f"{folder}/{rank}.pt")
    finally:
        dist.destroy_process_group()


def on_two_ranks(work, folder):
    """``work(rank, folder)``, a function of a module, in two processes."""
    torch.multiprocessing.start_processes(
        _worker, args=(work, str(folder)), nprocs=COUNT, start_method=PROCESSES.get_start_method()
    )
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(COUNT)]
