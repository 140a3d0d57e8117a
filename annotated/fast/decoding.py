"""Greedy and beam search of many sentences at once: finished ones leave, hypotheses share what is stored for theirs.

`annotated.decoding` is the algorithm, a sentence at a time; this is its batched form, for models with a fast form.
"""

import copy
import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
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
from annotated.fast.accelerate import FORMS, accelerate, has_fast_form
from annotated.fast.cache import Cache
from annotated.masking import padding_mask

GROUP = 100  # neighbours of which only the largest is looked at first
CPU_PATIENCE, GPU_PATIENCE = 1, 8  # steps until finished sentences leave: to ask which they are is to wait for a GPU


class _Search:
    """What a search keeps, a row for each sentence that goes on; and what it has found for each one at the start.

    Args:
        model: what translates.
        src: the sources.
        beam: hypotheses of each sentence.
        max_extra: by how many tokens a translation may be longer than its source.

    Raises:
        TypeError: the model has no fast form, or does not translate.
    """

    def __init__(self, model: Any, src: Int[Tensor, "sentence source"], beam: int, max_extra: int):
        self.model = accelerate(model)
        if not hasattr(self.model, "decode"):
            raise TypeError(f"a {type(model).__name__} does not translate.")
        self.src_mask = padding_mask(src)
        self.limits = longest_translations(model, self.src_mask, max_extra)
        self.steps = max(self.limits.tolist(), default=0)
        self.memory = self.model.encode(src, self.src_mask)
        self.cache: Cache = self.model.new_cache(beam * self.steps)
        self.sentences = torch.arange(len(src), device=src.device)
        self.done = torch.zeros(len(src), dtype=torch.bool, device=src.device)
        # What is found, a row for each sentence of src; scores in 64 bits, as α may be large, where the device can.
        self.ids = torch.full((len(src), self.steps + 1), PAD, device=src.device)
        self.log_probs = torch.zeros(len(src), device=src.device)
        wide = torch.float32 if src.device.type == "mps" else torch.float64
        self.scores = torch.full((len(src),), -torch.inf, dtype=wide, device=src.device)

    def next_logits(self, ids: Int[Tensor, "sentence hypothesis length"]) -> Float[Tensor, "sentence hypothesis vocab"]:
        """Compute the logits of the token after each hypothesis."""
        new = ids[:, :, -1:].flatten(0, 1)
        logits = self.model.logits(self.model.decode(new, self.memory, self.src_mask, cache=self.cache)[:, -1])
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).unflatten(0, ids.shape[:2])

    def best(self) -> Float[Tensor, "sentence"]:
        """List the scores of the best that is found for each sentence that goes on."""
        return self.scores[self.sentences]

    def note(
        self,
        better: Bool[Tensor, "sentence"],
        ids: Int[Tensor, "sentence length"],
        log_probs: Float[Tensor, "sentence"],
        scores: Float[Tensor, "sentence"],
    ) -> None:
        """Take down what was found for the sentences in which it is better."""
        better, rows = better & ~self.done, self.sentences
        padded = F.pad(ids, (0, self.ids.size(1) - ids.size(1)), value=PAD)
        self.ids[rows] = torch.where(better[:, None], padded, self.ids[rows])
        self.log_probs[rows] = torch.where(better, log_probs, self.log_probs[rows])
        self.scores[rows] = torch.where(better, scores.to(self.scores.dtype), self.scores[rows])

    def leave(
        self, step: int, done: Bool[Tensor, "sentence"], parents: Int[Tensor, "sentence beam"], beginnings: int
    ) -> Tensor | slice:
        """Let finished sentences leave, from time to time, and the cache follow.

        Args:
            step: how many steps are done.
            done: which sentences are finished.
            parents: which of the sentence's hypotheses before this step its new ones continue.
            beginnings: how many there were.

        Returns:
            Which sentences stay.
        """
        self.done = self.done | done
        rows = torch.arange(len(parents), device=parents.device)[:, None] * beginnings + parents
        if step % (CPU_PATIENCE if done.device.type == "cpu" else GPU_PATIENCE) or not self.done.any():
            self.cache.select(rows.flatten())
            return slice(None)
        kept = (~self.done).nonzero().flatten()
        self.cache.select(rows[kept].flatten(), kept)
        for name in ("memory", "src_mask", "limits", "sentences", "done"):
            setattr(self, name, getattr(self, name)[kept])
        return kept

    def hypotheses(self) -> list[Hypothesis]:
        """List what was found."""
        rows = [[token for token in row if token not in (BOS, EOS, PAD)] for row in self.ids.tolist()]
        return [Hypothesis(*found) for found in zip(rows, self.log_probs.tolist(), self.scores.tolist(), strict=True)]


@torch.inference_mode()
def greedy_decode(model: Any, src: Int[Tensor, "batch source"], *, max_extra: int = MAX_EXTRA) -> list[Hypothesis]:
    """Do what `annotated.decoding.greedy_decode` does, arguments and errors as there, with a model with a fast form."""
    with evaluating(model):
        search = _Search(model, src, 1, max_extra)
        ids = torch.full((len(src), 1, 1), BOS, device=src.device)
        log_probs = torch.zeros(len(src), device=src.device)
        for step in range(1, search.steps + 1):
            logits = search.next_logits(ids)[:, 0]
            total = logits.logsumexp(dim=-1)
            best, tokens = _without_specials(logits).max(dim=-1)
            ids, log_probs = torch.cat((ids, tokens[:, None, None]), dim=2), log_probs + (best - total)
            over = (tokens == EOS) | (search.limits == step)
            search.note(over, ids[:, 0], log_probs, log_probs)
            kept = search.leave(step, over, torch.zeros_like(tokens[:, None]), 1)
            ids, log_probs = ids[kept], log_probs[kept]
            if not len(ids):
                break
    return search.hypotheses()


