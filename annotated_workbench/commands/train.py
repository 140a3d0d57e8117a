"""train: a corpus or files in, a run out."""

import shlex
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from annotated_workbench import vocabulary
from annotated_workbench.architectures import ARCHITECTURES, PRESETS, USES, config_of, make_model
from annotated_workbench.commands.options import COMPUTE, PROGRAM, Command, option_of
from annotated_workbench.commands.shared import find_device, load_split, wants_bfloat16
from annotated_workbench.data import Lines, Pairs, hold_out, load_corpus, load_text, read_pairs, read_text, split_text
from annotated_workbench.distributed import from_first, in_turn, is_first, joined, processes
from annotated_workbench.run_folder import require_new
from annotated_workbench.runs import fit
from annotated_workbench.tasks import ClassificationTask, Task, TextTask, TranslationTask
from annotated_workbench.training_options import TrainingOptions, defaults_for

# What is chosen where it is not given: for a text as tried on tinyshakespeare in 15 minutes of two cores, for reviews
# as tried on the validation part of rt_polarity.
SMALL = dict(schedule="linear", warmup=100, average=1)
GENERATION = dict(preset="characters", dropout=0.1, batch_tokens=1024, rate=0.25, smoothing=0.0) | SMALL
CLASSIFICATION = dict(preset="reviews", dropout=0.5, epochs=8, batch_tokens=1500, rate=0.11, vocab_size=4000) | SMALL
TOKENIZERS = {"translation": "bpe", "generation": "characters", "classification": "words"}  # unless given
NOT_KEPT = ("command", "run", "resume", "out", "debug")  # of what is given, in a run's settings


def run(args: Namespace) -> None:
    """Train a model from scratch, or go on with a run, in as many processes as `torchrun` started."""
    with joined(find_device(args.device)) as device:
        _train(args, device)


def _train(args: Namespace, device: torch.device) -> None:
    if not args.resume:
        require_new(args.out)
    args.src = args.src or ("en" if args.task == "classification" else "de")
    args.tokenizer = args.tokenizer or TOKENIZERS[args.task]
    with in_turn():  # one downloads, and the others find it
        material = MATERIALS[args.task](args)
    if chosen := _choose(args, material.defaults):
        print(f"chosen for {material.size}: {chosen}")
    kept = args.resume and (Path(args.out) / vocabulary.TOKENIZER).exists()
    made = from_first(
        lambda: (vocabulary.load_tokenizer(args.out) if kept else _new_tokenizer(args, material)).content()
    )
    tokenizer = vocabulary.tokenizer_of(made)
    model = _new_model(args, len(tokenizer), material.demanded).to(device)
    bf16 = wants_bfloat16(args, model)
    print(
        f"{material.size}, {len(tokenizer):,} tokens in the vocabulary, {sum(p.numel() for p in model.parameters()):,} "
        f"parameters, {device.type}, {'bfloat16' if bf16 else 'float32'}, {torch.get_num_threads()} threads"
        f"{f' in each of {processes()} processes' * (processes() > 1)}",
        flush=True,
    )
    given = {field.name: getattr(args, field.name) for field in fields(TrainingOptions) if field.metadata}
    options = TrainingOptions(**{name: value for name, value in given.items() if value is not None}, bf16=bf16)
    settings = {name: value for name, value in vars(args).items() if name not in NOT_KEPT}
    task = material.make_task(tokenizer, config_of(model).max_length)
    fit(model, task, args.out, options=options, settings=settings, resume=args.resume)
    if is_first():
        print(f"Try it: {PROGRAM} {USES[args.task]} {shlex.quote(args.out)}")


def _choose(args: Namespace, defaults: dict[str, Any]) -> str:
    """Set the options that are not given; return them as one would write them."""
    chosen = {name: value for name, value in defaults.items() if getattr(args, name) is None}
    if args.tokenizer != "bpe":
        chosen.pop("vocab_size", None)
    if args.preset in ("base", "big"):
        chosen.pop("dropout", None)  # the paper says which
    vars(args).update(chosen)
    return " ".join(f"{option_of(name)} {value}" for name, value in chosen.items())


