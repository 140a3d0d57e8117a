"""The training loop: epochs, validation and progress (§5)."""

import math
import random
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from annotated import training
from annotated.fast.training import make_optimizer
from annotated.training import check_loss, noam_rate, set_rate
from annotated_workbench import run_folder
from annotated_workbench.architectures import config_of
from annotated_workbench.checkpoint import WEIGHTS, load_tensors, load_weights, require_readable
from annotated_workbench.data import Pairs, count_targets, count_tokens, padding_share
from annotated_workbench.files import checksum, locked, remove_leftovers
from annotated_workbench.run_folder import BEST, CHECKPOINTS, Progress, Run
from annotated_workbench.tasks import Task, TranslationTask
from annotated_workbench.training_options import Length, TrainingOptions, length_of
from annotated_workbench.vocabulary import Tokenizer


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
    resume: bool = False,
) -> list[dict[str, Any]]:
    """Train a model to translate, as `fit` does."""
    task = TranslationTask(tokenizer, pairs, val, src, tgt, config_of(model).max_length)
    return fit(model, task, out, options=options or TrainingOptions(), resume=resume)


def fit(
    model: nn.Module,
    task: Task,
    out: str | Path,
    *,
    options: TrainingOptions,
    settings: dict[str, Any] | None = None,
    resume: bool = False,
) -> list[dict[str, Any]]:
    """Train a model and leave in `out` all that is needed to use it, and to go on training.

    Each epoch adds a line to metrics.jsonl, which is returned, and a file to checkpoints/, and renews model.safetensors
    (the average of the last checkpoints, which the model ends with), config.json with `settings`, the folder best/ if
    none had a better score in validation, and state.safetensors, from where `resume` goes on, on a CPU exactly; there
    must be a run then, and else none.

    A run that goes on must have the same model, pairs, tokens, batches and seed, because where it stands is counted in
    them. Epochs, minutes, schedule, rate, smoothing, dropout and averaging may change; warm-up and rate stay unless
    they are given, and a new warm-up alone brings its rate. More epochs or minutes move the end at which the linear
    schedule is 0: the rate jumps up to it.

    An OSError or ValueError says why it cannot begin, or that a loss is not finite; the last good state stays.
    """
    run = _prepare(model, task, Path(out), options, settings or asdict(options), resume)
    with locked(run.out):
        _begin(run, resume)
        while not run.ended_by():
            run.metrics.append(_train_epoch(run))
            run_folder.save_epoch(run)
            print(_report(run), flush=True)
    if (best := run.best()) is not run.metrics[-1]:
        print(f"Validation was best after epoch {best['epoch']:.2f}: that model is in {run.out / BEST}.")
    if (ends := run.ended_by()) != "--epochs":
        print(f"Ended by {ends}: it goes on with --resume and more {ends}.")
    load_weights(run.model, load_tensors(run.out / WEIGHTS)[0])
    return run.metrics


