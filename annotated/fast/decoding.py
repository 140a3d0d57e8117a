"""Greedy and beam search of many sentences at once: the batched form of `annotated.decoding`."""

import copy
import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from annotated import decoding as plain
from annotated.config import BOS, EOS, PAD
from annotated.decoding import ALPHA, BEAM, MAX_EXTRA, Hypothesis, in_eval_mode, length_penalty
from annotated.fast.accelerate import FORMS, accelerate, has_fast_form
from annotated.masking import padding_mask

GROUP = 100  # consecutive tokens, of which only the largest logit is compared at first
CPU_PATIENCE, GPU_PATIENCE = 1, 8  # every so many steps finished sentences leave; on a GPU each time costs a wait


def greedy_decode(model: Any, src: Int[Tensor, "batch source"], *, max_extra: int = MAX_EXTRA) -> list[Hypothesis]:
    """Do what `annotated.decoding.greedy_decode` does; errors as in `beam_search`."""
    return beam_search(model, src, 1, 0.0, max_extra=max_extra)


def beam_search(
    model: Any, src: Int[Tensor, "batch source"], beam: int = BEAM, alpha: float = ALPHA, *, max_extra: int = MAX_EXTRA
) -> list[Hypothesis]:
    """Do what `annotated.decoding.beam_search` does; a model with no fast form, or no `decode`, raises a TypeError."""
    return [best for best, *_ in n_best(model, src, beam, alpha, 1, max_extra)]


@torch.inference_mode()
def n_best(
    model: Any, src: Int[Tensor, "batch source"], beam: int, alpha: float, n: int, max_extra: int
) -> list[list[Hypothesis]]:
    """Do what `annotated.decoding.n_best` does; errors as in `beam_search`."""
    fast, vocab, device = in_eval_mode(accelerate(model)), model.config.vocab_size, src.device
    if not hasattr(fast, "decode"):
        raise TypeError(f"a {type(model).__name__} does not translate.")
    plain.check_search(model, beam, alpha, n)
    src_mask = padding_mask(src)
    limits = plain.longest_translations(model, src_mask, max_extra)
    steps = max(limits.tolist(), default=0)
    best = _Best(len(src), n, steps, device)
    penalties = torch.tensor([length_penalty(limit, alpha) for limit in limits.tolist()]).to(best.scores)
    memory, cache = fast.encode(src, src_mask), fast.new_cache(beam * steps)
    sentences = torch.arange(len(src), device=device)
    done = torch.zeros(len(src), dtype=torch.bool, device=device)
    ids = torch.full((len(src), 1, 1), BOS, device=device)  # one beginning; the first step makes it `beam`
    log_probs = torch.zeros(len(src), 1, device=device)
    for step in range(1, steps + 1):
        # The four steps of `annotated.decoding.search`, for all sentences at once.
        states = fast.decode(ids[:, :, -1:].flatten(0, 1), memory, src_mask, cache=cache)[:, -1]
        logits = fast.logits(states).unflatten(0, ids.shape[:2])  # (sentence, beginning, vocab)
        totals, choices = _best_continuations(logits, log_probs, 2 * beam)  # (sentence, 2 · beam)
        parents, tokens, ended = choices // vocab, choices % vocab, choices % vocab == EOS
        scores = (totals.to(best.scores) / length_penalty(step, alpha)).masked_fill(~ended | done[:, None], -torch.inf)
        best.note(sentences, _take(ids, parents[:, :beam]), totals[:, :beam], scores[:, :beam])
        log_probs, order = totals.masked_fill(ended, -torch.inf).topk(beam, dim=-1)
        parents, tokens = parents.gather(1, order), tokens.gather(1, order)
        ids = torch.cat((_take(ids, parents), tokens[:, :, None]), dim=2)
        last, could_score = limits == step, log_probs[:, :1] / penalties[:, None]
        none = last & (best.scores[sentences, 0] == -torch.inf)  # none ended in time
        best.note(sentences, ids[:, :1], log_probs[:, :1], could_score.masked_fill(~none[:, None], -torch.inf))
        done = done | last | (best.scores[sentences, -1] >= could_score[:, 0])
        rows = torch.arange(len(ids), device=device)[:, None] * logits.size(1) + parents
        if step % (CPU_PATIENCE if device.type == "cpu" else GPU_PATIENCE) or not done.any():
            cache.select(rows.flatten())
            continue
        kept = (~done).nonzero().flatten()
        if not len(kept):
            break
        cache.select(rows[kept].flatten(), kept)
        memory, src_mask, limits, penalties = memory[kept], src_mask[kept], limits[kept], penalties[kept]
        sentences, done, ids, log_probs = sentences[kept], done[kept], ids[kept], log_probs[kept]
    return best.hypotheses()


