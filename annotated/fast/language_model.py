"""A language model's forward pass with fewer and larger operations, on the weights of the plain one."""

from jaxtyping import Float, Int
from torch import Tensor

from annotated.fast.attention import prepare
from annotated.fast.cache import Cache
from annotated.fast.transformer import FastBlocks
from annotated.masking import causal_mask


class FastLanguageModel(FastBlocks):
    """The same function of the same weights as a `LanguageModel`, sooner."""

    def states(self, ids: Int[Tensor, "batch new"], cache: Cache | None = None) -> Float[Tensor, "batch new d_model"]:
        """Turn ids into states; with a cache, only those of tokens that it has not seen."""
        if cache is None:
            self.require_unchanged()
            x, allowed = self.embed(self.model.embedding, ids), prepare(causal_mask(ids.size(1), device=ids.device))
        else:
            x, allowed = cache.line_up(self.embed(self.model.embedding, ids, cache.length), len(ids))
        for i, layer in enumerate(self.model.layers):
            x = self.encoder_layer(layer, x, allowed, None if cache is None else cache[i])
        return self.last_norm(self.model.norm, x)

    def new_cache(self) -> Cache:
        """Make an empty cache for `states`, with room for as many tokens as the model has positions."""
        self.require_unchanged()
        return Cache(self.config.layers, self.config.max_length)
