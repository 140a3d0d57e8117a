"""The training loop: epochs, validation, progress, and all that a run keeps on disk (§5, §6.1)."""

import copy
import json
import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn

from annotated import training as plain
from annotated.fast.training import make_optimizer
from annotated.training import noam_rate, set_rate
from annotated_workbench import distributed
from annotated_workbench.checkpoint import (
    CONFIG,
    WEIGHTS,
    average_checkpoints,
    load_note,
    load_tensors,
    load_weights,
    readable,
    save_checkpoint,
    save_tensors,
)
from annotated_workbench.data import Pairs, padding_share
from annotated_workbench.files import locked, remove_leftovers, write_whole
from annotated_workbench.limits import BATCH_TOKENS, COUNT, LARGEST_BATCH, MINUTES, RATE, SEED, SHARE
from annotated_workbench.tasks import Task, TranslationTask, tokenizer_checksum
from annotated_workbench.vocabulary import TOKENIZER, Tokenizer

Schedule = Literal["noam", "linear"]
SCHEDULES = get_args(Schedule)
STATE, STATE_BEFORE = "state.safetensors", "state-before.safetensors"
DERIVED = ("epochs", "warmup", "rate")  # options that `with_length` chooses
UPDATES, LEAST_EPOCHS, WARMUP = 3800, 5, 1000  # of a run whose length is not given
ENOUGH_TO_TELL = 20  # updates after which the speed of a run is known
METRICS, CHECKPOINTS = "metrics.jsonl", "checkpoints"


@dataclass(frozen=True)
class TrainingOptions:
    """How to train. Defaults are the paper's where a small corpus allows it (§5).

    Each field says in its metadata what it is, as an option of `train`: argparse takes from there all that it needs to
    know. Its own default is None where what is not given follows from the task or the corpus.

    Args:
        epochs: by default enough for about 3,800 updates, and 5 at least.
        max_minutes: None for no limit.
        batch_tokens: §5.1 has about 25,000.
        schedule: "noam" (§5.3), or as a departure "linear".
        warmup: §5.3 has 4,000; by default 1,000, or a third of a shorter run.
        rate: by default 1, or what keeps the highest rate where the warm-up is shorter by default. Departure unless 1.
        smoothing: ε_ls (§5.4).
        average: §6.1 has 5, or 20.
        bf16: compute products in bfloat16.
        plain: validates so, too; a batch an update, in float32.

    Raises:
        ValueError: a number that makes no sense; the message says which.
    """

    epochs: int | None = field(
        default=None, metadata=dict(type=COUNT, help="passes over the training pairs at most; follows from the corpus")
    )
    max_minutes: float | None = field(
        default=None, metadata=dict(type=MINUTES, help="minutes of training at most, validation included")
    )
    batch_tokens: int = field(
        default=4096,
        metadata=dict(type=BATCH_TOKENS, help="ids a side in a batch, padding included; follows from the corpus"),
    )
    accumulate: int = field(default=1, metadata=dict(type=COUNT, default=1, help="batches per update"))
    schedule: Schedule = field(
        default="noam",
        metadata=dict(
            choices=SCHEDULES,
            help="of the learning rate: the paper's, or linear to 0 where epochs or minutes end (with --resume and "
            "more of them, it jumps up); follows from the task",
        ),
    )
    warmup: int | None = field(
        default=None, metadata=dict(type=COUNT, help="updates until the highest rate; follows from the corpus")
    )
    rate: float | None = field(
        default=None, metadata=dict(type=RATE, help="factor on the paper's learning rate; 1, or less in a short run")
    )
    smoothing: float = field(default=0.1, metadata=dict(type=SHARE, help="label smoothing; follows from the task"))
    average: int = field(
        default=5,
        metadata=dict(type=COUNT, help="last checkpoints, one an epoch, to average; follows from the task"),
    )
    seed: int = field(
        default=0, metadata=dict(type=SEED, default=0, help="of weights, batches and dropout, or of what is drawn")
    )
    bf16: bool = False
    plain: bool = field(
        default=False,
        metadata=dict(
            action="store_true", help="compute by the paper's own files as they are printed: slower, in float32"
        ),
    )

    def __post_init__(self):
        for name in ("epochs", "max_minutes", "batch_tokens", "accumulate", "warmup", "rate", "average"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name}={value} must be above 0 and finite.")
        if self.batch_tokens > LARGEST_BATCH:
            raise ValueError(f"batch_tokens={self.batch_tokens} must be at most {LARGEST_BATCH}: use --accumulate.")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule={self.schedule!r} is unknown: choose from {', '.join(SCHEDULES)}.")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing={self.smoothing} must be at least 0 and below 1.")
        if self.plain and (self.bf16 or self.accumulate > 1):
            raise ValueError(
                "plain training computes in float32, a batch an update: leave --precision bf16 and --accumulate."
            )
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed={self.seed} must lie in 0 … {2**32 - 1}.")


