"""The training loop: epochs, validation and progress (§5)."""

import math
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from annotated import training as plain
from annotated.fast.training import make_optimizer
from annotated.training import noam_rate, set_rate
from annotated_workbench import distributed
from annotated_workbench.architectures import config_of
from annotated_workbench.checkpoint import WEIGHTS, load_note, load_tensors, load_weights, readable
from annotated_workbench.data import Pairs, padding_share
from annotated_workbench.files import checksum, locked, remove_leftovers
from annotated_workbench.run_folder import (
    CHECKPOINTS,
    Progress,
    Run,
    load_state,
    newest_state,
    require_new,
    save_epoch,
    save_state,
)
from annotated_workbench.tasks import Batches, Task, TranslationTask
from annotated_workbench.training_options import Length, TrainingOptions, length_of
from annotated_workbench.vocabulary import Tokenizer

ENOUGH_TO_TELL = 20  # updates after which the speed of a run is known


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
    """Train a model to translate, as `fit` does; arguments and errors as there and in `TranslationTask`."""
    options = options or TrainingOptions()
    if resume:
        newest_state(out)
    else:
        require_new(out)
    task = TranslationTask(tokenizer, pairs, val, src, tgt, config_of(model).max_length)
    return fit(model, task, out, options=options, resume=resume)


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

    Each epoch adds a line to metrics.jsonl and a file to checkpoints/, and renews model.safetensors (the average of the
    last checkpoints), config.json and state.safetensors (from where `resume` goes on, on a CPU exactly; if it is
    damaged, from the one before it). The first state is written before the first update.

    Args:
        model: a new model; it ends with the averaged weights.
        task: gives the batches, updates and validates.
        out: the run's folder; no other process may train there.
        options: how to train.
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
    run = _prepare(model, task, Path(out), options, settings or asdict(options), resume)
    with ExitStack() as stack:
        with distributed.agreed():
            if distributed.is_first():
                stack.enter_context(locked(run.out))
        _begin(run, resume)
        while not run.ended():
            line, speed = _train_epoch(run)
            with distributed.agreed():
                _require_finite(run)
            scores = task.validate(run.model, options)
            run.look_at_the_clock()
            line |= {"minutes": run.progress.seconds / 60, **scores, "tokens_per_second": speed}
            run.metrics.append(line)
            with distributed.agreed():
                if distributed.is_first():
                    save_epoch(run)
            print(_report(line, run), flush=True)
        _warn_of_an_end_in_warmup(run)
    with distributed.in_turn():
        load_weights(run.model, load_tensors(run.out / WEIGHTS)[0])
    return run.metrics


