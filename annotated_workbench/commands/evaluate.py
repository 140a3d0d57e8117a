"""evaluate: a model and a test set in, scores out."""

import math
from argparse import Namespace

import torch

from annotated.config import UNK
from annotated_workbench.classification import classify
from annotated_workbench.commands.options import COMPUTE, MODEL, SEARCH, Command
from annotated_workbench.commands.shared import load_model, load_splits, search_options, tell_doubles
from annotated_workbench.data import CORPORA, load_corpus, load_text, read_pairs, read_text, split_text
from annotated_workbench.metrics import accuracy, bleu, chrf, loss_per_token, text_loss
from annotated_workbench.translation import translate


def evaluate_translations(args: Namespace) -> None:
    """Print BLEU, chrF and the loss of a test set, and some of its translations if that is asked for."""
    if args.split and not args.corpus:
        raise ValueError("--split is for --corpus and --reviews: files have no splits.")
    model, tokenizer, info = load_model(args, "translation")
    if args.corpus:
        pairs = load_corpus(args.corpus, args.split or CORPORA[args.corpus][-1], info["src"], info["tgt"])
    else:
        pairs = read_pairs(args.source, args.reference)
    translations = translate(model, tokenizer, pairs.source, info["src"], **search_options(args))
    for source, reference, translation in list(zip(*pairs, translations, strict=True))[: args.show]:
        print(f"source       {source}\nreference    {reference}\ntranslation  {translation}\n")
    scores = {"BLEU": bleu(translations, pairs.target, info["tgt"]), "chrF": chrf(translations, pairs.target)}
    for name, (score, signature) in scores.items():
        print(f"{name} {score:.2f}  {signature}")
    loss = loss_per_token(model, tokenizer, pairs, info["src"], info["tgt"], plain=args.plain)
    print(f"loss {loss:.3f} nats a token of this vocabulary, perplexity {math.exp(loss):.2f}")


def evaluate_text(args: Namespace) -> None:
    """Print a language model's loss: on a text, or on the part of a corpus that was held out in training."""
    text = read_text(args.text) if args.text else split_text(load_text(args.corpus))[1]
    model, tokenizer, _ = load_model(args, "generation")
    ids = torch.tensor(tokenizer.encode(text, ""))
    loss = text_loss(model, ids, plain=args.plain)
    print(
        f"{len(ids):,} tokens, {int((ids == UNK).sum()):,} of them unknown: loss {loss:.3f} nats a token, "
        f"{loss / math.log(2):.3f} bits, perplexity {math.exp(loss):.2f}"
    )


def evaluate_reviews(args: Namespace) -> None:
    """Print the share of texts that a classifier sorts rightly."""
    split = args.split or "test"
    scored, training = load_splits(args, split, "train")
    if split != "train":
        tell_doubles(scored, training, "validation" if split == "val" else "the test")
    model, tokenizer, info = load_model(args, "classification")
    probabilities = classify(model, tokenizer, scored.texts, info["language"], plain=args.plain)
    share = accuracy(probabilities, scored.labels, info["labels"])
    error = math.sqrt(share * (1 - share) / len(scored.texts))
    print(f"{len(scored.texts):,} texts: accuracy {share:.1%} ± {error:.1%}")


EVALUATIONS = {"translation": evaluate_translations, "generation": evaluate_text, "classification": evaluate_reviews}
COMMAND = Command(
    "score a model on a test set",
    lambda args: EVALUATIONS[args.task](args),
    (
        "data/checkpoints/de-en-best --corpus multi30k --show 3",
        "runs/mine --source test.de --reference test.en",
        "runs/writer --text other.txt",
    ),
    MODEL,
    f"corpus {COMPUTE}",
    {
        "translation": f"source reference show {SEARCH}",
        "generation": "text",
        "classification": "reviews",
        "translation classification": "split",
    },
)
