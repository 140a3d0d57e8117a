"""Greedy and beam search of many sentences at once: finished ones leave, hypotheses share what is stored for theirs."""

import copy
import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.config import BOS, EOS, PAD
from annotated.decoding import (
    ALPHA,
    BEAM,
    MAX_EXTRA,
    Hypothesis,
    check_search,
    evaluating,
    length_penalty,
    longest_translations,
)
from annotated.fast import native
from annotated.fast.accelerate import FORMS, accelerate
from annotated.fast.translator import FastCache, FastTranslator
from annotated.masking import padding_mask

CACHED_ROWS = 64  # rows of logits worked on at a time, so that they stay in the processor's cache
GROUP = 100  # neighbours of which only the largest is looked at first


@torch.inference_mode()
def greedy_decode(model: Any, src: Int[Tensor, "batch source"], *, max_extra: int = MAX_EXTRA) -> list[Hypothesis]:
    """Do what `annotated.decoding.greedy_decode` does, arguments and errors as there, with any model."""
    with evaluating(model):
        fast, src_mask, memory, limits, cache = _start(model, src, 1, max_extra)
        ids = torch.full((len(src), 1), BOS, device=src.device)
        log_probs = torch.zeros(len(src), device=src.device)
        sentences = torch.arange(len(src), device=src.device)
        finished: dict[int, Hypothesis] = {}
        while len(ids):
            best = _best_continuations(fast, ids[:, None], log_probs[:, None], memory, src_mask, cache, 1)
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
                cache.select(kept, kept)
    return [finished[i] for i in range(len(src))]


@torch.inference_mode()
def beam_search(
    model: Any,
    src: Int[Tensor, "batch source"],
    beam: int = BEAM,
    alpha: float = ALPHA,
    *,
    max_extra: int = MAX_EXTRA,
) -> list[Hypothesis]:
    """Do what `annotated.decoding.beam_search` does, arguments and errors as there, with any model."""
    check_search(model, beam, alpha)
    vocab = model.config.vocab_size
    with evaluating(model):
        fast, src_mask, memory, limits, cache = _start(model, src, beam, max_extra)
        ids = torch.full((len(src), 1, 1), BOS, device=src.device)  # one beginning; the first step makes it `beam`
        log_probs = torch.zeros(len(src), 1, device=src.device)
        sentences = torch.arange(len(src), device=src.device)
        best: dict[int, Hypothesis] = {}
        while len(ids):
            # Each beginning has one <eos>, so twice the beam always leaves enough unfinished ones.
            totals, choices = _best_continuations(fast, ids, log_probs, memory, src_mask, cache, 2 * beam)
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

            going_on = []
            progress = zip(sentences.tolist(), limits.tolist(), log_probs[:, 0].tolist(), strict=True)
            for i, (sentence, limit, log_prob) in enumerate(progress):
                if length == limit and sentence not in best:
                    score = log_prob / length_penalty(length, alpha)
                    best[sentence] = Hypothesis(ids[i, 0, 1:].tolist(), log_prob, score)
                if length < limit and (
                    sentence not in best or best[sentence].score < log_prob / length_penalty(limit, alpha)
                ):
                    going_on.append(i)
            some_left = len(going_on) < len(ids)
            kept = torch.tensor(going_on, dtype=torch.long, device=src.device)
            rows = (torch.arange(len(ids), device=src.device)[:, None] * beginnings + parents)[kept].flatten()
            cache.select(rows, kept if some_left else None)
            if some_left:
                ids, log_probs, sentences, limits = ids[kept], log_probs[kept], sentences[kept], limits[kept]
                memory, src_mask = memory[kept], src_mask[kept]
    return [best[i] for i in range(len(src))]


def in_bfloat16(model: nn.Module) -> nn.Module:
    """Copy a model to translate in bfloat16, with its largest logits moved to where that format is finest: near 0.

    The same number less on every logit changes no probability. Label smoothing with ε = 0.1 teaches the best of V
    logits to stand ln(0.9 / (0.1 / V)) above the others. For V = 6,000 that is 11, where bfloat16 has steps of 1/16.

    Args:
        model: a trained model; it stays as it is.
    """
    model = copy.deepcopy(model).bfloat16()
    outputs: Any = [module.output for module in model.modules() if type(module) in FORMS]
    for output in outputs:
        vocab = len(output.weight)
        bias = output.weight.new_zeros(vocab) if output.bias is None else output.bias
        output.bias = nn.Parameter(bias - math.log(9 * vocab))
    return model


