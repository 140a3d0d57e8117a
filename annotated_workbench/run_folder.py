"""What a run keeps in its folder: a state to go on from, checkpoints, their average (§6.1) and metrics."""

import copy
import json
import math
import os
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from annotated_workbench import checkpoint
from annotated_workbench.checkpoint import average_checkpoints, load_tensors, save_checkpoint, save_tensors
from annotated_workbench.files import write_whole
from annotated_workbench.tasks import Task
from annotated_workbench.training_options import Length, TrainingOptions
from annotated_workbench.vocabulary import TOKENIZER

STATE, METRICS, CHECKPOINTS = "state.safetensors", "metrics.jsonl", "checkpoints"
BEST = "best"  # the model as it was after the epoch with the best score in validation


@dataclass
class Progress:
    """Where a run stands: updates and seconds in all, the current epoch (from 0) and the updates done in it."""

    step: int = 0
    seconds: float = 0.0
    epoch: int = 0
    position: int = 0


@dataclass
class Run:
    """A training that is under way: what it trains, how, and where it stands."""

    model: nn.Module
    task: Task
    out: Path
    options: TrainingOptions
    settings: dict[str, Any]  # what config.json keeps of how the run was started
    identity: dict[str, Any]  # what it is counted in and cannot be resumed without
    length: Length
    optimizer: torch.optim.Adam
    progress: Progress = field(default_factory=Progress)
    metrics: list[dict[str, Any]] = field(default_factory=list)  # the lines of metrics.jsonl
    looked: float = 0.0  # when the clock was last looked at
    work: dict[str, list[float]] = field(default_factory=dict)  # by its kind, the seconds and how often it was done

    def out_of_time(self) -> bool:
        """Tell whether the minutes are used up."""
        return self.options.max_minutes is not None and self.progress.seconds >= 60 * self.options.max_minutes

    def ended_by(self) -> str:
        """Name the options that have ended the run, all of which it needs more of to go on; none before its end."""
        waited = self.metrics[-1]["epoch"] - self.best()["epoch"] if self.metrics else 0
        ends = {"--epochs": self.progress.epoch >= self.length.epochs, "--max-minutes": self.out_of_time()}
        ends["--patience"] = waited >= (self.options.patience or math.inf)
        return " and ".join(name for name, over in ends.items() if over)

    def best(self) -> dict[str, Any]:
        """Find the line of metrics.jsonl with the best score, the first of equal ones."""
        score, choose = self.task.goal
        line: dict[str, Any] = choose(self.metrics, key=lambda line: line[score])
        return line

    def look_at_the_clock(self, kind: str) -> None:
        """Count the seconds that a kind of work took, by the clock.

        What takes five times as long as usual, and over a second, or the first time over a minute, slept meanwhile.
        """
        now = time.perf_counter()
        passed, self.looked = now - self.looked, now
        total, times = self.work.setdefault(kind, [0.0, 0])
        passed = min(passed, max(1.0, 5 * total / times) if times else 60.0)
        self.work[kind] = [total + passed, times + 1]
        self.progress.seconds += passed


def require_new(out: str | Path) -> None:
    """Raise an OSError if anything lies in a folder that a run writes: it may be somebody's only copy."""
    for name in (STATE, checkpoint.WEIGHTS, checkpoint.CONFIG, TOKENIZER, METRICS, CHECKPOINTS, BEST):
        if os.path.lexists(Path(out) / name):
            raise FileExistsError(
                f"{out} already holds a run or a model ({name}): continue a run with --resume, or choose another --out."
            )


