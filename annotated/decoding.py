"""Decoding: greedy and beam search, translation of texts, BLEU (§6.1)."""

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.masking import padding_mask
from annotated.translator import Translator, TranslatorCache
from annotated.workbench.data import pad
from annotated.workbench.vocabulary import BOS, EOS, LONGEST_TOKEN, PAD, Tokenizer

CACHED_ROWS = 128  # rows of logits worked on at a time, so that they stay in the processor's cache
GROUP = 100  # neighbours of which only the largest is looked at first


class Hypothesis(NamedTuple):
    """A translation: ids without <bos> and <eos>, log-probability with <eos>, and the score it was chosen by."""

    ids: list[int]
    log_prob: float
    score: float


def length_penalty(length: int, alpha: float) -> float:
    """Divide log-probabilities by ((5 + |Y|) / 6)^α, so that longer translations may compete (Wu et al., 2016, Eq. 14).

    Args:
        length: |Y|, the number of target tokens, <eos> included.
        alpha: α; 0 divides by 1.
    """
    return ((5 + length) / 6) ** alpha


@torch.inference_mode()
def greedy_decode(
    model: Translator, src: Int[Tensor, "batch source"], *, max_extra: int = 50, use_cache: bool = True
) -> list[Hypothesis]:
    """Translate by taking the most probable token at each step.

    Args:
        model: a trained model; used in eval mode and left in the mode it was in.
        src: source ids, each row ending in <eos>, then padding.
        max_extra: a translation ends after (source tokens + max_extra) tokens at the latest (§6.1).
        use_cache: keep keys and values from step to step; the result is the same without.
    """
    with _evaluating(model):
        src_mask, memory, limits, cache = _start(model, src, 1, max_extra, use_cache)
        ids = torch.full((len(src), 1), BOS, device=src.device)
        log_probs = torch.zeros(len(src), device=src.device)
        sentences = torch.arange(len(src), device=src.device)
        finished: dict[int, Hypothesis] = {}
        while len(ids):
            best = _best_continuations(model, ids[:, None], log_probs[:, None], memory, src_mask, cache, 1)
            log_probs, tokens = (found[:, 0] for found in best)
            ids = torch.cat((ids, tokens[:, None]), dim=1)
            done = (tokens == EOS) | (ids.size(1) > limits)
            for i in done.nonzero().flatten().tolist():
                row = [token for token in ids[i, 1:].tolist() if token != EOS]
                finished[int(sentences[i])] = Hypothesis(row, log_probs[i].item(), log_probs[i].item())
            if done.any():
                kept = (~done).nonzero().flatten()
                ids, log_probs, sentences, limits = ids[kept], log_probs[kept], sentences[kept], limits[kept]
                memory, src_mask = memory[kept], src_mask[kept]
                if cache is not None:
                    cache.select(kept, kept)
    return [finished[i] for i in range(len(src))]


@torch.inference_mode()
def beam_search(
    model: Translator,
    src: Int[Tensor, "batch source"],
    beam: int = 4,
    alpha: float = 0.6,
    *,
    max_extra: int = 50,
    use_cache: bool = True,
) -> list[Hypothesis]:
    """Translate by keeping the `beam` most probable beginnings at each step (§6.1; Wu et al., 2016).

    A hypothesis whose <eos> is among the `beam` best continuations is finished; it stays as it is, and the search goes
    on with the best unfinished ones. It stops when none of these, were they as long as allowed, could score higher than
    the best finished one. With α = 0 a beam of 1 is greedy search.

    Args:
        model: a trained model; used in eval mode and left in the mode it was in.
        src: source ids, each row ending in <eos>, then padding.
        beam: hypotheses kept per sentence.
        alpha: exponent of `length_penalty`, 0 … 100.
        max_extra: a translation ends after (source tokens + max_extra) tokens at the latest (§6.1).
        use_cache: keep keys and values from step to step; the result is the same without.

    Raises:
        ValueError: beam is below 1, or too large for the vocabulary; alpha is outside 0 … 100; max_extra is negative.
    """
    vocab = model.config.vocab_size
    if not 1 <= beam <= vocab // 2:
        raise ValueError(f"beam={beam} must lie in 1 … {vocab // 2} (half the vocabulary).")
    if not 0 <= alpha <= 100:
        raise ValueError(f"alpha={alpha} must lie in 0 … 100: below, it would favour short translations.")
    with _evaluating(model):
        src_mask, memory, limits, cache = _start(model, src, beam, max_extra, use_cache)
        ids = torch.full((len(src), 1, 1), BOS, device=src.device)  # one beginning; the first step makes it `beam`
        log_probs = torch.zeros(len(src), 1, device=src.device)
        sentences = torch.arange(len(src), device=src.device)
        best: dict[int, Hypothesis] = {}
        while len(ids):
            # Each beginning has one <eos>, so twice the beam always leaves enough unfinished ones.
            totals, choices = _best_continuations(model, ids, log_probs, memory, src_mask, cache, 2 * beam)
            parents, tokens = choices // vocab, choices % vocab
            ended = tokens == EOS
            beginnings, length = ids.shape[1:]

            for i, j in ended[:, :beam].nonzero().tolist():
                score = totals[i, j].item() / length_penalty(length, alpha)
                sentence = int(sentences[i])
                if score > (best[sentence].score if sentence in best else -torch.inf):
                    best[sentence] = Hypothesis(ids[i, parents[i, j], 1:].tolist(), totals[i, j].item(), score)

            log_probs, order = totals.masked_fill(ended, -torch.inf).topk(beam, dim=-1)
            parents, tokens = parents.gather(1, order), tokens.gather(1, order)
            ids = torch.cat((ids.gather(1, parents[:, :, None].expand(-1, -1, length)), tokens[:, :, None]), dim=2)

            kept = []
            progress = zip(sentences.tolist(), limits.tolist(), log_probs[:, 0].tolist(), strict=True)
            for i, (sentence, limit, log_prob) in enumerate(progress):
                if length == limit and sentence not in best:
                    score = log_prob / length_penalty(length, alpha)
                    best[sentence] = Hypothesis(ids[i, 0, 1:].tolist(), log_prob, score)
                if length < limit and (
                    sentence not in best or best[sentence].score < log_prob / length_penalty(limit, alpha)
                ):
                    kept.append(i)
            some_left = len(kept) < len(ids)
            kept = torch.tensor(kept, dtype=torch.long, device=src.device)
            rows = (torch.arange(len(ids), device=src.device)[:, None] * beginnings + parents)[kept].flatten()
            if cache is not None:
                cache.select(rows, kept if some_left else None)
            if some_left:
                ids, log_probs, sentences, limits = ids[kept], log_probs[kept], sentences[kept], limits[kept]
                memory, src_mask = memory[kept], src_mask[kept]
    return [best[i] for i in range(len(src))]