def _prepare(
    model: nn.Module, task: Task, out: Path, options: TrainingOptions, settings: dict[str, Any], resume: bool
) -> Run:
    """Find what can be wrong before hours are spent, and say what will be done."""
    require_readable(model, **task.info, settings=settings)
    batches = task.batches(options.batch_tokens)
    updates = math.ceil(len(batches) / options.accumulate)
    length = length_of(options, updates)
    if resume:  # what the run chose stays, where it is not given anew
        before = Length(**run_folder.read_state(out)[1]["derived"])
        rate = before.rate if options.warmup in (None, before.warmup) else length.rate
        length = Length(options.epochs or before.epochs, options.warmup or before.warmup, options.rate or rate)
    most = length.epochs * updates
    share = padding_share(batches[:: max(1, len(batches) // 1000)])  # all would take long in a large corpus
    print(
        f"{len(batches)} batches an epoch, {share:.1%} of their tokens padding; "
        f"{length.epochs} epochs, {most:,} updates at most, the learning rate rising for {length.warmup:,} "
        f"(--rate {length.rate:.2g})",
        flush=True,
    )
    if most <= length.warmup:
        print(
            f"Careful: {most} updates in all, and a warm-up of {length.warmup}: the learning rate will not get to its "
            "height. Give a shorter --warmup and no --rate (it goes as high), more --epochs or smaller --batch-tokens.",
            flush=True,
        )
    identity = task.identity | {name: getattr(options, name) for name in ("batch_tokens", "accumulate", "seed")}
    identity |= {name: value for name, value in asdict(config_of(model)).items() if name != "dropout"}
    identity["tokenizer"] = checksum([task.tokenizer.content()])
    optimizer = training.make_optimizer(model) if options.plain else make_optimizer(model)
    return Run(model, task, out, options, settings, identity, length, optimizer)


def _begin(run: Run, resume: bool) -> None:
    """Take the run to where it stands, and write that down if it is the beginning."""
    if resume:
        run_folder.load_state(run)
    else:
        torch.manual_seed(run.options.seed)
    if ends := run.ended_by():
        raise ValueError(
            f"the run has done {run.progress.epoch} epochs in {run.progress.seconds / 60:.1f} minutes, as it was told "
            f"to: give more {ends}."
        )
    for folder in (run.out, run.out / CHECKPOINTS, run.out / BEST):
        remove_leftovers(folder)
    if not resume:
        run_folder.require_new(run.out)
        run_folder.save_state(run)
    run.task.tokenizer.save(run.out)
    run.looked = time.perf_counter()


def _train_epoch(run: Run) -> dict[str, Any]:
    """Train to the end of the epoch or of the allowed time, and validate; return the line for metrics.jsonl."""
    from tqdm.auto import tqdm

    model, options, progress = run.model, run.options, run.progress
    batches = run.task.batches(options.batch_tokens, mixed_seed(options.seed, progress.epoch))
    groups = [batches[i : i + options.accumulate] for i in range(0, len(batches), options.accumulate)]
    d_model = config_of(model).d_model
    run.look_at_the_clock("files and batches")
    total, targets, tokens, began = 0.0, 0, 0, progress.seconds
    model.train()
    with tqdm(total=len(groups), initial=progress.position, desc=f"epoch {progress.epoch + 1}", disable=None) as bar:
        for group in map(list, groups[progress.position :]):
            progress.step += 1
            progress.position += 1
            set_rate(run.optimizer, _rate(progress, len(groups), options, run.length, d_model))
            try:
                loss, count = update(run, group)
            except ValueError as error:
                raise ValueError(f"update {progress.step}: {error} --resume goes on from the last state.") from error
            total, targets = total + loss * count, targets + count
            tokens += sum(map(count_tokens, group))
            run.look_at_the_clock("update")
            speed = tokens / (progress.seconds - began)
            bar.set_postfix_str(f"loss {loss:.2f}, {speed:,.0f} tokens/s", refresh=False)  # update draws, now and then
            bar.update()
            if run.out_of_time():
                break
    if progress.position == len(groups):
        progress.epoch, progress.position = progress.epoch + 1, 0
    if not all(weight.isfinite().all() for weight in model.parameters()):
        raise ValueError(
            f"after update {progress.step} the weights are not finite. The last state is kept: go on from it with "
            "--resume and a lower --rate."
        )
    scores = run.task.validate(model, options)
    run.look_at_the_clock("validation")
    return {
        "step": progress.step,
        "epoch": progress.epoch + progress.position / len(groups),
        "minutes": progress.seconds / 60,
        "rate": run.optimizer.param_groups[0]["lr"],
        "loss": total / targets,
        **scores,
        "tokens_per_second": speed,
    }


def update(run: Run, batches: Sequence[tuple[Tensor, ...]]) -> tuple[float, int]:
    """Update the model once on several batches as if they were one.

    Returns the loss per target, and how many targets there are. If that loss is not finite, it raises a ValueError and
    no weight changes.
    """
    device = next(run.model.parameters()).device
    targets, total = sum(map(count_targets, batches)), torch.zeros((), device=device)
    run.optimizer.zero_grad()
    for batch in batches:
        loss = 1 / targets * run.task.loss(run.model, [side.to(device) for side in batch], run.options)
        loss.backward()
        total += loss.detach()
    mean = total.item()
    check_loss(mean)
    run.optimizer.step()
    return mean, targets


def mixed_seed(*numbers: int) -> int:
    """Mix numbers, such as a run's seed and an epoch, into a seed that no others give."""
    return random.Random(" ".join(map(str, numbers))).getrandbits(63)


def _rate(progress: Progress, updates: int, options: TrainingOptions, length: Length, d_model: int) -> float:
    """The learning rate of the current update, with `updates` in an epoch."""
    if options.schedule == "noam":
        return length.rate * noam_rate(progress.step, d_model, length.warmup)
    left = 1 - (progress.step - 1) / (updates * length.epochs)
    if options.max_minutes is not None:
        left = min(left, 1 - progress.seconds / (60 * options.max_minutes))
    return length.rate * linear_rate(progress.step, d_model, length.warmup, max(0.0, left))


def linear_rate(step: int, d_model: int, warmup: int, left: float) -> float:
    """Warm up as `noam_rate` does, then fall with the share of the run that is left: a departure from §5.3.

    (d_model · warmup)^−0.5 · min(step / warmup, left).
    """
    return noam_rate(warmup, d_model, warmup) * min(step / warmup, left)


def _report(run: Run) -> str:
    line = run.metrics[-1]
    left = line["minutes"] * (run.length.epochs / line["epoch"] - 1)
    if run.options.max_minutes is not None:
        left = min(left, run.options.max_minutes - line["minutes"])
    return (
        f"epoch {line['epoch']:5.2f}  step {line['step']:6}  loss {line['loss']:.3f}  "
        f"{run.task.report.format(**line)}  {line['tokens_per_second']:,.0f} tokens/s  "
        f"{line['minutes']:.1f} min done, {max(left, 0):.1f} min left"
    )
