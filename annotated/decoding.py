"""Decoding: greedy and beam search (§6.1)."""

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from annotated.config import BOS, EOS, PAD
from annotated.masking import SourceMask, padding_mask

BEAM = 4  # hypotheses kept for a sentence (§6.1)
ALPHA = 0.6  # exponent of the length penalty (§6.1)
MAX_EXTRA = 50  # tokens by which a translation may be longer than its source (§6.1)


@runtime_checkable
class TranslatorCache(Protocol):
    """What a model keeps from step to step: a row for each hypothesis."""

    def select(self, rows: Int[Tensor, "kept"]) -> None:
        """Keep these rows, in this order; a row may be kept more than once."""


@runtime_checkable
class Translator(Protocol):
    """What is asked of a model that translates; `Transformer` says what each method takes and gives.

    Its `config` has at least `vocab_size` and `max_length`. Like an `nn.Module` it lists its parts, itself among them.
    """

    config: Any

    def encode(self, src: Int[Tensor, "batch source"], src_mask: SourceMask) -> Tensor:
        """Turn source ids into the memory."""

    def decode(
        self, tgt: Int[Tensor, "batch target"], memory: Tensor, src_mask: SourceMask, *, cache: Any = None
    ) -> Tensor:
        """Turn target ids and the memory into states."""

    def logits(self, states: Tensor) -> Float[Tensor, "*batch vocab"]:
        """Project states onto the vocabulary."""

    def new_cache(self) -> TranslatorCache:
        """Make an empty cache for `decode`."""

    def modules(self) -> Iterator[Any]:
        """List all parts, each with a mode of its own, `training`."""


class Hypothesis(NamedTuple):
    """A translation: ids without <bos> and <eos>, log-probability, and the score it was chosen by.

    The log-probability counts <eos>, too, unless the translation was cut off before it ended. In greedy search the
    score is the log-probability.
    """

    ids: list[int]
    log_prob: float
    score: float


def length_penalty(length: int, alpha: float) -> float:
    """Compute the divisor of log P, ((5 + |Y|) / 6)^α, so that longer ones may compete (§6.1; Wu et al., 2016).

    Args:
        length: |Y|, the number of target tokens, <eos> included.
        alpha: α; 0 divides by 1.
    """
    return ((5 + length) / 6) ** alpha


@torch.inference_mode()
def greedy_decode(
    model: Translator, src: Int[Tensor, "batch source"], *, max_extra: int = MAX_EXTRA, use_cache: bool = True
) -> list[Hypothesis]:
    """Translate by taking the most probable token at each step.

    Args:
        model: a trained model; used in eval mode, and left in the mode it is in.
        src: source ids, each row ending in <eos>, then padding.
        max_extra: a translation ends after (source tokens + max_extra) tokens at the latest (§6.1).
        use_cache: keep keys and values from step to step; the result is the same without.

    Raises:
        ValueError: max_extra is negative.
    """
    model = in_eval_mode(model)
    src_mask = padding_mask(src)
    limits = longest_translations(model, src_mask, max_extra)
    memory = model.encode(src, src_mask)
    cache = model.new_cache() if use_cache else None
    ids = torch.full((len(src), 1), BOS, device=src.device)
    log_probs = torch.zeros(len(src), device=src.device)
    done = torch.zeros(len(src), dtype=torch.bool, device=src.device)
    while not done.all():
        best, tokens = next_log_probs(model, ids, memory, src_mask, cache).max(dim=-1)
        log_probs = log_probs + best.masked_fill(done, 0.0)
        ids = torch.cat((ids, tokens.masked_fill(done, PAD)[:, None]), dim=1)
        done = done | (tokens == EOS) | (ids.size(1) > limits)
    rows = [[token for token in row if token not in (BOS, EOS, PAD)] for row in ids.tolist()]
    return [Hypothesis(row, log_prob, log_prob) for row, log_prob in zip(rows, log_probs.tolist(), strict=True)]


@torch.inference_mode()
def beam_search(
    model: Translator,
    src: Int[Tensor, "batch source"],
    beam: int = BEAM,
    alpha: float = ALPHA,
    *,
    max_extra: int = MAX_EXTRA,
    use_cache: bool = True,
) -> list[Hypothesis]:
    """Translate by keeping the `beam` most probable beginnings at each step (§6.1; Wu et al., 2016).

    A hypothesis whose <eos> is among the `beam` best continuations is finished; it stays as it is, and the search goes
    on with the best unfinished ones. It stops when the best finished one scores at least as well as the most probable
    of these would if it grew to the limit and lost no probability. With α = 0 a beam of 1 is greedy search.

    Args:
        model, src, max_extra, use_cache: as for `greedy_decode`.
        beam: hypotheses kept per sentence.
        alpha: exponent of `length_penalty`, 0 … 100.

    Raises:
        ValueError: beam is below 1, or too large for the vocabulary; alpha is outside 0 … 100; max_extra is negative.
    """
    check_search(model, beam, alpha)
    model = in_eval_mode(model)
    return [search(model, row, beam, alpha, 1, max_extra, use_cache)[0] for row in src]


