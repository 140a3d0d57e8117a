"""Which fast form belongs to which model, and the forms of language models and classifiers."""

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from annotated.config import PAD
from annotated.fast.attention import Allowed, prepare
from annotated.fast.cache import Cache
from annotated.fast.model import FastModel
from annotated.fast.transformer import FastBlocks, FastTransformer
from annotated.masking import causal_mask, padding_mask
from annotated.models.classifier import Classifier, hide_tokens, mean_of_tokens
from annotated.models.language_model import LanguageModel
from annotated.transformer import Transformer


class FastLanguageModel(FastBlocks):
    """The same function of the same weights as a `LanguageModel`, sooner."""

    def states(self, ids: Int[Tensor, "batch new"], cache: Cache | None = None) -> Float[Tensor, "batch new d_model"]:
        """Turn ids into states; with a cache, only those of tokens that it has not seen."""
        if cache is None:
            self._check()
            x = self._embed(self.model.embedding, ids)
            allowed: Allowed | None = prepare(causal_mask(ids.size(1), device=ids.device))
        else:
            x, allowed = cache.line_up(self._embed(self.model.embedding, ids, cache.length), len(ids))
        for i, layer in enumerate(self.model.layers):
            x = self._encoder_layer(layer, x, allowed, None if cache is None else cache[i])
        return self._last_norm(self.model.norm, x)

    def new_cache(self) -> Cache:
        """Make an empty cache for `states`, with room for as many tokens as the model has positions."""
        self._check()
        return Cache(self.config.layers, self.config.max_length)


class FastClassifier(FastBlocks):
    """The same function of the same weights as a `Classifier`, sooner."""

    def states(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch d_model"]:
        """Turn each text into one vector."""
        ids = hide_tokens(ids, self.config.word_dropout if self.model.training else 0.0)
        x = self._encode(self.model.embedding, self.model.encoder, ids, padding_mask(ids))
        return mean_of_tokens(x.to(self.model.output.weight.dtype), ids != PAD)


FORMS: dict[type, type] = {Transformer: FastTransformer, LanguageModel: FastLanguageModel, Classifier: FastClassifier}


def has_fast_form(model: Any) -> bool:
    """Tell whether `accelerate` takes models of this type; all others are used as they are."""
    return type(model) in FORMS or isinstance(model, FastModel)


def accelerate(model: nn.Module, *, bf16: bool = False) -> Any:
    """Give a model its fast form, which shares its weights; a fast form is returned as it is.

    A model of another type, or with subclasses, hooks, exchanged parts or parametrisations, raises a TypeError.
    """
    if isinstance(model, FastModel):
        return model
    if type(model) not in FORMS:
        known = ", ".join(kind.__name__ for kind in FORMS)
        raise TypeError(f"a {type(model).__name__} has no fast form, only {known}: use the model itself (--plain).")
    return FORMS[type(model)](model, bf16=bf16)
