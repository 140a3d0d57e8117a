"""A contest in time: each contestant has a process of its own, and they take turns.

So nobody finds memory that another has left, and a slow moment of the machine hits all alike. Quote ratios.
"""

import multiprocessing
import os
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import torch

Call = Callable[[], object]


@dataclass
class Times:
    """What one contestant took: seconds of each turn by the clock and of the processor, and megabytes at most."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    megabytes: float = 0.0

    @property
    def median(self) -> float:
        """The median of the seconds by the clock."""
        return statistics.median(self.wall)


def contest(contestants: Mapping[str, Callable[[], Call]], turns: int, *, threads: int = 1) -> dict[str, Times]:
    """Start each contestant and call it once to warm up, then time all of them in turn, several times.

    They are, by name, what makes the function that is timed, importable, as processes are spawned. Threads are those of
    each process; the ones without work sleep.
    """
    context, processes, ends = multiprocessing.get_context("spawn"), [], {}
    results = {name: Times() for name in contestants}
    # Daemons, who may have no children: what compiles does so by itself.
    os.environ |= {"OMP_WAIT_POLICY": "passive", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    for name, make in contestants.items():
        ends[name], end = context.Pipe()
        processes.append(context.Process(target=_compete, args=(end, make, threads), daemon=True))
        processes[-1].start()
        end.close()  # so that a contestant's death is an EOFError here, and no wait for ever
        results[name].megabytes = ends[name].recv()
    for _ in range(turns):
        for name, end in ends.items():
            end.send("go")
            wall, cpu = end.recv()
            results[name].wall.append(wall)
            results[name].cpu.append(cpu)
    for process in processes:
        process.terminate()
    return results


def _compete(end: Connection, make: Callable[[], Call], threads: int) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    call = make()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    call()
    end.send((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000)
    while end.recv():
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        end.send((time.perf_counter() - wall, time.process_time() - cpu))
