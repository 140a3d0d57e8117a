"""A language model's forward pass with fewer and larger operations, on the weights of the plain one."""

from jaxtyping import Float, Int
from torch import Tensor

from annotated.fast.cache import Cache
from annotated.fast.transformer import FastBlocks
from annotated.masking import Mask, causal_mask


class FastLanguageModel(FastBlocks):
    """The same function of the same weights as a `LanguageModel`, sooner."""

    def states(self, ids: Int[Tensor, "batch new"], cache: Cache | None = None) -> Float[Tensor, "batch new d_model"]:
        """Turn ids into states; with a cache, only those of tokens that it has not seen.

        Errors as in `require_unchanged`; with a cache, `new_cache` has looked.
        """
        if cache is None:
            self.require_unchanged()
        x = self._embed(self.model.embedding, ids, 0 if cache is None else cache.length)
        mask: Mask | None = causal_mask(ids.size(1), device=ids.device)
        if cache is not None:
            x, mask = cache.line_up(x, len(x))
        reader = self if cache is None else cache.reader
        for i, layer in enumerate(self.model.layers):
            x = reader._encoder_layer(layer, x, mask, None if cache is None else cache[i])
        return self._last_norm(self.model.norm, x)

    def new_cache(self) -> Cache:
        """Make an empty cache for `states`, with room for as many tokens as the model has positions."""
        self.require_unchanged()
        return Cache(self.config.layers, self.config.max_length, self.frozen())
