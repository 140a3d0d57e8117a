"""Several models that translate together."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from annotated.fast.accelerate import accelerate
from annotated.fast.cache import Cache
from annotated.fast.model import FastModel
from annotated.masking import SourceMask, padding_mask


class Caches(list[Cache]):
    """The caches of an ensemble's models."""

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        """Keep these hypotheses in every cache, as `Cache.select` does."""
        for cache in self:
            cache.select(rows, sentences)


class Ensemble(FastModel):
    """Several models that translate together: a token's probability is the mean of theirs (Hansen & Salamon, 1990).

    Their errors differ, and the mean of the probabilities is wrong less often than any of them. It costs as much time
    and memory as the models together, which have the same configuration. Not to be trained.
    """

    def __init__(self, models: Sequence[nn.Module]):
        super().__init__()
        self.config = models[0].config
        for model in models:
            if model.config != self.config:
                raise ValueError(f"an ensemble's models must be alike: {model.config} is not {self.config}.")
        self.models: Any = nn.ModuleList(accelerate(model) for model in models)
        self.eval()

    def states(self, src: Tensor, tgt: Tensor) -> Float[Tensor, "batch target model d_model"]:
        """Compute what `logits` makes probabilities of, all positions at once; arguments as for one model."""
        src_mask = padding_mask(src)
        return self.decode(tgt, self.encode(src, src_mask), src_mask)

    def encode(self, src: Tensor, src_mask: SourceMask) -> Float[Tensor, "batch source model width"]:
        """Turn source ids into the models' memories, side by side; arguments as for one model."""
        return torch.stack([model.encode(src, src_mask) for model in self.models], dim=-2)

    def decode(
        self,
        tgt: Int[Tensor, "row target"],
        memory: Float[Tensor, "batch source model width"],
        src_mask: SourceMask,
        cache: Caches | None = None,
    ) -> Float[Tensor, "row target model d_model"]:
        """Turn target ids and the memories into the models' states, side by side; arguments as for one model."""
        members = zip(self.models, memory.unbind(-2), cache or [None] * len(self.models), strict=True)
        return torch.stack([model.decode(tgt, part, src_mask, cache=own) for model, part, own in members], dim=-2)

    def logits(self, states: Float[Tensor, "*batch model d_model"]) -> Float[Tensor, "*batch vocab"]:
        """Compute the logarithm of the mean probability of each token."""
        members = zip(self.models, states.unbind(-2), strict=True)
        log_probs = [model.logits(part).float().log_softmax(dim=-1) for model, part in members]
        return torch.stack(log_probs).logsumexp(dim=0) - math.log(len(log_probs))

    def new_cache(self, capacity: int) -> Caches:
        """Make an empty cache for each model, with room for `capacity` target tokens of each sentence."""
        return Caches(model.new_cache(capacity) for model in self.models)
