"""How good a model is: BLEU and chrF of translations, loss and perplexity of references or a text, accuracy."""

import math
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from annotated.config import PAD
from annotated.decoding import in_eval_mode
from annotated.fast.accelerate import accelerate, has_fast_form
from annotated_workbench.data import Pairs, count_targets, encode_pairs, make_batches, make_text_batches
from annotated_workbench.vocabulary import Tokenizer, normal_form

TEXT_ROWS = 16  # pieces of a text scored at a time

# Sacrebleu's rules for languages of their own, and characters where no spaces part words.
SACREBLEUS_WORDS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab", **dict.fromkeys(("th", "lo", "km", "my"), "char")}


def bleu(
    hypotheses: Sequence[str], references: Sequence[str], language: str = "", *, lowercase: bool = False
) -> tuple[float, str]:
    """Score detokenised translations by their n-grams (Papineni et al., 2002), as sacrebleu does (Post, 2018).

    Returns BLEU, 0 … 100, and sacrebleu's signature, which says how it was computed. What a word is follows from the
    code of the `language`.
    """
    from sacrebleu.metrics import BLEU

    return score_corpus(BLEU(lowercase=lowercase, tokenize=sacrebleus_words(language)), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """Score translations by their character n-grams (Popović, 2015); result as for `bleu`."""
    from sacrebleu.metrics import CHRF

    return score_corpus(CHRF(), hypotheses, references)


@cache
def sacrebleus_words(language: str) -> str | None:
    """Choose what `bleu` counts as a word: sacrebleu's name for it, None for its default."""
    from sacrebleu.metrics import BLEU

    name = SACREBLEUS_WORDS.get(re.split("[-_.@]", language.strip().lower())[0])
    try:
        BLEU(tokenize=name)
    except RuntimeError:  # packages are missing
        print(f"BLEU counts characters, not words: for those, pip install 'sacrebleu[{language[:2]}]'", flush=True)
        return "char"
    return name


def score_corpus(metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """Score by one of sacrebleu's metrics, both sides in `normal_form`; a ValueError unless they are equally many."""
    check_texts(hypotheses=hypotheses, references=references)
    if not len(hypotheses) == len(references) > 0:
        counts = f"{len(hypotheses)} hypotheses and {len(references)} references"
        raise ValueError(f"{counts}: give one reference for each hypothesis, and at least one.")
    ours, theirs = (list(map(normal_form, side)) for side in (hypotheses, references))
    return metric.corpus_score(ours, [theirs]).score, str(metric.get_signature())


def loss_per_token(model: Any, tokenizer: Tokenizer, pairs: Pairs, src: str, tgt: str, *, plain: bool = False) -> float:
    """Compute the cross-entropy of the references in nats per token; its exponential is the perplexity (§6.2).

    Losses with different vocabularies cannot be compared. `plain` computes by the model's own forward.
    """
    longest = model.config.max_length
    sources, targets, _ = encode_pairs(pairs, tokenizer, src, tgt, longest)
    return _mean_loss(model, make_batches(sources, targets, longest + 1), plain)  # targets have <bos>, too


def text_loss(model: Any, ids: Int[Tensor, "length"], *, plain: bool = False) -> float:
    """Compute a language model's cross-entropy in nats per token of at least two; its exponential is the perplexity.

    The text is cut into pieces of as many tokens as the model sees at once; each token but the first is predicted once,
    from what its own piece holds before it.
    """
    window = model.config.max_length
    return _mean_loss(model, make_text_batches(ids.cpu(), window, TEXT_ROWS * window), plain)


@torch.inference_mode()
def window_bits(model: Any, ids: Int[Tensor, "length"], step: int, window: int | None = None) -> Float[Tensor, "bits"]:
    """Predict a text from windows that begin every `step` tokens, the last `step` of each: give the bits of each token.

    So each is predicted from at least `window` - `step` before it; the last window ends with the text. The window is as
    long as the model sees, unless it is told to be shorter.
    """
    size = window or model.config.max_length
    rows = ids[(len(ids) - size - 1) % step :].unfold(0, size + 1, step).split(64)
    reader, bits = in_eval_mode(model), []
    for row in rows:
        logits = reader(row[:, :-1])[:, -step:].float()
        bits.append(F.cross_entropy(logits.transpose(1, 2), row[:, -step:], reduction="none").flatten() / math.log(2))
    return torch.cat(bits)


@torch.inference_mode()
def _mean_loss(model: Any, batches: Sequence[tuple[Tensor, ...]], plain: bool) -> float:
    """Average a model's cross-entropy over what it is to predict, all but the first ids of each batch's last tensor."""
    reader = in_eval_mode(accelerate(model) if has_fast_form(model) and not plain else model)
    device = next(model.parameters()).device
    total = 0.0
    for batch in batches:
        *given, target = (side.to(device) for side in batch)
        logits = reader(*given, target[:, :-1]).float()  # (row, token, vocab)
        nats = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD, reduction="sum")
        total += nats.item()
    return total / sum(map(count_targets, batches))


def accuracy(probabilities: Float[Tensor, "texts classes"], labels: Sequence[str], classes: Sequence[str]) -> float:
    """Compute the share of texts whose most probable one of the `classes`, the columns' names, is the right one."""
    if not len(labels) == len(probabilities) > 0:
        raise ValueError(f"{len(labels)} labels of {len(probabilities)} texts: give one each, and at least one.")
    if unknown := sorted(set(labels) - set(classes)):
        raise ValueError(f"{unknown[0]!r} is none of the model's classes: {', '.join(classes)}.")
    predicted = [classes[i] for i in probabilities.argmax(dim=-1).tolist()]
    return sum(a == b for a, b in zip(predicted, labels, strict=True)) / len(labels)


def check_texts(**lists: Sequence[str]) -> None:
    """Raise a TypeError that names the list where one string is given for several."""
    for name, texts in lists.items():
        if isinstance(texts, str):
            raise TypeError(f"{name} is one string, to be read letter by letter: give a list, [{texts[:9]!r}…].")
