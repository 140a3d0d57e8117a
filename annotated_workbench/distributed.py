"""One training in several processes, as `torchrun` starts them: each takes its share of the rows of every batch.

All processes make the same batches. Of each batch, process r of n takes the rows r, r + n, …, and
`DistributedDataParallel` takes the mean of their gradients. So n changes how long an update takes and, apart from
rounding and dropout, nothing else. The first process alone writes; the run's folder must be on a disk that all share.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from annotated.training import check_loss
from annotated_workbench.data import count_targets

PATIENCE = timedelta(hours=2)  # a process waits so long for the others: the first one may have much to write
Value = TypeVar("Value")


def processes() -> int:
    """Count the processes of this training: 1 unless they were `joined`."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def rank() -> int:
    """Number this process among them, from 0."""
    return distributed.get_rank() if processes() > 1 else 0


def is_first() -> bool:
    """Tell whether this process is the one that writes."""
    return rank() == 0


@contextmanager
def joined(device: torch.device) -> Iterator[torch.device]:
    """Train together with the other processes that `torchrun` started, if it did; only the first one prints.

    Gives this process's device: of a machine's GPUs, each process has one. A ConnectionError says that another process
    has ended or cannot be reached.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    try:
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
        with open(os.devnull, "w") as nowhere:
            out, err = (sys.stdout, sys.stderr) if is_first() else (nowhere, nowhere)
            with redirect_stdout(out), redirect_stderr(err):
                yield device
    except RuntimeError as error:
        if not (isinstance(error, distributed.DistError) or "gloo" in str(error)):
            raise
        raise ConnectionError(
            "another process of this training has ended or cannot be reached: see its message, if it left one. "
            "--resume goes on from the last state."
        ) from error
    finally:
        if distributed.is_initialized():
            time.sleep(0.5)  # Gloo's threads still let go of tensors: they need the GIL, which the next line keeps
            distributed.destroy_process_group()


def from_first(make: Callable[[], Value]) -> Value:
    """Return what the first process makes, in all processes."""
    values: list[Any] = [make() if is_first() else None]
    if processes() > 1:
        distributed.broadcast_object_list(values)
    return values[0]


def require_same(what: str) -> None:
    """Raise a ValueError in all processes if they do not say the same."""
    said = [what] * processes()
    if len(said) > 1:
        distributed.all_gather_object(said, what)
    if len(set(said)) > 1:
        raise ValueError(
            "the processes do not train the same: give each the same files and options, and on every machine the same "
            "version of the course."
        )


def update(
    objective: nn.Module, batches: Sequence[tuple[Tensor, ...]], optimizer: torch.optim.Optimizer
) -> tuple[float, int]:
    """Update a model once on several batches as if they were one, each process on its share of the rows.

    `objective` gives the summed loss of a batch: of several processes, it is one in `DistributedDataParallel`. Returns
    the loss per target, and how many targets there are, of all processes. If that loss is not finite, all of them raise
    a ValueError and no weight changes.
    """
    device = next(objective.parameters()).device
    targets = sum(map(count_targets, batches))
    total = torch.zeros((), device=device)
    optimizer.zero_grad()
    for number, batch in enumerate(batches, start=1):
        own, share = [side[rank() :: processes()].to(device) for side in batch], 1 / targets
        if not len(own[-1]):  # fewer rows than processes; all must take part, so this one repeats a row for nothing
            own, share = [side[:1].to(device) for side in batch], 0.0
        last = number == len(batches)
        with nullcontext() if last or not isinstance(objective, DistributedDataParallel) else objective.no_sync():
            loss = share * objective(*own)
            (processes() * loss).backward()  # the mean over n processes of n times the parts is their sum
        total += loss.detach()
    if processes() > 1:
        distributed.all_reduce(total)
    mean = total.item()
    check_loss(mean)
    optimizer.step()
    return mean, targets