def translate(
    model: Translator,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    language: str,
    *,
    beam: int = 4,
    alpha: float = 0.6,
    max_extra: int = 50,
    batch_tokens: int = 16384,
    bf16: bool = False,
) -> list[str]:
    """Translate texts, in batches of similar length; an empty text stays empty.

    Args:
        model: a trained model.
        tokenizer: the one it was trained with.
        texts: sentences to translate.
        language: the language they are in.
        beam: hypotheses kept per sentence; 0 decodes greedily.
        alpha: exponent of the length penalty.
        max_extra: a translation ends after (source tokens + max_extra) tokens at the latest (§6.1).
        batch_tokens: target tokens a batch may set memory aside for: sentences · hypotheses · longest translation. A
            sentence that needs more is a batch of its own.
        bf16: compute in bfloat16, with a copy of the model made by `in_bfloat16`.

    Raises:
        TypeError: `texts` is one string.
        ValueError: a text is longer than the model allows; says which. Or a number is out of range.
    """
    _check_texts(texts=texts)
    if batch_tokens < 1:
        raise ValueError(f"batch_tokens={batch_tokens} must be at least 1.")
    limit = model.config.max_length
    for number, text in enumerate(texts, start=1):
        if len(text) > LONGEST_TOKEN * limit:  # subwords of a text without end take their time
            raise ValueError(
                f"text {number} is {len(text)} characters long and the model takes {limit} tokens: "
                "split it into sentences."
            )
    if bf16:
        model = in_bfloat16(model)
    device = next(model.parameters()).device
    rows = [[*ids, EOS] for ids in tokenizer.encode_batch(list(texts), language)]
    for number, row in enumerate(rows, start=1):
        if len(row) > limit:
            raise ValueError(
                f"text {number} is {len(row)} tokens long and the model takes {limit}: split it into sentences."
            )
    order = sorted((i for i, row in enumerate(rows) if len(row) > 1), key=lambda i: len(rows[i]))
    translations = [""] * len(rows)
    while order:
        # From the longest down: it is the first of a batch that decides how many fit.
        room = max(beam, 1) * min(len(rows[order[-1]]) + max_extra, limit)
        count = max(1, batch_tokens // max(room, 1))
        order, batch = order[:-count], order[-count:]
        src = pad([rows[i] for i in batch]).to(device)
        if beam:
            hypotheses = beam_search(model, src, beam, alpha, max_extra=max_extra)
        else:
            hypotheses = greedy_decode(model, src, max_extra=max_extra)
        for i, hypothesis in zip(batch, hypotheses, strict=True):
            translations[i] = tokenizer.decode(hypothesis.ids)
    return translations


def in_bfloat16(model: Translator) -> Translator:
    """Copy a model to translate in bfloat16, with its largest logits moved to where that format is finest: near 0.

    The same number less on every logit changes no probability. Label smoothing with ε = 0.1 teaches the best of V
    logits to stand ln(0.9 / (0.1 / V)) above the others. For V = 6,000 that is 11, where bfloat16 has steps of 1/16.

    Args:
        model: a trained model; it stays as it is.
    """
    model = copy.deepcopy(model).bfloat16()
    for output in (module.output for module in model.modules() if hasattr(module, "output")):
        vocab = len(output.weight)
        bias = output.weight.new_zeros(vocab) if output.bias is None else output.bias
        output.bias = nn.Parameter(bias - math.log(9 * vocab))
    return model


def bleu(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> tuple[float, str]:
    """Score detokenised translations by their n-grams (Papineni et al., 2002), as sacrebleu does (Post, 2018).

    Args:
        hypotheses: translations.
        references: one reference for each.
        lowercase: ignore case.

    Returns:
        BLEU, 0 … 100, and sacrebleu's signature, which says how it was computed.

    Raises:
        TypeError: one string is given instead of several.
        ValueError: there are no hypotheses, or not as many references.
    """
    from sacrebleu.metrics import BLEU

    _check_pairs(hypotheses, references)
    metric = BLEU(lowercase=lowercase)
    return metric.corpus_score(list(hypotheses), [list(references)]).score, str(metric.get_signature())


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """Score translations by their character n-grams (Popović, 2015); arguments, result and errors as for `bleu`."""
    from sacrebleu.metrics import CHRF

    _check_pairs(hypotheses, references)
    metric = CHRF()
    return metric.corpus_score(list(hypotheses), [list(references)]).score, str(metric.get_signature())


def _check_pairs(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    _check_texts(hypotheses=hypotheses, references=references)
    if not len(hypotheses) == len(references) > 0:
        raise ValueError(
            f"{len(hypotheses)} hypotheses and {len(references)} references: give one reference for each hypothesis, "
            "and at least one."
        )


def _check_texts(**lists: Sequence[str]) -> None:
    for name, texts in lists.items():
        if isinstance(texts, str):
            raise TypeError(
                f"{name} is one string, which would be read letter by letter: give a list, [{texts[:9]!r}…]."
            )


@contextmanager
def _evaluating(model: Translator) -> Iterator[None]:
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _start(
    model: Translator, src: Tensor, beam: int, max_extra: int, use_cache: bool
) -> tuple[Tensor, Tensor, Tensor, TranslatorCache | None]:
    """Encode the sources; return their mask, the memory, each one's longest translation, and a cache."""
    if max_extra < 0:
        raise ValueError(f"max_extra={max_extra} must not be negative: a translation needs room.")
    src_mask = padding_mask(src)
    limits = (src_mask.sum(dim=-1).flatten() + max_extra).clamp(1, model.config.max_length)
    cache = model.new_cache(beam * int(limits.max())) if use_cache else None
    return src_mask, model.encode(src, src_mask), limits, cache


def _best_continuations(
    model: Translator,
    ids: Int[Tensor, "sentence beginning length"],
    log_probs: Float[Tensor, "sentence beginning"],
    memory: Tensor,
    src_mask: Tensor,
    cache: TranslatorCache | None,
    count: int,
) -> tuple[Float[Tensor, "sentence count"], Int[Tensor, "sentence count"]]:
    """Find each sentence's most probable beginnings one token longer; <pad> and <bos> are never next.

    Returns:
        Their log-probabilities, the best first, and as whole numbers beginning · vocab_size + token.
    """
    sentences, beginnings, _ = ids.shape
    rows = ids.flatten(0, 1)
    if cache is None:
        memory, src_mask = (x.repeat_interleave(beginnings, dim=0) for x in (memory, src_mask))
        states = model.decode(rows, memory, src_mask)[:, -1]
    else:
        states = model.decode(rows[:, -1:], memory, src_mask, cache=cache)[:, -1]
    states = states.unflatten(0, (sentences, beginnings))
    at_once = max(1, CACHED_ROWS // beginnings) if states.device.type == "cpu" else sentences
    # All parts use the same memory: to touch new memory costs more than the work done in it.
    shape = min(at_once, sentences), beginnings, model.config.vocab_size
    logits, totals = torch.empty(2, *shape, device=states.device)
    found = []
    for part, before in zip(states.split(at_once), log_probs.split(at_once), strict=True):
        logits, totals = logits[: len(part)], totals[: len(part)]
        torch.log_softmax(logits.copy_(model.logits(part)), dim=-1, out=totals)
        totals[..., [PAD, BOS]] = -torch.inf
        totals += before[..., None]
        found.append(_topk(totals.flatten(1), count))
    return tuple(torch.cat(x) for x in zip(*found, strict=True))


def _topk(x: Float[Tensor, "row column"], count: int) -> tuple[Float[Tensor, "row count"], Int[Tensor, "row count"]]:
    """Do what `topk` does, faster for long rows: the largest numbers lie in the groups with the largest maxima."""
    if x.size(1) <= count * GROUP:
        return tuple(x.topk(count, dim=-1))
    if missing := -x.size(1) % GROUP:
        x = F.pad(x, (0, missing), value=-torch.inf)
    groups = x.unflatten(1, (-1, GROUP))
    best = groups.amax(dim=-1).topk(count, dim=-1).indices
    candidates = groups.gather(1, best[..., None].expand(-1, -1, GROUP)).flatten(1)
    values, places = candidates.topk(count, dim=-1)
    return values, best.gather(1, places // GROUP) * GROUP + places % GROUP