@torch.inference_mode()
def beam_search(
    model: Any,
    src: Int[Tensor, "batch source"],
    beam: int = BEAM,
    alpha: float = ALPHA,
    *,
    max_extra: int = MAX_EXTRA,
) -> list[Hypothesis]:
    """Do what `annotated.decoding.beam_search` does, arguments and errors as there, with a model with a fast form."""
    check_search(model, beam, alpha)
    vocab = model.config.vocab_size
    with evaluating(model):
        search = _Search(model, src, beam, max_extra)
        penalties = torch.tensor([length_penalty(limit, alpha) for limit in search.limits.tolist()]).to(search.scores)
        ids = torch.full((len(src), 1, 1), BOS, device=src.device)  # one beginning; the first step makes it `beam`
        log_probs = torch.zeros(len(src), 1, device=src.device)
        for step in range(1, search.steps + 1):
            # The four steps of `annotated.decoding.search`, for all sentences at once.
            totals, choices = _best_continuations(search.next_logits(ids), log_probs, 2 * beam)
            parents, tokens = choices // vocab, choices % vocab
            ended, beginnings = tokens == EOS, ids.size(1)
            scores = totals.to(search.scores.dtype) / length_penalty(step, alpha)

            score, place = scores.masked_fill(~ended, -torch.inf)[:, :beam].max(dim=-1, keepdim=True)
            finished = _hypotheses_of(ids, parents.gather(1, place))[:, 0]
            search.note(score[:, 0] > search.best(), finished, totals.gather(1, place)[:, 0], score[:, 0])

            log_probs, order = totals.masked_fill(ended, -torch.inf).topk(beam, dim=-1)
            parents, tokens = parents.gather(1, order), tokens.gather(1, order)
            ids = torch.cat((_hypotheses_of(ids, parents), tokens[:, :, None]), dim=2)
            last, could_score = search.limits == step, log_probs[:, 0] / penalties[search.sentences]
            search.note(last & (search.best() == -torch.inf), ids[:, 0], log_probs[:, 0], could_score)
            kept = search.leave(step, last | (search.best() >= could_score), parents, beginnings)
            ids, log_probs = ids[kept], log_probs[kept]
            if not len(ids):
                break
    return search.hypotheses()


def in_bfloat16(model: nn.Module) -> nn.Module:
    """Copy a model to translate in bfloat16, with its largest logits moved to where that format is finest: near 0.

    The same number less on every logit changes no probability. Label smoothing with ε = 0.1 teaches the best of V
    logits to stand ln(0.9 / (0.1 / V)) above the others. For V = 6,000 that is 11, where bfloat16 has steps of 1/16.

    Args:
        model: a trained model, or an ensemble of them; it stays as it is.

    Raises:
        TypeError: it has no fast form.
    """
    if not has_fast_form(model):
        raise TypeError(f"a {type(model).__name__} has no fast form, and only these compute in bfloat16.")
    model = copy.deepcopy(model).bfloat16()
    outputs: Any = [module.output for module in model.modules() if type(module) in FORMS]
    for output in outputs:
        vocab = len(output.weight)
        bias = output.weight.new_zeros(vocab) if output.bias is None else output.bias
        output.bias = nn.Parameter(bias - math.log(9 * vocab))
    return model


def _hypotheses_of(
    ids: Int[Tensor, "sentence hypothesis length"], numbers: Int[Tensor, "sentence kept"]
) -> Int[Tensor, "sentence kept length"]:
    return ids.gather(1, numbers[:, :, None].expand(-1, -1, ids.size(2)))


def _without_specials(logits: Float[Tensor, "*row vocab"]) -> Float[Tensor, "*row vocab"]:
    """Make <pad> and <bos> impossible, in place."""
    logits[..., PAD] = logits[..., BOS] = -torch.inf
    return logits


def _best_continuations(
    logits: Float[Tensor, "sentence beginning vocab"], log_probs: Float[Tensor, "sentence beginning"], count: int
) -> tuple[Float[Tensor, "sentence count"], Int[Tensor, "sentence count"]]:
    """Find each sentence's most probable beginnings one token longer; <pad> and <bos> are never next.

    The largest numbers lie in the groups with the largest maxima, so that only one number of each group is compared.

    Returns:
        Their log-probabilities, the best first, and as whole numbers beginning · vocab + token.
    """
    vocab = logits.size(-1)
    before = log_probs - logits.logsumexp(dim=-1)  # + a token's logit: the log-probability with that token
    logits = F.pad(_without_specials(logits), (0, -vocab % GROUP), value=-torch.inf)
    groups = logits.unflatten(-1, (-1, GROUP))  # (sentence, beginning, group, GROUP)
    per_row = groups.size(2)
    maxima = (groups.amax(dim=-1) + before[:, :, None]).flatten(1)  # (sentence, beginning · group)
    best = maxima.topk(min(count, maxima.size(1)), dim=-1).indices  # (sentence, count)
    candidates = groups.flatten(1, 2).gather(1, best[:, :, None].expand(-1, -1, GROUP))  # (sentence, count, GROUP)
    rows = best // per_row
    totals, order = (candidates + before.gather(1, rows)[:, :, None]).flatten(1).topk(count, dim=-1)
    group = order // GROUP
    tokens = best.gather(1, group) % per_row * GROUP + order % GROUP
    return totals, rows.gather(1, group) * vocab + tokens
