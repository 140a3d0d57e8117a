"""The command line: python -m annotated train | translate | evaluate."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

import torch

from annotated.checkpoint import load_config, load_translator
from annotated.data import CORPORA, Pairs, hold_out, load_corpus, read_pairs
from annotated.decoding import bleu, chrf, translate
from annotated.loop import SCHEDULES, TrainingOptions, train
from annotated.recurrence import RecurrentConfig
from annotated.training import bf16_is_fast
from annotated.transformer import TransformerConfig
from annotated.translator import Translator, make_translator
from annotated.vocabulary import SubwordTokenizer, Tokenizer, WordTokenizer, load_tokenizer, write_whole

PRESETS = {
    "tiny": TransformerConfig.tiny,
    "small": TransformerConfig.small,
    "base": TransformerConfig.base,
    "big": TransformerConfig.big,
    "recurrent": RecurrentConfig,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status: 0, 2 after a one-line error for bad input, 130 after an interruption."""
    try:
        args = _parser().parse_args(arguments)
        if args.command == "train" and args.resume:
            # What the run was started with holds again, unless it is given anew.
            args = _parser(_saved_settings(args.out)).parse_args(arguments)
        args.run(args)
    except (ValueError, OSError) as error:
        print(f"annotated: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("annotated: interrupted. `train --resume --out DIR` goes on from the last whole epoch.", file=sys.stderr)
        return 130
    return 0


def run_train(args: argparse.Namespace) -> None:
    """Train a model from scratch, or go on with a run."""
    device, bf16 = _device(args.device), _bf16(args)
    options = TrainingOptions(
        **{field.name: getattr(args, field.name) for field in fields(TrainingOptions) if field.name != "bf16"},
        bf16=bf16,
    )
    pairs, val = _training_pairs(args)
    if args.resume:
        tokenizer = load_tokenizer(args.out)
    elif args.tokenizer == "bpe":
        tokenizer = SubwordTokenizer.train(pairs, (args.src, args.tgt), args.vocab_size)
    else:
        tokenizer = WordTokenizer.train(pairs, (args.src, args.tgt))
    changes = {} if args.dropout is None else {"dropout": args.dropout}
    if args.norm_first:
        if args.preset == "recurrent":
            raise ValueError("--norm-first is for Transformers: the LSTM of --preset recurrent has no LayerNorm.")
        changes["norm_first"] = True
    config = PRESETS[args.preset](len(tokenizer), **changes)
    torch.manual_seed(args.seed)
    model = make_translator(config).to(device)
    print(
        f"{len(pairs.source):,} training and {len(val.source):,} validation pairs, {len(tokenizer):,} tokens in the "
        f"vocabulary, {sum(p.numel() for p in model.parameters()):,} parameters, {device.type}, "
        f"{'bfloat16' if bf16 else 'float32'}, {torch.get_num_threads()} threads",
        flush=True,
    )
    settings = {name: value for name, value in vars(args).items() if name not in ("command", "run", "resume", "out")}
    train(
        model,
        tokenizer,
        pairs,
        val,
        args.out,
        src=args.src,
        tgt=args.tgt,
        options=options,
        settings=settings,
        resume=args.resume,
    )


def run_translate(args: argparse.Namespace) -> None:
    """Translate the arguments, or the lines of standard input."""
    model, tokenizer, info = _load(args)
    texts = args.texts or [line.strip() for line in sys.stdin]
    for translation in translate(model, tokenizer, texts, info["src"], **_search(args)):
        print(translation)


def run_evaluate(args: argparse.Namespace) -> None:
    """Translate a test set and score it."""
    model, tokenizer, info = _load(args)
    if args.corpus and not (args.source or args.reference):
        pairs = load_corpus(args.corpus, args.split or CORPORA[args.corpus][-1], info["src"], info["tgt"])
    elif args.source and args.reference and not args.corpus:
        pairs = read_pairs(args.source, args.reference)
    else:
        raise ValueError("evaluate needs either --corpus, or --source and --reference.")
    translations = translate(model, tokenizer, pairs.source, info["src"], **_search(args))
    if args.output:
        write_whole(Path(args.output), "".join(f"{line}\n" for line in translations).encode())
    for source, reference, translation in list(zip(*pairs, translations, strict=True))[: args.show]:
        print(f"source       {source}\nreference    {reference}\ntranslation  {translation}\n")
    for name, metric in (("BLEU", bleu), ("chrF", chrf)):
        score, signature = metric(translations, pairs.target)
        print(f"{name} {score:.2f}  {signature}")


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, like all others."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (--help explains the options)")