def defaults_for(pairs: int) -> dict[str, Any]:
    """Choose sizes by the number of training pairs: the fewer, the smaller the model, its vocabulary and its batches.

    Tried with the first 400, 3,000, 12,000 and all 29,000 pairs of Multi30k and ten minutes of two cores, one seed
    (`experiments/corpus_size.py`). Where the small model begins is a guess between 12,000 and 29,000; as it takes four
    times as long over a token, it gets smaller batches, so that ten minutes hold enough updates.

    Args:
        pairs: number of training pairs.

    Returns:
        The command line's options by name: preset, vocab_size, batch_tokens and dropout.
    """
    root = math.sqrt(pairs)
    if pairs >= 20_000:
        return {"preset": "small", "vocab_size": 6000, "batch_tokens": 2048, "dropout": 0.1}
    return {
        "preset": "tiny",
        "vocab_size": min(6000, max(500, round(60 * root))),
        "batch_tokens": max(256, round(25 * root)),
        "dropout": 0.3 if pairs < 10_000 else 0.2,
    }


def with_length(options: TrainingOptions, updates: int) -> TrainingOptions:
    """Choose epochs, warm-up and rate where they are not given: as many updates in all, whatever the corpus.

    The highest rate stays that of a warm-up of `WARMUP`: with a higher one the paper's post-norm layers are stuck.

    Args:
        options: how to train.
        updates: number of updates in an epoch.
    """
    epochs = options.epochs or max(LEAST_EPOCHS, math.ceil(UPDATES / updates))
    warmup = options.warmup or min(WARMUP, max(1, epochs * updates // 3))
    rate = options.rate or (math.sqrt(warmup / WARMUP) if options.warmup is None else 1.0)
    return replace(options, epochs=epochs, warmup=warmup, rate=rate)


def _as_before(out: Path, options: TrainingOptions, updates: int) -> TrainingOptions:
    """Take over what the run in `out` derived, where it is not given anew."""
    note = load_note(newest_state(out))
    before = note.get("derived")  # states of earlier versions do not say, but how the run was started
    if before is None:
        started = {name: note["settings"].get(name) for name in DERIVED}
        before = asdict(with_length(replace(options, **started), updates))
    given = {name: getattr(options, name) or before[name] for name in DERIVED}
    return replace(options, **given)


@dataclass
class Progress:
    """Where a run stands: updates and seconds in all, the current epoch (from 0) and the updates done in it."""

    step: int = 0
    seconds: float = 0.0
    epoch: int = 0
    position: int = 0


def train(
    model: nn.Module,
    tokenizer: Tokenizer,
    pairs: Pairs,
    val: Pairs,
    out: str | Path,
    *,
    src: str = "de",
    tgt: str = "en",
    options: TrainingOptions | None = None,
    settings: dict[str, Any] | None = None,
    resume: bool = False,
) -> list[dict[str, Any]]:
    """Train a model and leave in `out` all that is needed to translate with it, and to go on training.

    Each epoch adds a line to metrics.jsonl and a file to checkpoints/, and renews model.safetensors (the average of the
    last checkpoints), config.json and state.safetensors (from where `resume` goes on, on a CPU exactly; if it is
    damaged, from the one before it). The first state is written before the first update.

    Args:
        model: a new model; it ends with the averaged weights.
        tokenizer: turns the pairs into ids.
        pairs: training pairs; too long ones are left out.
        val: validation pairs, decoded greedily after each epoch; too long ones are left out.
        out: the run's folder; no other process may train there.
        src, tgt: the languages of the pairs.
        options: how to train, by default `TrainingOptions()`.
        settings: what config.json keeps of how the run was started, by default the options.
        resume: go on with the run in `out`. Its model, pairs, tokens, batches and seed must be the same, because where
            it stands is counted in them. Epochs, minutes, schedule, rate, smoothing, dropout and averaging may change;
            warm-up and rate stay what they were unless they are given. More epochs or minutes move the end at which the
            linear schedule is 0: the rate jumps to what it is on the way there.

    Returns:
        The lines of metrics.jsonl.

    Raises:
        FileExistsError: `out` already holds a run or a model, and `resume` is not set.
        FileNotFoundError: `resume` is set and there is no run.
        BlockingIOError: another process is training in `out`.
        ValueError: the run in `out` is another one, or has nothing left to do; or the model is none that could be read
            back; or a loss is not finite. Then the last good state is there to go on from.
    """
    options = options or TrainingOptions()
    if resume:
        newest_state(out)
    else:
        require_new(out)
    config: Any = model.config
    task = TranslationTask(tokenizer, pairs, val, src, tgt, config.max_length)
    return fit(model, task, out, options=options, settings=settings, resume=resume)


def fit(
    model: nn.Module,
    task: Task,
    out: str | Path,
    *,
    options: TrainingOptions,
    settings: dict[str, Any] | None = None,
    resume: bool = False,
) -> list[dict[str, Any]]:
    """Do what `train` does, for any task; arguments and errors as there."""
    out, settings = Path(out), settings or asdict(options)
    info = {**task.info, "settings": settings}
    with distributed.agreed():  # before hours are spent on what no one can load
        model = readable(model, **info)
    config: Any = model.config
    batches = task.batches(options.batch_tokens)
    updates = math.ceil(len(batches) / options.accumulate)
    with distributed.agreed():
        options = with_length(_as_before(out, options, updates) if resume else options, updates)
    assert options.epochs is not None and options.warmup is not None
    most = options.epochs * updates
    print(
        f"{len(batches)} batches an epoch, {padding_share(batches):.1%} of their tokens padding; "
        f"{options.epochs} epochs, {most:,} updates at most, the learning rate rising for {options.warmup:,}",
        flush=True,
    )
    if most <= options.warmup:
        print(
            f"Careful: {most} updates in all, and a warm-up of {options.warmup}: the learning rate will not get to its "
            "height. Give a shorter --warmup, more --epochs or smaller --batch-tokens.",
            flush=True,
        )
    identity = {
        **task.identity,
        "batch_tokens": options.batch_tokens,
        "accumulate": options.accumulate,
        "seed": options.seed,
        **{name: value for name, value in asdict(config).items() if name != "dropout"},
        "tokenizer": tokenizer_checksum(task.tokenizer),
    }

    distributed.require_same(f"{identity} {options}")
    with ExitStack() as stack:
        with distributed.agreed():
            if distributed.is_first():
                stack.enter_context(locked(out))
        optimizer = plain.make_optimizer(model) if options.plain else make_optimizer(model)
        with distributed.in_turn():
            for folder in (out, out / CHECKPOINTS):
                remove_leftovers(folder)
            if resume:
                progress, metrics = _load_state(out, model, optimizer, identity)
            else:
                require_new(out)
                torch.manual_seed(options.seed)
                progress, metrics = Progress(), []
        distributed.start_alike(model)
        if progress.epoch >= options.epochs or _out_of_time(progress, options):
            raise ValueError(
                f"the run has done {progress.epoch} epochs in {progress.seconds / 60:.1f} minutes, as it was told to: "
                "give more --epochs or --max-minutes."
            )

        def save_state() -> None:
            note = {"run": identity, "settings": settings, "progress": asdict(progress), "metrics": metrics}
            _save_state(out, model, optimizer, note | {"derived": {name: getattr(options, name) for name in DERIVED}})

        with distributed.agreed():
            if distributed.is_first():
                if not resume:
                    save_state()
                task.tokenizer.save(out)
        began = time.perf_counter() - progress.seconds
        while progress.epoch < options.epochs and not _out_of_time(progress, options):
            batches = task.batches(options.batch_tokens, 1000 * options.seed + progress.epoch)
            groups = [batches[i : i + options.accumulate] for i in range(0, len(batches), options.accumulate)]
            loss, speed = _train_epoch(model, task, optimizer, groups, progress, options, began)
            with distributed.agreed():
                _require_finite(model, optimizer, progress)
            scores = task.validate(model, bf16=options.bf16, plain=options.plain)
            progress.seconds = distributed.from_first(time.perf_counter() - began)
            line = {
                "step": progress.step,
                "epoch": progress.epoch + progress.position / len(groups),
                "minutes": progress.seconds / 60,
                "rate": optimizer.param_groups[0]["lr"],
                "loss": loss,
                **scores,
                "tokens_per_second": speed,
            }
            metrics.append(line)
            with distributed.agreed():
                if distributed.is_first():
                    save_tensors(_checkpoint(out, progress.step), dict(model.named_parameters()))
                    write_whole(out / METRICS, "".join(json.dumps(line) + "\n" for line in metrics).encode())
                    _save_average(out, model, metrics, options.average, **info)
                    # One checkpoint more stays than is averaged: should this state be damaged, the one before needs it.
                    _remove_checkpoints(out, _steps(metrics)[-options.average - 1 :])
                    save_state()
            print(_report(line, task, options), flush=True)
        if progress.step <= options.warmup:
            more = "--epochs" if progress.epoch >= options.epochs else "--max-minutes"
            print(
                f"Careful: the run ended at update {progress.step}, inside its warm-up of {options.warmup}. Go on with "
                f"--resume and more {more}, or train anew with a shorter --warmup.",
                flush=True,
            )
    with distributed.in_turn():
        load_weights(model, load_tensors(out / WEIGHTS)[0])
    return metrics


def _train_epoch(
    model: nn.Module,
    task: Task,
    optimizer: torch.optim.Adam,
    groups: Sequence[Sequence[tuple[Tensor, ...]]],
    progress: Progress,
    options: TrainingOptions,
    began: float,
) -> tuple[float, float]:
    """Train to the end of the epoch or of the allowed time; return the mean loss and the tokens per second."""
    from tqdm.auto import tqdm

    config = cast(Any, model.config)
    losses, tokens, epoch_began = [], 0, time.perf_counter()
    model.train()
    distributed.draw_apart(options.seed, progress.step)
    with tqdm(total=len(groups), initial=progress.position, desc=f"epoch {progress.epoch + 1}", disable=None) as bar:
        for group in groups[progress.position :]:
            progress.step += 1
            progress.position += 1
            set_rate(optimizer, _rate(progress, len(groups), options, config.d_model))
            try:
                how = {"bf16": options.bf16, "plain": options.plain}
                loss, count = distributed.update(task, model, group, optimizer, options.smoothing, **how)
            except ValueError as error:
                raise ValueError(f"update {progress.step}: {error} --resume goes on from the last state.") from error
            losses.append(loss)
            tokens += count
            speed = tokens / (time.perf_counter() - epoch_began)
            bar.update()
            bar.set_postfix_str(f"loss {losses[-1]:.2f}, {speed:,.0f} tokens/s")
            progress.seconds = distributed.from_first(time.perf_counter() - began)
            if progress.step == ENOUGH_TO_TELL and options.max_minutes is not None and options.warmup is not None:
                fit = round(ENOUGH_TO_TELL * 60 * options.max_minutes / progress.seconds)
                if fit <= options.warmup:
                    bar.write(
                        f"Careful: at this speed about {fit:,} updates fit into {options.max_minutes:g} minutes, and "
                        f"{options.warmup:,} are warm-up. Give a shorter --warmup, smaller --batch-tokens or more time."
                    )
            if _out_of_time(progress, options):
                break
    if progress.position == len(groups):
        progress.epoch, progress.position = progress.epoch + 1, 0
    return sum(losses) / len(losses), speed


def _rate(progress: Progress, updates: int, options: TrainingOptions, d_model: int) -> float:
    """The learning rate of the current update, with `updates` in an epoch."""
    assert options.epochs is not None and options.warmup is not None and options.rate is not None
    if options.schedule == "noam":
        return options.rate * noam_rate(progress.step, d_model, options.warmup)
    left = 1 - (progress.step - 1) / (updates * options.epochs)
    if options.max_minutes is not None:
        left = min(left, 1 - progress.seconds / (60 * options.max_minutes))
    return options.rate * linear_rate(progress.step, d_model, options.warmup, max(0.0, left))


def _out_of_time(progress: Progress, options: TrainingOptions) -> bool:
    return options.max_minutes is not None and progress.seconds >= 60 * options.max_minutes


def linear_rate(step: int, d_model: int, warmup: int, left: float) -> float:
    """Warm up as `noam_rate` does, then fall linearly to 0 at the end of the run: a departure from §5.3.

    (d_model · warmup)^−0.5 · min(step / warmup, left).

    Args:
        step: number of the update, from 1.
        d_model: width of the model.
        warmup: updates until Noam's highest rate.
        left: the share of the run that is left, from 1 to 0.

    Raises:
        ValueError: a number is below 1, or left is not a share.
    """
    if step < 1:
        raise ValueError(f"step={step} must be at least 1.")
    if not 0 <= left <= 1:
        raise ValueError(f"left={left} must lie in 0 … 1.")
    return noam_rate(warmup, d_model, warmup) * min(step / warmup, left)


def require_new(out: str | Path) -> None:
    """Refuse a folder for a new run where anything lies that a run writes: it may be somebody's only copy.

    Raises:
        FileExistsError: a run, or part of one, is there.
        NotADirectoryError: `out` is a file, or a folder that it shall lie in is.
    """
    out = Path(out)
    for folder in (out, *out.parents):
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(f"{folder} is a file: give a folder as --out.")
    for name in (STATE, STATE_BEFORE, WEIGHTS, CONFIG, TOKENIZER, METRICS, CHECKPOINTS):
        if (out / name).exists() or (out / name).is_symlink():
            raise FileExistsError(
                f"{out} already holds a run or a model ({name}): continue a run with --resume, or choose another --out."
            )


def newest_state(out: str | Path) -> Path:
    """Find the file from which a run goes on: the last state, or if that is damaged the one before it.

    Raises:
        FileNotFoundError: there is none.
        ValueError: both are damaged.
    """
    problem: Exception = FileNotFoundError(f"there is no run to resume in {out}: start it without --resume.")
    for path in (Path(out) / STATE, Path(out) / STATE_BEFORE):
        try:
            note = load_note(path)
            if not isinstance(note, dict) or not note.keys() >= {"run", "settings", "progress", "metrics"}:
                raise ValueError(f"{path} is of an older version of the course, or of something else: train anew.")
            return path
        except (FileNotFoundError, NotADirectoryError):
            continue
        except ValueError as error:
            problem = error
    raise problem


def load_settings(out: str | Path) -> dict[str, Any]:
    """Read how the run in `out` was started; raises as `newest_state` does."""
    return load_note(newest_state(out))["settings"]


def _load_state(
    out: Path, model: nn.Module, optimizer: torch.optim.Adam, identity: dict[str, Any]
) -> tuple[Progress, list[dict[str, Any]]]:
    """Take the model, the optimizer and the random numbers back to the newest state; delete what is newer than it."""
    path = newest_state(out)
    tensors, note = load_tensors(path)
    for name, value in identity.items():
        found = note["run"].get(name, value)  # what earlier versions did not write down
        if found != value:
            raise ValueError(
                f"the run in {out} was started with {name}={found}, not {value}: where it stands is "
                "counted in that. Give what it was started with, or start another run in another --out."
            )
    load_weights(
        model, {name.removeprefix("weights/"): w for name, w in tensors.items() if name.startswith("weights/")}
    )
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("adam/"):
            _, index, moment = name.split("/")
            moments.setdefault(int(index), {})[moment] = tensor
    optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
    torch.set_rng_state(tensors["random"])
    device = next(model.parameters()).device
    if f"random_{device.type}" in tensors:  # not where the run was begun on another kind of device
        getattr(torch, device.type).set_rng_state(tensors[f"random_{device.type}"], device)
    progress, metrics = Progress(**note["progress"]), note["metrics"]

    if path.name == STATE_BEFORE:
        print(f"{out / STATE} is damaged or missing: going on from the one before it, update {progress.step}.")
        (out / STATE).unlink(missing_ok=True)
    _remove_checkpoints(out, [step for step in _checkpoints(out) if step <= progress.step])
    return progress, metrics


def _save_state(out: Path, model: nn.Module, optimizer: torch.optim.Adam, note: dict[str, Any]) -> None:
    """Write the state, and keep the one before it: should the new one be damaged, an epoch is lost and not the run."""
    tensors: dict[str, Tensor] = {f"weights/{name}": parameter for name, parameter in model.named_parameters()}
    for index, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"adam/{index}/{name}": moment for name, moment in moments.items()}
    tensors["random"] = torch.get_rng_state()
    device = next(model.parameters()).device
    if device.type != "cpu":
        tensors[f"random_{device.type}"] = getattr(torch, device.type).get_rng_state(device)
    if (out / STATE).exists():
        (out / STATE).replace(out / STATE_BEFORE)
    save_tensors(out / STATE, tensors, note)


def _require_finite(model: nn.Module, optimizer: torch.optim.Adam, progress: Progress) -> None:
    moments = [moment for moments in optimizer.state.values() for moment in moments.values()]
    if not all(tensor.isfinite().all() for tensor in (*model.parameters(), *moments)):
        raise ValueError(
            f"after update {progress.step} the weights are not finite. The last state is kept: go on from it with "
            "--resume and a lower --rate."
        )


def _checkpoint(out: Path, step: int) -> Path:
    return out / CHECKPOINTS / f"{step:07}.safetensors"


def _checkpoints(out: Path) -> list[int]:
    """List the updates after which a checkpoint was written, by the names that `_checkpoint` gives; others stay."""
    names = ((path, path.name.removesuffix(".safetensors")) for path in (out / CHECKPOINTS).glob("*.safetensors"))
    return sorted(int(name) for path, name in names if name.isdecimal() and path == _checkpoint(out, int(name)))


def _remove_checkpoints(out: Path, kept: Sequence[int]) -> None:
    for step in set(_checkpoints(out)) - set(kept):
        _checkpoint(out, step).unlink()


def _steps(metrics: Sequence[dict[str, Any]]) -> list[int]:
    """List the updates whose checkpoints count: the ends of epochs, and the last line's, wherever its epoch stands."""
    return [line["step"] for line in metrics if line is metrics[-1] or float(line["epoch"]).is_integer()]


def _save_average(out: Path, model: nn.Module, metrics: Sequence[dict[str, Any]], count: int, **info: Any) -> None:
    """Make the average of the last checkpoints that are still there the run's model."""
    paths = [_checkpoint(out, step) for step in _steps(metrics)[-count:]]
    averaged = copy.deepcopy(model)
    load_weights(averaged, average_checkpoints([path for path in paths if path.exists()]))
    save_checkpoint(out, averaged, **info)


def _report(line: dict[str, Any], task: Task, options: TrainingOptions) -> str:
    assert options.epochs is not None
    left = line["minutes"] * (options.epochs / line["epoch"] - 1)
    if options.max_minutes is not None:
        left = min(left, options.max_minutes - line["minutes"])
    return (
        f"epoch {line['epoch']:5.2f}  step {line['step']:6}  loss {line['loss']:.3f}  "
        f"{task.report(line)}  {line['tokens_per_second']:,.0f} tokens/s  "
        f"{line['minutes']:.1f} min done, {max(left, 0):.1f} min left"
    )
