"""One training in several processes, as `torchrun` starts them: each takes its share of every batch.

All processes hold the same weights and make the same batches. Of each batch, process r of n takes the rows r, r + n, …
Their mean gradients, weighted by how many targets each predicts, add up to the mean of the whole batch; so n changes
how long an update takes and, but for rounding and for what dropout draws, nothing else. The first process alone writes.

(`DistributedDataParallel` takes the mean over processes, as if all predicted as many targets, and wants one backward
pass for an update, where `annotated.fast.training` makes several.)
"""

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn
from torch.optim import Optimizer

from annotated.training import check_loss
from annotated_workbench.data import count_targets, count_tokens
from annotated_workbench.files import write_whole
from annotated_workbench.training_options import TrainingOptions
from annotated_workbench.vocabulary import TOKENIZER, Tokenizer, load_tokenizer

if TYPE_CHECKING:  # tasks divide what they validate
    from annotated_workbench.tasks import Batches, Task

PATIENCE = timedelta(hours=2)  # that a process waits for another which is alive: the first one may have much to write


def processes() -> int:
    """Count the processes of this training: 1 unless they were `joined`."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def is_first() -> bool:
    """Tell whether this process is the one that writes."""
    return _rank() == 0


def _rank() -> int:
    return 0 if processes() == 1 else distributed.get_rank()


@contextmanager
def joined(device: torch.device) -> Iterator[torch.device]:
    """Train together with the other processes that `torchrun` started, if it did; all but the first are silent.

    Where all fail alike, one says so: the others end with status 2 and no message.

    Args:
        device: where to train; "cuda" means one GPU for each process of a machine.

    Returns:
        This process's device.

    Raises:
        ValueError: the device is none for several processes, or a machine has more processes than GPUs.
        ConnectionError: the others cannot be reached.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device
        return
    device = _own(device)
    with _connected():
        store, rank, size = next(distributed.rendezvous("env://", timeout=PATIENCE))
        backend = "nccl" if device.type == "cuda" else "gloo"
        distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
    try:
        with open(os.devnull, "w") as nowhere:
            silent = rank > 0
            with (
                redirect_stdout(nowhere) if silent else nullcontext(),
                redirect_stderr(nowhere) if silent else nullcontext(),
            ):
                yield device
    except (ValueError, OSError) as error:
        with _connected():
            said = store.add(str(error), 1) > 1
        if said:
            raise SystemExit(2) from None
        raise
    finally:
        time.sleep(0.5)  # Gloo's threads still let go of tensors: they need the GIL, which the next line keeps
        distributed.destroy_process_group()


def _own(device: torch.device) -> torch.device:
    if device.type == "cpu":
        return device
    number, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if device != torch.device("cuda"):
        raise ValueError(f"several processes train on --device cpu or cuda, each on a GPU of its own, not on {device}.")
    if number >= gpus:
        raise ValueError(f"there are more processes than GPUs, {gpus}: give torchrun --nproc-per-node {gpus}.")
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


@contextmanager
def in_turn() -> Iterator[None]:
    """Let one process after the other do something, before anyone goes on; errors as in `agreed`.

    What the first one leaves in a folder the others find, on its machine or on a disk that they share. Elsewhere the
    first process there makes it anew.
    """
    failure = None
    for turn in range(processes()):
        if turn == _rank():
            try:
                yield
            except Exception as error:
                failure = error
        _settle([], failure)


@contextmanager
def agreed() -> Iterator[None]:
    """Do what may fail in one process alone, and go on when all have done it: where one fails, no other waits for it.

    Raises:
        Exception: this process's own error, or what another's says, as a ValueError if it is one or an OSError, and
            else as a RuntimeError.
    """
    failure = None
    try:
        yield
    except Exception as error:
        failure = error
    _settle([], failure)


def _settle(numbers: Sequence[float], failure: Exception | None) -> list[float]:
    """Add up numbers, each over all processes, unless one has failed; errors as in `agreed`."""
    bad = isinstance(failure, ValueError | OSError)
    said = failure and (bad, str(failure) if bad else f"{type(failure).__name__}: {failure}")
    gathered = _gather((numbers, said))
    if failure is not None:
        raise failure
    for bad, message in (said for _, said in gathered if said):
        raise (ValueError if bad else RuntimeError)(message)
    return [sum(own) for own in zip(*(numbers for numbers, _ in gathered), strict=True)]


