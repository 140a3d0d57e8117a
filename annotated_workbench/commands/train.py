"""train: a corpus or files in, a run out."""

import shlex
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from annotated_workbench import vocabulary
from annotated_workbench.architectures import ARCHITECTURES, PRESETS, USES, config_of, make_model
from annotated_workbench.checkpoint import CONFIG, load_translator, model_of
from annotated_workbench.commands.options import COMPUTE, PROGRAM, Command
from annotated_workbench.commands.shared import find_device, load_splits, tell_doubles, wants_bfloat16
from annotated_workbench.data import hold_out, load_corpus, load_text, read_pairs, read_text, split_text
from annotated_workbench.run_folder import read_state, require_new
from annotated_workbench.runs import fit
from annotated_workbench.tasks import ClassificationTask, Task, TextTask, TranslationTask
from annotated_workbench.training_options import TrainingOptions, defaults_for, length_of

# What is chosen where it is not given: for a text as tried on tinyshakespeare in 15 minutes of two cores, for reviews
# as tried on the validation part of rt_polarity.
SMALL = dict(schedule="linear", warmup=100, average=1)
GENERATION = dict(preset="characters", dropout=0.1, batch_tokens=1024, rate=0.25, smoothing=0.0) | SMALL
CLASSIFICATION = dict(preset="reviews", dropout=0.5, epochs=8, batch_tokens=1500, rate=0.11, vocab_size=4000) | SMALL
TOKENIZERS = {"translation": "bpe", "generation": "characters", "classification": "words"}  # unless given
STUCK, BARELY = 1.0, 5.0  # BLEU of a few frequent words, whatever the source; and of hardly more
NOT_KEPT = ("command", "run", "resume", "out", "debug")  # of what is given, in a run's settings


def run(args: Namespace) -> None:
    """Train a new model or that of another run, or go on with a run."""
    device = find_device(args.device)
    if not args.resume:
        require_new(args.out)
    model, task = TASKS[args.task](args)
    model.to(device)
    bf16 = wants_bfloat16(args, model)
    print(
        f"{len(task.tokenizer):,} tokens in the vocabulary, {sum(p.numel() for p in model.parameters()):,} "
        f"parameters, {device.type}, {'bfloat16' if bf16 else 'float32'}, {torch.get_num_threads()} threads",
        flush=True,
    )
    given = {field.name: getattr(args, field.name) for field in fields(TrainingOptions) if field.metadata}
    options = TrainingOptions(**{name: value for name, value in given.items() if value is not None}, bf16=bf16)
    settings = {name: value for name, value in vars(args).items() if name not in NOT_KEPT}
    metrics = fit(model, task, args.out, options=options, settings=settings, resume=args.resume)
    print(_what_next(args, [line["val_bleu"] for line in metrics if "val_bleu" in line]))