def read_state(out: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors of the run in `out`, how it was started and where it stands.

    A FileNotFoundError or ValueError says why there is no run to go on with.
    """
    path = Path(out) / STATE
    if not path.is_file():
        raise FileNotFoundError(f"there is no run to resume in {out}: start it without --resume.")
    tensors, note = load_tensors(path)
    if not isinstance(note, dict) or not note.keys() >= {"run", "settings", "progress", "metrics", "derived"}:
        raise ValueError(f"{path} is of an older version of the course, or of something else: train anew.")
    return tensors, note


def load_state(run: Run) -> None:
    """Take the model, the optimizer and the random numbers back to where the run stands."""
    tensors, note = read_state(run.out)
    for name, value in run.identity.items():
        if (started := note["run"].get(name)) != value:
            raise ValueError(
                f"the run in {run.out} was started with {name}={started}, not {value}: where it stands is "
                "counted in that. Give what it was started with, or start another run in another --out."
            )
    weights: dict[str, Tensor] = {}
    moments: dict[int, dict[str, Tensor]] = defaultdict(dict)
    for name, tensor in tensors.items():  # "weights/output.weight", "adam/7/exp_avg", "random"
        kind, _, rest = name.partition("/")
        if kind == "weights":
            weights[rest] = tensor
        elif kind == "adam":
            index, moment = rest.split("/")
            moments[int(index)][moment] = tensor
    checkpoint.load_weights(run.model, weights)
    run.optimizer.load_state_dict({"state": moments, "param_groups": run.optimizer.state_dict()["param_groups"]})
    torch.set_rng_state(tensors["random"])
    device = next(run.model.parameters()).device
    if f"random_{device.type}" in tensors:  # not where the run was begun on another kind of device
        getattr(torch, device.type).set_rng_state(tensors[f"random_{device.type}"], device)
    run.progress, run.metrics = Progress(**note["progress"]), note["metrics"]


def save_epoch(run: Run) -> None:
    """Write all that an epoch adds and renews; the state comes last, because it counts on the rest."""
    save_tensors(_checkpoint(run.out, run.progress.step), dict(run.model.named_parameters()))
    write_whole(run.out / METRICS, "".join(json.dumps(line) + "\n" for line in run.metrics).encode())
    paths = [_checkpoint(run.out, step) for step in _steps(run.metrics)[-run.options.average :]]
    averaged, whole = copy.deepcopy(run.model), []
    for path in filter(Path.exists, paths):
        try:
            checkpoint.model_of(lambda: averaged, load_tensors(path)[0], path)
            whole.append(path)
        except (OSError, ValueError) as error:
            print(f"Careful: left out of the average, {error}", flush=True)
    checkpoint.load_weights(averaged, average_checkpoints(whole))
    save_checkpoint(run.out, averaged, **run.task.info, settings=run.settings)
    if run.best() is run.metrics[-1]:
        save_checkpoint(run.out / BEST, run.model, **run.task.info, settings=run.settings)
        run.task.tokenizer.save(run.out / BEST)
    for path in {*(run.out / CHECKPOINTS).glob(f"{'[0-9]' * 7}.safetensors")} - {*paths}:
        path.unlink()
    save_state(run)


def save_state(run: Run) -> None:
    """Write all that a run needs to go on."""
    tensors: dict[str, Tensor] = {f"weights/{name}": parameter for name, parameter in run.model.named_parameters()}
    for index, moments in run.optimizer.state_dict()["state"].items():
        tensors |= {f"adam/{index}/{name}": moment for name, moment in moments.items()}
    tensors["random"] = torch.get_rng_state()
    device = next(run.model.parameters()).device
    if device.type != "cpu":
        tensors[f"random_{device.type}"] = getattr(torch, device.type).get_rng_state(device)
    note = {"run": run.identity, "settings": run.settings, "progress": asdict(run.progress), "ended_by": run.ended_by()}
    save_tensors(run.out / STATE, tensors, note | {"metrics": run.metrics, "derived": run.length._asdict()})


def _checkpoint(out: Path, step: int) -> Path:
    return out / CHECKPOINTS / f"{step:07}.safetensors"


def _steps(metrics: Sequence[dict[str, Any]]) -> list[int]:
    """List the updates whose checkpoints count: the ends of epochs, and the last line's, wherever its epoch stands."""
    return [line["step"] for line in metrics if line is metrics[-1] or float(line["epoch"]).is_integer()]