def _parser(train_defaults: dict | None = None) -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m annotated", description="Train a Transformer, translate, evaluate.")
    commands = parser.add_subparsers(dest="command", required=True)
    formatter = argparse.ArgumentDefaultsHelpFormatter

    command = commands.add_parser("train", help="train a model from scratch", formatter_class=formatter)
    command.add_argument("--corpus", choices=CORPORA, help="a corpus of the course")
    command.add_argument("--source", help="your own sentences, UTF-8, one a line")
    command.add_argument("--target", help="their translations, line by line")
    command.add_argument("--val-source", help="sentences for validation; held out from --source unless given")
    command.add_argument("--val-target", help="their translations")
    command.add_argument("--src", default="de", help="language to translate from")
    command.add_argument("--tgt", default="en", help="language to translate into")
    command.add_argument("--out", required=True, help="folder of the run")
    command.add_argument("--resume", action="store_true", help="go on with the run in --out, with its settings")
    command.add_argument(
        "--preset", choices=PRESETS, default="small", help="size of the model, or the LSTM it replaced"
    )
    command.add_argument("--dropout", type=float, help="probability of dropping; the preset's unless given")
    command.add_argument("--norm-first", action="store_true", help="LayerNorm before each sub-layer, not after it")
    command.add_argument("--tokenizer", choices=("bpe", "words"), default="bpe", help="subwords or whole words")
    command.add_argument("--vocab-size", type=int, default=6000, help="number of subwords")
    command.add_argument("--epochs", type=int, default=30, help="passes over the training pairs at most")
    command.add_argument("--max-minutes", type=float, help="minutes of training at most, validation included")
    command.add_argument("--batch-tokens", type=int, default=4096, help="ids a side in a batch, padding included")
    command.add_argument("--accumulate", type=int, default=1, help="batches per update")
    command.add_argument(
        "--schedule",
        choices=SCHEDULES,
        default="noam",
        help="of the learning rate: the paper's, or linear to 0 where epochs or minutes end",
    )
    command.add_argument("--warmup", type=int, default=1000, help="updates until the highest learning rate")
    command.add_argument("--rate", type=float, default=1.0, help="factor on the paper's learning rate")
    command.add_argument("--smoothing", type=float, default=0.1, help="label smoothing")
    command.add_argument("--average", type=int, default=5, help="last checkpoints, one an epoch, to average")
    command.add_argument("--seed", type=int, default=0, help="of weights, batches and dropout")
    _add_device(command)
    command.set_defaults(run=run_train, **(train_defaults or {}))

    command = commands.add_parser("translate", help="translate sentences", formatter_class=formatter)
    command.set_defaults(run=run_translate)
    command.add_argument("model", help="folder of a run")
    command.add_argument("texts", nargs="*", help="sentences; lines of standard input unless given")
    _add_search(command)

    command = commands.add_parser("evaluate", help="translate a test set and score it", formatter_class=formatter)
    command.set_defaults(run=run_evaluate)
    command.add_argument("model", help="folder of a run")
    command.add_argument("--corpus", choices=CORPORA, help="a corpus of the course")
    command.add_argument("--split", help="its split; the last one, its test set, unless given")
    command.add_argument("--source", help="your own sentences, UTF-8, one a line")
    command.add_argument("--reference", help="their translations, line by line")
    command.add_argument("--show", type=int, default=0, help="translations to print beside their references")
    command.add_argument("--output", help="file for the translations")
    _add_search(command)
    return parser


def _add_search(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--ensemble",
        action="append",
        default=[],
        metavar="RUN",
        help="folder of a run to average the probabilities with, of another seed; may be given again",
    )
    command.add_argument("--beam", type=int, default=4, help="hypotheses per sentence; 0 decodes greedily")
    command.add_argument("--alpha", type=float, default=0.6, help="exponent of the length penalty")
    command.add_argument(
        "--max-extra", type=int, default=50, help="tokens by which a translation may be longer than its source"
    )
    _add_device(command)


def _add_device(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--device", default="auto", help="auto, cpu, cuda, cuda:1 …; auto takes a GPU where there is one"
    )
    command.add_argument(
        "--precision", choices=("auto", "fp32", "bf16"), default="auto", help="auto takes bf16 where it is fast"
    )


def _search(args: argparse.Namespace) -> dict[str, Any]:
    return {"beam": args.beam, "alpha": args.alpha, "max_extra": args.max_extra, "bf16": _bf16(args)}


def _bf16(args: argparse.Namespace) -> bool:
    return bf16_is_fast(_device(args.device)) if args.precision == "auto" else args.precision == "bf16"


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    usable = ["cpu", "cuda", *gpus] if gpus else ["cpu"]
    if name not in usable:
        raise ValueError(f"device {name!r} is not usable here; there are {', '.join(usable)}. Try --device auto.")
    return torch.device(name)


def _training_pairs(args: argparse.Namespace) -> tuple[Pairs, Pairs]:
    files, val_files = [args.source, args.target], [args.val_source, args.val_target]
    if args.corpus and not any(files + val_files):
        return tuple(load_corpus(args.corpus, split, args.src, args.tgt) for split in ("train", "val"))
    if args.corpus or not all(files):
        raise ValueError("train needs either --corpus, or --source and --target.")
    if any(val_files) and not all(val_files):
        raise ValueError("--val-source and --val-target go together.")
    pairs = read_pairs(*files)
    if all(val_files):
        return pairs, read_pairs(*val_files)
    return hold_out(pairs, min(1000, max(1, len(pairs.source) // 20)))  # the same for every --seed


def _load(args: argparse.Namespace) -> tuple[Translator, Tokenizer, dict]:
    model, tokenizer, info = load_translator([args.model, *args.ensemble])
    return model.to(_device(args.device)), tokenizer, info


def _saved_settings(out: str) -> dict:
    try:
        return load_config(out)[1]["settings"]
    except (FileNotFoundError, KeyError):
        raise FileNotFoundError(f"there is no run to resume in {out}: start it without --resume.") from None


if __name__ == "__main__":
    sys.exit(main())
