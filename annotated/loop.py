"""The training loop: epochs, validation, progress, and all that a run keeps on disk (§5, §6.1)."""

import copy
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from annotated.checkpoint import (
    WEIGHTS,
    average_checkpoints,
    load_tensors,
    load_weights,
    save_checkpoint,
    save_tensors,
)
from annotated.data import Batch, Pairs, encode_pairs, make_batches, padding_share
from annotated.decoding import bleu, translate
from annotated.training import linear_rate, make_optimizer, noam_rate, update
from annotated.translator import Translator
from annotated.vocabulary import Tokenizer, write_whole

SCHEDULES = ("noam", "linear")


@dataclass(frozen=True)
class TrainingOptions:
    """How to train. Defaults are the paper's where a small corpus allows it (§5).

    Args:
        epochs: passes over the training pairs at most.
        max_minutes: minutes of training at most, validation included; None for no limit.
        batch_tokens: ids a side in one batch, padding included (§5.1: about 25,000).
        accumulate: batches per update.
        schedule: "noam" (§5.3), or as a departure "linear", which falls to 0 where epochs or minutes end.
        warmup: updates until the highest rate (§5.3: 4,000).
        rate: factor on the schedule's rate. Departure unless 1.
        smoothing: ε_ls (§5.4).
        average: how many of the last checkpoints, one an epoch, make the final model (§6.1).
        seed: of the weights, the batches and the dropout.
        bf16: compute products in bfloat16.

    Raises:
        ValueError: a number that makes no sense; the message says which.
    """

    epochs: int = 30
    max_minutes: float | None = None
    batch_tokens: int = 4096
    accumulate: int = 1
    schedule: str = "noam"
    warmup: int = 4000
    rate: float = 1.0
    smoothing: float = 0.1
    average: int = 5
    seed: int = 0
    bf16: bool = False

    def __post_init__(self):
        for name in ("epochs", "max_minutes", "batch_tokens", "accumulate", "warmup", "rate", "average"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name}={value} must be above 0.")
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule={self.schedule!r} is unknown: choose from {', '.join(SCHEDULES)}.")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing={self.smoothing} must be at least 0 and below 1.")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed={self.seed} must lie in 0 … {2**32 - 1}.")


@dataclass
class Progress:
    """Where a run stands: updates and seconds in all, the current epoch (from 0) and the updates done in it."""

    step: int = 0
    seconds: float = 0.0
    epoch: int = 0
    position: int = 0