@torch.inference_mode()
def n_best(
    model: Translator, src: Int[Tensor, "..."], beam: int, alpha: float, n: int, max_extra: int, use_cache: bool = True
) -> list[list[Hypothesis]]:
    """Do what `beam_search` does, until the `n` best finished ones, at most `beam`, can't be beaten; best first."""
    check_search(model, beam, alpha, n)
    model = in_eval_mode(model)
    return [search(model, row, beam, alpha, n, max_extra, use_cache) for row in src]


def search(
    model: Translator, src: Int[Tensor, "source"], beam: int, alpha: float, n: int, max_extra: int, use_cache: bool
) -> list[Hypothesis]:
    """Search for the `n` best translations of one sentence; arguments as for `beam_search`."""
    src_mask = padding_mask(src[None])
    memory = model.encode(src[None], src_mask)
    limit = int(longest_translations(model, src_mask, max_extra))
    cache = model.new_cache() if use_cache else None
    finished: list[Hypothesis] = []
    ids = torch.full((1, 1), BOS, device=src.device)  # one beginning; the first step makes it `beam`
    log_probs = torch.zeros(1, device=src.device)
    for length in range(1, limit + 1):
        # 1. Extend every beginning by every token.
        totals = log_probs[:, None] + next_log_probs(model, ids, memory.expand(len(ids), -1, -1), src_mask, cache)

        # 2. Find the most probable: twice the beam, for each beginning has one <eos>, and enough must go on.
        log_probs, choices = totals.flatten().topk(2 * beam)
        vocab = model.config.vocab_size
        parents, tokens = choices // vocab, choices % vocab
        ended = tokens == EOS

        # 3. What ended among the best is finished.
        for i in ended[:beam].nonzero().flatten().tolist():
            score = log_probs[i].item() / length_penalty(length, alpha)
            finished.append(Hypothesis(ids[parents[i], 1:].tolist(), log_probs[i].item(), score))
        finished = sorted(finished, key=lambda hypothesis: -hypothesis.score)[:n]

        # 4. Go on with the best unfinished ones, as long as one of them could still win.
        kept = (~ended).nonzero().flatten()[:beam]
        ids, log_probs = torch.cat((ids[parents[kept]], tokens[kept, None]), dim=1), log_probs[kept]
        could_score = log_probs[0].item() / length_penalty(limit, alpha)
        if len(finished) == n and could_score <= finished[-1].score:
            break
        if cache is not None:
            cache.select(parents[kept])
    if not finished:  # none ended in time
        finished = [Hypothesis(ids[0, 1:].tolist(), log_probs[0].item(), could_score)]
    return finished


def next_log_probs(
    model: Translator,
    ids: Int[Tensor, "row length"],
    memory: Float[Tensor, "row source width"],
    src_mask: SourceMask,
    cache: TranslatorCache | None,
) -> Float[Tensor, "row vocab"]:
    """Compute the log-probabilities of each row's next token; <pad> and <bos> are never next."""
    new = ids if cache is None else ids[:, -1:]
    log_probs = model.logits(model.decode(new, memory, src_mask, cache=cache)[:, -1]).log_softmax(dim=-1)
    log_probs[:, [PAD, BOS]] = -torch.inf
    return log_probs


def longest_translations(model: Translator, src_mask: SourceMask, max_extra: int) -> Int[Tensor, "batch"]:
    """Tell how many tokens each translation may have; a ValueError if max_extra is negative."""
    if max_extra < 0:
        raise ValueError(f"max_extra={max_extra} must not be negative: a translation needs room.")
    return (src_mask.sum(dim=-1).flatten() + max_extra).clamp(1, model.config.max_length)


def check_search(model: Translator, beam: int, alpha: float, n: int = 1) -> None:
    """Refuse a beam or an α with which the search makes no sense; a ValueError says which."""
    most = model.config.vocab_size // 2
    if not 1 <= n <= beam <= most:
        raise ValueError(f"beam={beam} must lie in {max(n, 1)} … {most} (half the vocabulary).")
    if not 0 <= alpha <= 100:
        raise ValueError(f"alpha={alpha} must lie in 0 … 100: below, it would favour short translations.")


def in_eval_mode(model: Any) -> Any:
    """Give the model or, if a part of it is in training mode, a copy in eval mode that shares weights and hooks.

    So nothing changes for others, who may be training it.
    """
    parts = list(model.modules())
    if not any(part.training for part in parts):
        return model
    # Weights, hooks, settings: deepcopy takes as it is what stands in its memo. What holds a part is copied with it.
    ids, memo = {id(part) for part in parts}, {}
    for value in (value for part in parts for value in vars(part).values()):
        several = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else None
        held = [getattr(value, "__self__", value)] if several is None else several  # of a method, its part
        if ids.isdisjoint(map(id, held)):
            memo[id(value)] = value
    return copy.deepcopy(model, memo).eval()