def divided(compute: Callable[[Sequence[Any]], Iterable[Any]], items: Sequence[Any]) -> list[Any]:
    """Compute something for each item, each process for its share, and give all results to all of them.

    Args:
        compute: makes as many results as it is given items.
        items: the same in all processes.

    Raises:
        Exception: as `agreed` does.
    """
    with agreed():
        own = list(compute(items[_rank() :: processes()]))
    results: list[Any] = [None] * len(items)
    for rank, part in enumerate(_gather(own)):
        results[rank :: processes()] = part
    return results


def tokenizer_of_first(make: Callable[[], Tokenizer]) -> Tokenizer:
    """Return the tokenizer that the first process makes, and sends to the others; errors as in `agreed`."""
    with agreed():
        made = make() if is_first() else None
    content = _gather(made.content() if made and processes() > 1 else b"")[0]
    if made:
        return made
    with TemporaryDirectory() as folder:
        write_whole(Path(folder) / TOKENIZER, content)
        return load_tokenizer(folder)


def _gather(own: Any) -> list[Any]:
    """Collect an object of each process."""
    gathered = [own] * processes()
    if processes() > 1:
        with _connected():
            distributed.all_gather_object(gathered, own)
    return gathered


def from_first(number: int | float) -> int | float:
    """Return the number that the first process gives."""
    return _gather(number)[0]


def require_same(what: str) -> None:
    """Go on when all processes have said the same; raise a ValueError if they do not."""
    if len(set(_gather(what))) > 1:
        raise ValueError(
            "the processes do not train the same: give each the same files and options, and on every machine the same "
            "version of the course."
        )


def start_alike(model: nn.Module) -> None:
    """Give every process the first one's weights: other processors draw others."""
    if processes() > 1:
        with _connected():
            for parameter in model.parameters():
                distributed.broadcast(parameter.data, 0)


def draw_apart(seed: int, step: int) -> None:
    """Let each process but the first draw dropout of its own from here on, by the run's seed and the updates done."""
    if not is_first():
        torch.manual_seed(random.Random(f"{seed} {step} {distributed.get_rank()}").getrandbits(63))


def update(
    task: "Task", model: nn.Module, batches: "Batches", optimizer: Optimizer, options: TrainingOptions
) -> tuple[float, int]:
    """Do what `task.update` does, with each process on its share of the rows.

    Returns:
        The loss, and the number of tokens in all batches.

    Raises:
        Exception: as `agreed` does; then no weight has changed.
    """
    device = next(model.parameters()).device
    loss, weight, tokens, failure = 0.0, 0, 0, None
    try:
        read = list(batches)
        tokens = sum(map(count_tokens, read))  # before they go to the device, which would have to be waited for
        share = [part for batch in read if len((part := _share(batch))[-1])]
        weight = sum(map(count_targets, share))
        moved = [tuple(side.to(device) for side in batch) for batch in share]
        if processes() == 1:
            return task.update(model, moved, optimizer, options), tokens
        optimizer.zero_grad()
        if share:
            loss = task.update(model, moved, _Gradients(model.parameters()), options)
    except Exception as error:
        failure = error
    total, targets = _settle([loss * weight, float(weight)], failure)
    check_loss(total / targets)
    _add_gradients(list(model.parameters()), weight / targets)
    optimizer.step()
    return total / targets, tokens


class _Gradients(Optimizer):
    """An optimizer that changes nothing: the gradients stay, to be added to those of the other processes."""

    def __init__(self, parameters: Iterable[nn.Parameter]):
        super().__init__(parameters, {})

    def step(self, closure: Any = None) -> Any:
        """Do nothing."""


def _share(batch: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(side[_rank() :: processes()] for side in batch)


def _add_gradients(parameters: Sequence[nn.Parameter], weight: float) -> None:
    """Replace each gradient by the sum over the processes, each with its weight."""
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    together = torch.cat([gradient.flatten() for gradient in gradients]).mul_(weight)
    with _connected():
        distributed.all_reduce(together)
    for gradient, part in zip(gradients, together.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


@contextmanager
def _connected() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise ConnectionError(
            "another process of this training has ended or cannot be reached: see its message, if it left one. "
            "--resume goes on from the last state."
        ) from error
