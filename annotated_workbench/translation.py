"""Texts in, texts out: tokens, batches of similar length, search; and which of the words written were guesses."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from annotated import decoding
from annotated.config import BOS, EOS
from annotated.fast import decoding as fast
from annotated.fast.accelerate import accelerate, has_fast_form
from annotated.fast.decoding import in_bfloat16
from annotated.fast.model import FastModel
from annotated_workbench.data import pad
from annotated_workbench.metrics import check_texts
from annotated_workbench.vocabulary import Tokenizer, sentence

GUESS = 0.3  # a word that is less probable is a guess
EVEN = 0.5  # below this geometric mean of its words' probabilities, a translation is not to be trusted


class Word(NamedTuple):
    """A word of a translation, signs included, and its probability: the product of its pieces', signs left out."""

    text: str
    probability: float


class Scored(NamedTuple):
    """A translation and its score: its log-probability over the length penalty or, greedily found, alone."""

    text: str
    score: float


def translate(model: Any, tokenizer: Tokenizer, texts: Sequence[str], language: str, **options: Any) -> list[str]:
    """Translate texts; arguments and errors as for `n_best`."""
    return [best.text for best, *_ in n_best(model, tokenizer, texts, language, **options)]


def n_best(
    model: Any,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    language: str,
    *,
    nbest: int = 1,
    beam: int = decoding.BEAM,
    alpha: float = decoding.ALPHA,
    max_extra: int = decoding.MAX_EXTRA,
    batch_tokens: int = 16384,
    bf16: bool = False,
    plain: bool = False,
) -> list[list[Scored]]:
    """Translate texts, in batches of similar length, each in its best ways, the best first; an empty one stays empty.

    Args:
        model, tokenizer: trained together.
        texts: sentences to translate; the more at once, the faster. By the fast form four take less than half as long
            each as one by one, and one by one 1.1 times as long as by the plain form with a beam of 4, 1.3 greedily.
        language: the language they are in.
        nbest: how many translations of each text, at most; no more than the beam, and one if that is 0.
        beam: hypotheses kept per sentence; 0 decodes greedily.
        alpha: exponent of the length penalty.
        max_extra: a translation ends after (source tokens + max_extra) tokens at the latest (§6.1).
        batch_tokens: target tokens a batch may set memory aside for: sentences · hypotheses · longest translation. A
            sentence that needs more is a batch of its own.
        bf16: compute in bfloat16, with a copy of the model made by `in_bfloat16`.
        plain: search by the paper's own file, which is slower; an ensemble has no other form than the fast one.
    """
    limit: int = model.config.max_length
    rows = encode_sources(tokenizer, texts, language, limit)
    if bf16:
        model = in_bfloat16(model)
    search: Any = decoding
    if isinstance(model, FastModel) or (has_fast_form(model) and not plain):
        search, model = fast, accelerate(model)
    device = next(model.parameters()).device
    order = sorted((i for i, row in enumerate(rows) if len(row) > 1), key=lambda i: len(rows[i]))
    found = [[Scored("", 0.0)] for _ in rows]
    while order:
        # From the longest down: it is the first of a batch that decides how many fit.
        room = max(beam, 1) * min(len(rows[order[-1]]) + max_extra, limit)
        count = max(1, batch_tokens // max(room, 1))
        order, batch = order[:-count], order[-count:]
        src = pad([rows[i] for i in batch]).to(device)
        if beam:
            hypotheses = search.n_best(model, src, beam, alpha, nbest, max_extra=max_extra)
        else:
            hypotheses = [[best] for best in search.greedy_decode(model, src, max_extra=max_extra)]
        for i, best in zip(batch, hypotheses, strict=True):
            found[i] = [Scored(tokenizer.decode(hypothesis.ids), hypothesis.score) for hypothesis in best]
    return found


def encode_sources(tokenizer: Tokenizer, texts: Sequence[str], language: str, limit: int) -> list[list[int]]:
    """Turn sentences into ids, each row ending in <eos>; a ValueError names one of more than `limit` tokens."""
    check_texts(texts=texts)
    rows = [[*ids, EOS] for ids in tokenizer.encode_batch([*map(sentence, texts)], language)]
    for i, size in enumerate(map(len, rows), start=1):
        if size > limit:
            raise ValueError(f"text {i} is {size} tokens long and the model takes {limit}: split it into sentences.")
    return rows


@torch.inference_mode()
def words_written(model: Any, tokenizer: Tokenizer, text: str, translation: str, src: str, tgt: str) -> list[Word]:
    """List the words of the translation of a text, from the language `src` into `tgt`."""
    rows = encode_sources(tokenizer, [text], src, model.config.max_length)
    ids = tokenizer.encode(translation, tgt)
    device = next(model.parameters()).device
    logits = decoding.in_eval_mode(model)(*(torch.tensor([row], device=device) for row in (rows[0], [BOS, *ids[:-1]])))
    words, before = [Word("", 1.0)], ""
    for i, probabilities in enumerate(logits[0, : len(ids)].float().softmax(dim=-1)):
        after = tokenizer.decode(ids[: i + 1])
        piece, before = after[len(before) :], after
        if piece.startswith(" "):
            words.append(Word("", 1.0))
        probability = probabilities[ids[i]].item() if any(map(str.isalnum, piece)) else 1.0
        words[-1] = Word(words[-1].text + piece.strip(), words[-1].probability * probability)
    return [word for word in words if any(map(str.isalnum, word.text))]


def is_unsure(words: Sequence[Word]) -> bool:
    """Tell whether a translation's words are, in the geometric mean, less probable than not; of none, it is unsure."""
    return not words or sum(math.log(word.probability + 1e-99) for word in words) < len(words) * math.log(EVEN)