def _new_model(args: Namespace, vocab_size: int, demanded: Mapping[str, Any]) -> nn.Module:
    """Make a new model of the size and with the switches that are given."""
    row = next(row for row in ARCHITECTURES.values() if args.preset in row.presets)
    if row.task != args.task:
        fitting = ", ".join(name for row in ARCHITECTURES.values() if row.task == args.task for name in row.presets)
        raise ValueError(f"--preset {args.preset} is for {row.task}: for {args.task} there is {fitting}.")
    typed = {"layers": args.layers, "dropout": args.dropout, "norm_first": args.norm_first or None}
    changes = {name: value for name, value in typed.items() if value is not None}
    if args.norm_first and args.preset == "recurrent":
        raise ValueError("--norm-first is for layers with attention: leave it away beside --preset recurrent.")
    torch.manual_seed(args.seed)
    return make_model(PRESETS[args.preset](vocab_size, **demanded, **changes))


def _new_tokenizer(args: Namespace, material: "Material") -> vocabulary.Tokenizer:
    if args.tokenizer == "bpe":
        return vocabulary.SubwordTokenizer.train(material.texts, material.languages, args.vocab_size)
    if args.tokenizer == "words":
        return vocabulary.WordTokenizer.train(material.texts, material.languages)
    return vocabulary.CharacterTokenizer.train("".join(material.texts[0]))


class Material(NamedTuple):
    """What a corpus, or the user's files, hold for a task."""

    size: str
    defaults: dict[str, Any]  # options to take where none are given
    texts: Sequence[Iterable[str]]  # by language: a tokenizer learns from these
    languages: Sequence[str]
    make_task: Callable[[vocabulary.Tokenizer, int], Task]  # from a tokenizer and the model's longest input
    demanded: Mapping[str, Any] = {}  # of the model's configuration


def material_of_pairs(args: Namespace) -> Material:
    """Read pairs of sentences, or with --mapped only those for validation."""
    if bool(args.val_source) != bool(args.val_target) or (args.val_source and args.corpus):
        raise ValueError("--val-source and --val-target go together, and with --source and --target.")
    if args.mapped and not args.val_source:
        raise ValueError("--mapped is for --source and --target, with --val-source and --val-target.")
    if args.corpus:
        pairs, val = (load_corpus(args.corpus, split, args.src, args.tgt) for split in ("train", "val"))
    elif args.mapped:
        pairs, val = Pairs(Lines(args.source), Lines(args.target)), read_pairs(args.val_source, args.val_target)
    elif args.val_source:
        pairs, val = read_pairs(args.source, args.target), read_pairs(args.val_source, args.val_target)
    else:
        pairs = read_pairs(args.source, args.target)
        pairs, val = hold_out(pairs, min(1000, max(1, len(pairs.source) // 20)))  # the same for every --seed
    languages = args.src, args.tgt
    return Material(
        f"{len(pairs.source):,} training and {len(val.source):,} validation pairs",
        defaults_for(len(pairs.source)),
        pairs,
        languages,
        lambda tokenizer, longest: TranslationTask(tokenizer, pairs, val, *languages, longest, mapped=args.mapped),
    )


def material_of_text(args: Namespace) -> Material:
    """Read a text and hold out its end."""
    text, val = split_text(read_text(args.text) if args.text else load_text(args.corpus))
    return Material(
        f"{len(text):,} training and {len(val):,} validation characters",
        GENERATION,
        [text],
        [""],
        lambda tokenizer, longest: TextTask(tokenizer, text, val, longest),
    )


def material_of_reviews(args: Namespace) -> Material:
    """Read texts and their labels."""
    reviews, val = load_split(args, "train"), load_split(args, "val")
    classes = len(set(reviews.labels))
    return Material(
        f"{len(reviews.texts):,} training and {len(val.texts):,} validation texts of {classes} labels",
        CLASSIFICATION,
        [reviews.texts],
        [args.src],
        lambda tokenizer, longest: ClassificationTask(tokenizer, reviews, val, args.src, longest),
        {"classes": classes},
    )


MATERIALS = {
    "translation": material_of_pairs,
    "generation": material_of_text,
    "classification": material_of_reviews,
}
COMMAND = Command(
    "train a model from scratch",
    run,
    (
        "--corpus captions --out runs/captions",
        "--source my.de --target my.en --src de --tgt en --out runs/mine",
        "--text my.txt --out runs/writer --max-minutes 15 --epochs 100",
        "--reviews my-reviews --out runs/critic",
        "--resume --out runs/mine --max-minutes 30",
    ),
    options="out resume corpus preset layers dropout epochs max-minutes batch-tokens accumulate schedule "
    f"warmup rate smoothing average seed {COMPUTE}",
    only={
        "translation": "source target val-source val-target mapped tgt norm-first",
        "generation": "text",
        "classification": "reviews",
        "translation classification": "src tokenizer vocab-size",
    },
)