def _what_next(args: Namespace, bleus: Sequence[float]) -> str:
    """Say how to use what was trained or, if by BLEU after each epoch it learned nothing, how to train it."""
    last, after_a_third = (bleus[-1], bleus[(len(bleus) + 2) // 3 - 1]) if bleus else (BARELY, BARELY)
    if last >= BARELY or min(last, after_a_third) >= STUCK:
        return f"Try it: {PROGRAM} {USES[args.task]} {shlex.quote(args.out)}"
    note = read_state(args.out)[1]
    _, warmup, rate = note["derived"].values()
    usual = length_of(TrainingOptions(warmup=warmup), 1).rate
    longer = f"go on with --resume and more {note['ended_by']}; if it stays so, "
    way = f"start again, in another --out, with --rate {min(usual, rate / 3):.2g} and for some hundred updates at least"
    return f"Its validation BLEU is {last:.2f}, so it cannot translate: {longer * (rate < 1.01 * usual)}{way}."


def translation(args: Namespace) -> tuple[nn.Module, Task]:
    """Make a model, and the task to learn from pairs of sentences."""
    if bool(args.val_source) != bool(args.val_target) or (args.val_source and args.corpus):
        raise ValueError("--val-source and --val-target go together, and with --source and --target.")
    start = _read_init(args) if args.init else None
    src, tgt = start[2:] if start else (args.src or "de", args.tgt or "en")
    if args.corpus:
        pairs, val = (load_corpus(args.corpus, split, src, tgt) for split in ("train", "val"))
    elif args.val_source:
        pairs, val = read_pairs(args.source, args.target), read_pairs(args.val_source, args.val_target)
    else:
        pairs = read_pairs(args.source, args.target)
        pairs, val = hold_out(pairs, min(1000, max(1, len(pairs.source) // 20)))  # the same for every --seed
    count = len(pairs.source)
    _choose(args, f"{count:,} training and {len(val.source):,} validation pairs", defaults_for(count))
    tell_doubles(val, pairs)
    model, tokenizer = start[:2] if start else _new_model(args, pairs, (src, tgt))
    return model, TranslationTask(tokenizer, pairs, val, src, tgt, config_of(model).max_length)


def generation(args: Namespace) -> tuple[nn.Module, Task]:
    """Make a model, and the task to continue a text, of which the end is held out."""
    text, val = split_text(read_text(args.text) if args.text else load_text(args.corpus))
    _choose(args, f"{len(text):,} training and {len(val):,} validation characters", GENERATION)
    model, tokenizer = _new_model(args, [text], [""])
    return model, TextTask(tokenizer, text, val, config_of(model).max_length)


def classification(args: Namespace) -> tuple[nn.Module, Task]:
    """Make a model, and the task to learn the labels of texts."""
    (reviews, val), language = load_splits(args, "train", "val"), args.src or "en"
    classes = len(set(reviews.labels))
    size = f"{len(reviews.texts):,} training and {len(val.texts):,} validation texts of {classes} labels"
    _choose(args, size, CLASSIFICATION)
    tell_doubles(val, reviews)
    model, tokenizer = _new_model(args, [reviews.texts], [language], classes=classes)
    return model, ClassificationTask(tokenizer, reviews, val, language, config_of(model).max_length)


TASKS = {"translation": translation, "generation": generation, "classification": classification}


def _choose(args: Namespace, size: str, defaults: dict[str, Any]) -> None:
    """Set the options that are not given, and print them as one would write them."""
    if args.init:
        defaults = {"batch_tokens": defaults["batch_tokens"]}  # the rest is of the model
    else:
        args.tokenizer = args.tokenizer or TOKENIZERS[args.task]
    chosen = {name: value for name, value in defaults.items() if getattr(args, name) is None}
    if args.tokenizer != "bpe":
        chosen.pop("vocab_size", None)
    if args.preset in ("base", "big"):
        chosen.pop("dropout", None)  # the paper says which
    vars(args).update(chosen)
    words = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in chosen.items())
    print(f"{size}; chosen for them: {words}" if chosen else size, flush=True)


def _tokenizer(args: Namespace, texts: Sequence[Iterable[str]], languages: Sequence[str]) -> vocabulary.Tokenizer:
    """Read the run's tokenizer, or make one of the texts, by language."""
    if args.resume and (Path(args.out) / vocabulary.TOKENIZER).exists():
        return vocabulary.load_tokenizer(args.out)
    if args.tokenizer == "bpe":
        return vocabulary.SubwordTokenizer.train(texts, languages, args.vocab_size)
    if args.tokenizer == "words":
        return vocabulary.WordTokenizer.train(texts, languages, spacing=args.task == "translation")
    return vocabulary.CharacterTokenizer.train("".join(texts[0]))


def _read_init(args: Namespace) -> tuple[nn.Module, vocabulary.Tokenizer, str, str]:
    """Read the model that --init names (to go on, the run's own will do), its tokenizer and languages."""
    folder = args.out if args.resume and (Path(args.out) / CONFIG).exists() else args.init
    model, tokenizer, info = load_translator([folder])
    for name in ("preset", "layers", "norm_first", "tokenizer", "vocab_size", "src", "tgt"):
        if getattr(args, name) not in (None, False, info.get(name)):
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"--init {args.init} keeps its model, tokenizer and languages: leave {option} away.")
    if args.dropout is not None:
        config: Any = replace(config_of(model), dropout=args.dropout)
        model = model_of(lambda: make_model(config), dict(model.named_parameters()), folder)
    return model, tokenizer, info["src"], info["tgt"]


def _new_model(
    args: Namespace, texts: Sequence[Iterable[str]], languages: Sequence[str], **demanded: int
) -> tuple[nn.Module, vocabulary.Tokenizer]:
    """Make a new model of the size and with the switches that are given, and its tokenizer."""
    tokenizer = _tokenizer(args, texts, languages)
    row = next(row for row in ARCHITECTURES.values() if args.preset in row.presets)
    if row.task != args.task:
        fitting = ", ".join(name for row in ARCHITECTURES.values() if row.task == args.task for name in row.presets)
        raise ValueError(f"--preset {args.preset} is for {row.task}: for {args.task} there is {fitting}.")
    if args.norm_first and args.preset == "recurrent":
        raise ValueError("--norm-first is for layers with attention: leave it away beside --preset recurrent.")
    typed = {"layers": args.layers, "dropout": args.dropout, "norm_first": args.norm_first or None}
    changes = {name: value for name, value in typed.items() if value is not None}
    torch.manual_seed(args.seed)
    return make_model(PRESETS[args.preset](len(tokenizer), **demanded, **changes)), tokenizer


COMMAND = Command(
    "train a model",
    run,
    (
        "--corpus grammar --out runs/grammar",
        "--source my.de --target my.en --src de --tgt en --out runs/mine",
        "--text my.txt --out runs/writer --max-minutes 15 --epochs 100",
        "--reviews my-reviews --out runs/critic",
        "--resume --out runs/mine --max-minutes 30",
        "--init runs/mine --source other.de --target other.en --out runs/other --rate 0.1",
    ),
    options="out resume corpus preset layers dropout epochs patience max-minutes batch-tokens accumulate schedule "
    f"warmup rate smoothing average seed {COMPUTE}",
    only={
        "translation": "source target val-source val-target tgt norm-first init",
        "generation": "text",
        "classification": "reviews",
        "translation classification": "src tokenizer vocab-size",
    },
)