def in_int8(model: nn.Module) -> FastTranslator:
    """Copy a model to translate with weights of eight bits, on a CPU; what they are multiplied with is rounded, too.

    Args:
        model: a trained model, or an ensemble of them; it stays as it is.

    Raises:
        TypeError: it has no such form.
    """
    fast = accelerate(copy.deepcopy(model))
    if not isinstance(fast, FastTranslator):
        raise TypeError(f"a {type(model).__name__} does not translate.")
    return fast.frozen(int8=True)


def _start(
    model: Any, src: Tensor, beam: int, max_extra: int
) -> tuple[FastTranslator, Tensor, Tensor, Tensor, FastCache]:
    """Encode the sources; return the wrapped model, their mask, the memory, the longest translations, and a cache."""
    fast, src_mask = accelerate(model), padding_mask(src)
    if not isinstance(fast, FastTranslator):
        raise TypeError(f"a {type(model).__name__} does not translate.")
    limits = longest_translations(model, src_mask, max_extra)
    fast = fast.frozen()
    cache = fast.new_cache(beam * max(limits.tolist(), default=0))
    return fast, src_mask, fast.encode(src, src_mask), limits, cache


def _best_continuations(
    model: FastTranslator,
    ids: Int[Tensor, "sentence beginning length"],
    log_probs: Float[Tensor, "sentence beginning"],
    memory: Tensor,
    src_mask: Tensor,
    cache: FastCache,
    count: int,
) -> tuple[Float[Tensor, "sentence count"], Int[Tensor, "sentence count"]]:
    """Find each sentence's most probable beginnings one token longer; <pad> and <bos> are never next.

    Returns:
        Their log-probabilities, the best first, and as whole numbers beginning · vocab_size + token.
    """
    sentences, beginnings, _ = ids.shape
    states = model.decode(ids[:, :, -1:].flatten(0, 1), memory, src_mask, cache=cache)[:, -1]
    states = states.unflatten(0, (sentences, beginnings))
    at_once = max(1, CACHED_ROWS // beginnings) if states.device.type == "cpu" else sentences
    vocab, never = model.config.vocab_size, [PAD, BOS]
    firsts = vocab * torch.arange(beginnings, device=states.device)[:, None]  # where a beginning's numbers start
    # All parts use the same memory: to touch new memory costs more than the work done in it.
    room = torch.empty(min(at_once, sentences), beginnings, vocab, device=states.device)
    found = []
    for part, before in zip(states.split(at_once), log_probs.split(at_once), strict=True):
        logits = model.logits(part)
        if native.ranks(logits, count):
            totals, places = native.best_tokens(logits, count, never)
            totals, order = (totals + before[..., None]).flatten(1).topk(count)
            places = (firsts + places).flatten(1).gather(1, order)
        else:
            totals = torch.log_softmax(logits.to(room.dtype), dim=-1, out=room[: len(part)])
            totals[..., never] = -torch.inf
            totals += before[..., None]
            totals, places = _topk(totals.flatten(1), count)
        found.append((totals, places))
    values, choices = zip(*found, strict=True)
    return torch.cat(values), torch.cat(choices)


def _topk(x: Float[Tensor, "row column"], count: int) -> tuple[Float[Tensor, "row count"], Int[Tensor, "row count"]]:
    """Do what `topk` does, faster for long rows: the largest numbers lie in the groups with the largest maxima."""
    if x.size(1) <= count * GROUP:
        values, places = x.topk(count, dim=-1)
        return values, places
    if missing := -x.size(1) % GROUP:
        x = F.pad(x, (0, missing), value=-torch.inf)
    groups = x.unflatten(1, (-1, GROUP))
    best = groups.amax(dim=-1).topk(count, dim=-1).indices
    candidates = groups.gather(1, best[..., None].expand(-1, -1, GROUP)).flatten(1)
    values, places = candidates.topk(count, dim=-1)
    return values, best.gather(1, places // GROUP) * GROUP + places % GROUP