def _prepare(
    model: nn.Module, task: Task, out: Path, options: TrainingOptions, settings: dict[str, Any], resume: bool
) -> Run:
    """Find what can be wrong before hours are spent, and say what will be done."""
    with distributed.agreed():
        model = readable(model, **task.info, settings=settings)
    batches = task.batches(options.batch_tokens)
    updates = math.ceil(len(batches) / options.accumulate)
    with distributed.agreed():
        length = length_of(options, updates)
        if resume:  # what the run chose stays, where it is not given anew
            before = load_note(newest_state(out))["derived"]
            length = Length(*(getattr(options, name) or before[name] for name in Length._fields))
    most = length.epochs * updates
    share = padding_share(batches[:: max(1, len(batches) // 1000)])  # ids in files would take long to read
    print(
        f"{len(batches)} batches an epoch, {share:.1%} of their tokens padding; "
        f"{length.epochs} epochs, {most:,} updates at most, the learning rate rising for {length.warmup:,}",
        flush=True,
    )
    if most <= length.warmup:
        print(
            f"Careful: {most} updates in all, and a warm-up of {length.warmup}: the learning rate will not get to its "
            "height. Give a shorter --warmup, more --epochs or smaller --batch-tokens.",
            flush=True,
        )
    identity = {
        **task.identity,
        "batch_tokens": options.batch_tokens,
        "accumulate": options.accumulate,
        "seed": options.seed,
        **{name: value for name, value in asdict(config_of(model)).items() if name != "dropout"},
        "tokenizer": checksum([task.tokenizer.content()]),
    }
    distributed.require_same(f"{identity} {options} {length}")
    optimizer = plain.make_optimizer(model) if options.plain else make_optimizer(model)
    return Run(model, task, out, options, settings, identity, length, optimizer)


def _begin(run: Run, resume: bool) -> None:
    """Take the run to where it stands: the newest state, or a first one, which is written."""
    with distributed.in_turn():
        for folder in (run.out, run.out / CHECKPOINTS):
            remove_leftovers(folder)
        if resume:
            load_state(run)
        else:
            require_new(run.out)
            torch.manual_seed(run.options.seed)
    distributed.start_alike(run.model)
    if run.ended():
        raise ValueError(
            f"the run has done {run.progress.epoch} epochs in {run.progress.seconds / 60:.1f} minutes, as it was told "
            "to: give more --epochs or --max-minutes."
        )
    with distributed.agreed():
        if distributed.is_first():
            if not resume:
                save_state(run)
            run.task.tokenizer.save(run.out)
    run.began = time.perf_counter() - run.progress.seconds


def _train_epoch(run: Run) -> tuple[dict[str, Any], float]:
    """Train to the end of the epoch or of the allowed time; return its line of metrics.jsonl and tokens a second."""
    from tqdm.auto import tqdm

    options, progress = run.options, run.progress
    batches = run.task.batches(options.batch_tokens, 1000 * options.seed + progress.epoch)
    groups = [batches[i : i + options.accumulate] for i in range(0, len(batches), options.accumulate)]
    d_model = config_of(run.model).d_model
    losses, tokens, began = [], 0, time.perf_counter()
    run.model.train()
    distributed.draw_apart(options.seed, progress.step)
    with tqdm(total=len(groups), initial=progress.position, desc=f"epoch {progress.epoch + 1}", disable=None) as bar:
        for group in groups[progress.position :]:
            progress.step += 1
            progress.position += 1
            set_rate(run.optimizer, _rate(progress, len(groups), options, run.length, d_model))
            loss, count = _update(run, group)
            losses.append(loss)
            tokens += count
            speed = tokens / (time.perf_counter() - began)
            bar.set_postfix_str(f"loss {loss:.2f}, {speed:,.0f} tokens/s", refresh=False)  # update draws, now and then
            bar.update()
            run.look_at_the_clock()
            if warning := _warning_of_little_time(run):
                bar.write(warning)
            if run.out_of_time():
                break
    if progress.position == len(groups):
        progress.epoch, progress.position = progress.epoch + 1, 0
    line = {
        "step": progress.step,
        "epoch": progress.epoch + progress.position / len(groups),
        "minutes": progress.seconds / 60,
        "rate": run.optimizer.param_groups[0]["lr"],
        "loss": sum(losses) / len(losses),
    }
    return line, speed


def _update(run: Run, batches: Batches) -> tuple[float, int]:
    try:
        return distributed.update(run.task, run.model, batches, run.optimizer, run.options)
    except ValueError as error:
        raise ValueError(f"update {run.progress.step}: {error} --resume goes on from the last state.") from error


def _rate(progress: Progress, updates: int, options: TrainingOptions, length: Length, d_model: int) -> float:
    """The learning rate of the current update, with `updates` in an epoch."""
    if options.schedule == "noam":
        return length.rate * noam_rate(progress.step, d_model, length.warmup)
    left = 1 - (progress.step - 1) / (updates * length.epochs)
    if options.max_minutes is not None:
        left = min(left, 1 - progress.seconds / (60 * options.max_minutes))
    return length.rate * linear_rate(progress.step, d_model, length.warmup, max(0.0, left))


def _warning_of_little_time(run: Run) -> str:
    """Say, once that can be told, whether the allowed minutes end within the warm-up."""
    minutes, warmup = run.options.max_minutes, run.length.warmup
    if run.progress.step != ENOUGH_TO_TELL or minutes is None:
        return ""
    updates = round(ENOUGH_TO_TELL * 60 * minutes / run.progress.seconds)
    if updates > warmup:
        return ""
    return (
        f"Careful: at this speed about {updates:,} updates fit into {minutes:g} minutes, and {warmup:,} are warm-up. "
        "Give a shorter --warmup, smaller --batch-tokens or more time."
    )


def _warn_of_an_end_in_warmup(run: Run) -> None:
    step, warmup = run.progress.step, run.length.warmup
    if step <= warmup:
        more = "--epochs" if run.progress.epoch >= run.length.epochs else "--max-minutes"
        print(
            f"Careful: the run ended at update {step}, inside its warm-up of {warmup}. Go on with --resume and more "
            f"{more}, or train anew with a shorter --warmup.",
            flush=True,
        )


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


def _require_finite(run: Run) -> None:
    moments = [moment for moments in run.optimizer.state.values() for moment in moments.values()]
    if not all(tensor.isfinite().all() for tensor in (*run.model.parameters(), *moments)):
        raise ValueError(
            f"after update {run.progress.step} the weights are not finite. The last state is kept: go on from it with "
            "--resume and a lower --rate."
        )


def _report(line: dict[str, Any], run: Run) -> str:
    left = line["minutes"] * (run.length.epochs / line["epoch"] - 1)
    if run.options.max_minutes is not None:
        left = min(left, run.options.max_minutes - line["minutes"])
    return (
        f"epoch {line['epoch']:5.2f}  step {line['step']:6}  loss {line['loss']:.3f}  "
        f"{run.task.report(line)}  {line['tokens_per_second']:,.0f} tokens/s  "
        f"{line['minutes']:.1f} min done, {max(left, 0):.1f} min left"
    )