def train(
    model: Translator,
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
    last checkpoints), config.json and state.safetensors (from where `resume` goes on, on a CPU exactly).

    Args:
        model: a new model; it ends with the averaged weights.
        tokenizer: turns the pairs into ids.
        pairs: training pairs; too long ones are left out.
        val: validation pairs, decoded greedily after each epoch.
        out: the run's folder.
        src, tgt: the languages of the pairs.
        options: how to train, by default `TrainingOptions()`.
        settings: what config.json keeps of how the run was started, by default the options.
        resume: go on with the run in `out`.

    Returns:
        The lines of metrics.jsonl.

    Raises:
        FileExistsError: `out` already holds a run and `resume` is not set.
        FileNotFoundError: `resume` is set and there is no run.
        ValueError: the run in `out` has another model, or nothing left to do; a validation pair is too long.
    """
    out, options = Path(out), options or TrainingOptions()
    state = out / "state.safetensors"
    optimizer = make_optimizer(model)
    progress, metrics = Progress(), []
    if resume:
        progress, metrics = _load_state(state, model, optimizer)
    elif state.exists():
        raise FileExistsError(f"{out} already holds a run: continue it with --resume, or choose another --out.")
    else:
        torch.manual_seed(options.seed)
        for leftover in (out / "checkpoints").glob("*.safetensors"):
            leftover.unlink()
    if progress.epoch >= options.epochs or _out_of_time(progress, options):
        raise ValueError(
            f"the run has done {progress.epoch} epochs in {progress.seconds / 60:.1f} minutes, as it was told to: "
            "give more --epochs or --max-minutes."
        )
    limit = model.config.max_length
    encode_pairs(val, tokenizer, src, tgt, limit)  # a sentence too long to translate is better found now than later
    sources, targets, dropped = encode_pairs(pairs, tokenizer, src, tgt, limit, drop_long=True)
    if dropped:
        print(f"{dropped} of {len(pairs.source)} training pairs are longer than {limit} tokens and left out.")
    batches = make_batches(sources, targets, options.batch_tokens)
    print(f"{len(batches)} batches an epoch, {padding_share(batches):.1%} of their tokens padding", flush=True)
    tokenizer.save(out)
    began = time.perf_counter() - progress.seconds

    while progress.epoch < options.epochs and not _out_of_time(progress, options):
        batches = make_batches(sources, targets, options.batch_tokens, seed=1000 * options.seed + progress.epoch)
        groups = [batches[i : i + options.accumulate] for i in range(0, len(batches), options.accumulate)]
        loss, speed = _train_epoch(model, optimizer, groups, progress, options, began)
        save_tensors(out / "checkpoints" / f"{progress.step:07}.safetensors", dict(model.named_parameters()))
        val_bleu, _ = bleu(translate(model, tokenizer, val.source, src, beam=0, bf16=options.bf16), val.target)
        progress.seconds = time.perf_counter() - began
        line = {
            "step": progress.step,
            "epoch": progress.epoch + progress.position / len(groups),
            "minutes": progress.seconds / 60,
            "rate": optimizer.param_groups[0]["lr"],
            "loss": loss,
            "val_bleu": val_bleu,
            "tokens_per_second": speed,
        }
        metrics.append(line)
        write_whole(out / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in metrics).encode())
        _save_average(out, model, options.average, src=src, tgt=tgt, settings=settings or asdict(options))
        _save_state(state, model, optimizer, progress, metrics)
        print(_report(line, options), flush=True)
    load_weights(model, load_tensors(out / WEIGHTS)[0])
    return metrics


def _train_epoch(
    model: Translator,
    optimizer: torch.optim.Adam,
    groups: Sequence[Sequence[Batch]],
    progress: Progress,
    options: TrainingOptions,
    began: float,
) -> tuple[float, float]:
    """Train to the end of the epoch or of the allowed time; return the mean loss and the tokens per second."""
    from tqdm.auto import tqdm

    device = next(model.parameters()).device
    losses, tokens, epoch_began = [], 0, time.perf_counter()
    model.train()
    with tqdm(total=len(groups), initial=progress.position, desc=f"epoch {progress.epoch + 1}", disable=None) as bar:
        for group in groups[progress.position :]:
            progress.step += 1
            progress.position += 1
            for parameters in optimizer.param_groups:
                parameters["lr"] = _rate(progress, len(groups), options, model.config.d_model)
            group = [Batch(src.to(device), tgt.to(device)) for src, tgt in group]
            losses.append(update(model, group, optimizer, options.smoothing, bf16=options.bf16))
            tokens += sum(int((side != model.config.pad_id).sum()) for batch in group for side in batch)
            speed = tokens / (time.perf_counter() - epoch_began)
            bar.update()
            bar.set_postfix_str(f"loss {losses[-1]:.2f}, {speed:,.0f} tokens/s")
            progress.seconds = time.perf_counter() - began
            if _out_of_time(progress, options):
                break
    if progress.position == len(groups):
        progress.epoch, progress.position = progress.epoch + 1, 0
    return sum(losses) / len(losses), speed


def _rate(progress: Progress, updates: int, options: TrainingOptions, d_model: int) -> float:
    """The learning rate of the current update, with `updates` in an epoch."""
    if options.schedule == "noam":
        return options.rate * noam_rate(progress.step, d_model, options.warmup)
    left = 1 - (progress.step - 1) / (updates * options.epochs)
    if options.max_minutes is not None:
        left = min(left, 1 - progress.seconds / (60 * options.max_minutes))
    return options.rate * linear_rate(progress.step, d_model, options.warmup, max(0.0, left))


def _out_of_time(progress: Progress, options: TrainingOptions) -> bool:
    return options.max_minutes is not None and progress.seconds >= 60 * options.max_minutes


def _save_average(out: Path, model: Translator, count: int, **info: Any) -> None:
    """Make the last checkpoints' average the run's model; delete the older ones."""
    checkpoints = sorted((out / "checkpoints").glob("*.safetensors"))
    averaged = copy.deepcopy(model)
    load_weights(averaged, average_checkpoints(checkpoints[-count:]))
    save_checkpoint(out, averaged, **info)
    for path in checkpoints[:-count]:
        path.unlink()


def _save_state(path: Path, model: Translator, optimizer: torch.optim.Adam, progress: Progress, metrics: list) -> None:
    tensors = {f"weights/{name}": parameter for name, parameter in model.named_parameters()}
    for index, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"adam/{index}/{name}": moment for name, moment in moments.items()}
    tensors["random"] = torch.get_rng_state()
    device = next(model.parameters()).device
    if device.type == "cuda":
        tensors["random_cuda"] = torch.cuda.get_rng_state(device)
    save_tensors(path, tensors, {"progress": asdict(progress), "metrics": metrics})


def _load_state(path: Path, model: Translator, optimizer: torch.optim.Adam) -> tuple[Progress, list[dict[str, Any]]]:
    if not path.exists():
        raise FileNotFoundError(f"there is no run to resume in {path.parent}: start it without --resume.")
    tensors, note = load_tensors(path)
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
    if device.type == "cuda" and "random_cuda" in tensors:  # not where the run was begun on a CPU
        torch.cuda.set_rng_state(tensors["random_cuda"], device)
    return Progress(**note["progress"]), note["metrics"]


def _report(line: dict[str, Any], options: TrainingOptions) -> str:
    left = line["minutes"] * (options.epochs / line["epoch"] - 1)
    if options.max_minutes is not None:
        left = min(left, options.max_minutes - line["minutes"])
    return (
        f"epoch {line['epoch']:5.2f}  step {line['step']:6}  loss {line['loss']:.3f}  "
        f"validation BLEU {line['val_bleu']:5.2f}  {line['tokens_per_second']:,.0f} tokens/s  "
        f"{line['minutes']:.1f} min done, {max(left, 0):.1f} min left"
    )