class _Best:
    """Each sentence's best hypotheses so far, the best first; a score of −∞ is none."""

    def __init__(self, sentences: int, count: int, steps: int, device: torch.device):
        self.ids = torch.full((sentences, count, steps + 1), PAD, device=device)
        self.log_probs = torch.zeros(sentences, count, device=device)
        # float64 where the device has it: with a large α the length penalty exceeds float32.
        wide = torch.float32 if device.type == "mps" else torch.float64
        self.scores = torch.full((sentences, count), -torch.inf, dtype=wide, device=device)

    def note(self, sentences: Tensor, ids: Tensor, log_probs: Tensor, scores: Tensor) -> None:
        """Put ids (sentence, new, length) and their numbers (sentence, new) where they belong; of equals, the old."""
        ids = F.pad(ids, (0, self.ids.size(2) - ids.size(2)), value=PAD)
        scores = torch.cat((self.scores[sentences], scores.to(self.scores)), dim=1)
        order = scores.argsort(dim=1, descending=True, stable=True)[:, : self.scores.size(1)]
        self.ids[sentences] = _take(torch.cat((self.ids[sentences], ids), dim=1), order)
        self.log_probs[sentences] = torch.cat((self.log_probs[sentences], log_probs), dim=1).gather(1, order)
        self.scores[sentences] = scores.gather(1, order)

    def hypotheses(self) -> list[list[Hypothesis]]:
        return [
            [Hypothesis([i for i in row if i not in (BOS, EOS, PAD)], *n) for row, *n in rows if n[1] != -math.inf]
            for rows in map(zip, self.ids.tolist(), self.log_probs.tolist(), self.scores.tolist())
        ]


def _take(ids: Int[Tensor, "sentence hypothesis length"], numbers: Int[Tensor, "sentence taken"]) -> Tensor:
    return ids.gather(1, numbers[:, :, None].expand(-1, -1, ids.size(2)))


def _best_continuations(
    logits: Float[Tensor, "sentence beginning vocab"], log_probs: Float[Tensor, "sentence beginning"], count: int
) -> tuple[Float[Tensor, "sentence count"], Int[Tensor, "sentence count"]]:
    """Find each sentence's best beginnings one token longer: log-probabilities, and beginning · vocab + token.

    The `count` largest numbers lie in the `count` groups with the largest maxima: the first topk compares only the
    groups' maxima, the second one count · GROUP numbers. <pad> and <bos> are never next.
    """
    vocab, dtype = logits.size(-1), torch.promote_types(logits.dtype, torch.float32)
    next_log_probs = F.log_softmax(logits, dim=-1, dtype=dtype)
    next_log_probs[..., PAD] = next_log_probs[..., BOS] = -torch.inf
    if missing := -vocab % GROUP:
        next_log_probs = F.pad(next_log_probs, (0, missing), value=-torch.inf)
    groups = next_log_probs.unflatten(-1, (-1, GROUP))
    maxima = (groups.amax(dim=-1) + log_probs[:, :, None]).flatten(1)  # (sentence, beginning · group)
    best = maxima.topk(min(count, maxima.size(1)), dim=-1).indices  # (sentence, count)
    candidates = groups.flatten(1, 2).gather(1, best[:, :, None].expand(-1, -1, GROUP))  # (sentence, count, GROUP)
    beginnings = best // groups.size(2)
    totals, order = (candidates + log_probs.gather(1, beginnings)[:, :, None]).flatten(1).topk(count, dim=-1)
    choices = beginnings * vocab + best % groups.size(2) * GROUP  # of each group's first token
    return totals, choices.gather(1, order // GROUP) + order % GROUP


def in_bfloat16(model: nn.Module) -> nn.Module:
    """Copy a model, or an ensemble, for use in bfloat16; a TypeError if it has no fast form.

    The bias of the output is lowered by ln(0.9 / (0.1 / V)), which changes no probability. Label smoothing lifts the
    best of V logits by that; bfloat16 has steps of 1/16 there, and finer ones near 0.
    """
    if not has_fast_form(model):
        raise TypeError(f"a {type(model).__name__} has no fast form, and only these compute in bfloat16.")
    model = copy.deepcopy(model).bfloat16()
    for output in [module.output for module in model.modules() if type(module) in FORMS]:
        vocab, bias = len(output.weight), 0 if output.bias is None else output.bias
        output.bias = nn.Parameter(output.weight.new_full((vocab,), -math.log(9 * vocab)) + bias)
    return model
