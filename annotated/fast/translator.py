"""What the fast searches and updates ask of a model, and how any model comes to offer it."""

from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from annotated.decoding import TranslatorCache
from annotated.masking import SourceMask, padding_mask


@runtime_checkable
class FastCache(Protocol):
    """What a model keeps from step to step, for hypotheses of which several belong to one sentence."""

    def select(self, rows: Int[Tensor, "kept"], sentences: Int[Tensor, "sentences"] | None = None) -> None:
        """Keep these hypotheses, in this order, and these sentences (all unless given).

        Args:
            rows: numbers of rows; afterwards, too, a sentence's must be consecutive, and each have equally many.
            sentences: numbers of sentences.
        """


class FastModel(nn.Module):
    """What a fast update asks of a model.

    `states(*given, target)` computes what `logits` projects onto the vocabulary, all positions of the target at once;
    given is a source, or nothing where a text is continued.
    """

    config: Any
    states: Callable[..., Float[Tensor, "batch target width"]]
    logits: Callable[[Tensor], Float[Tensor, "*batch vocab"]]

    def frozen(self, *, int8: bool = False) -> Any:
        """Make a model of the same weights for uses in which they stay as they are, such as a search.

        Args:
            int8: with products in eight bits.

        Raises:
            TypeError: it has none.
        """
        if int8:
            raise TypeError(f"a {type(getattr(self, 'model', self)).__name__} has no form in eight bits.")
        return self

    def forward(self, *ids: Int[Tensor, "batch _"]) -> Float[Tensor, "*batch vocab"]:
        """Compute what the plain model computes of the same ids."""
        return self.logits(self.states(*ids))


class FastTranslator(FastModel):
    """A model whose memory has a row for each sentence, however many hypotheses (consecutive rows) there are of it."""

    @abstractmethod
    def encode(self, src: Int[Tensor, "sentence source"], src_mask: SourceMask) -> Tensor:
        """Turn source ids into the memory."""

    @abstractmethod
    def decode(self, tgt: Int[Tensor, "row target"], memory: Tensor, src_mask: SourceMask, cache: Any = None) -> Tensor:
        """Turn target ids and the memory into states; with a cache, of tokens that it has not seen."""

    @abstractmethod
    def new_cache(self, capacity: int) -> FastCache:
        """Make an empty cache with room for `capacity` target tokens of each sentence, of all its hypotheses."""


class Wrapper(FastModel):
    """Another model, of which it has the weights and the mode (training or evaluation).

    Args:
        model: what is wrapped.
        bf16: compute products in bfloat16.
    """

    def __init__(self, model: nn.Module, *, bf16: bool = False):
        super().__init__()
        self.model: Any = model
        self.bf16, self.training = bf16, model.training

    @property
    def config(self) -> Any:
        """The model's configuration, as it now is."""
        return self.model.config

    def difference(self) -> str | None:
        """Name the first thing by which the model is no longer what was wrapped; None if nothing is."""
        return None

    def logits(self, states: Tensor) -> Tensor:
        """As `FastTranslator.logits`."""
        with autocast(states.device, self.bf16):
            return self.model.logits(states)


class Plain(Wrapper):
    """A model of which nothing is known: what its own forward pass computes is computed, whatever that is."""

    def forward(self, *ids: Tensor) -> Tensor:
        """As `FastModel.forward`."""
        with autocast(ids[0].device, self.bf16):
            return self.model(*ids)


class PlainStates(Plain):
    """The same, of a model that continues text or sorts it."""

    def states(self, *given: Any) -> Tensor:
        """As `FastModel.states`."""
        with autocast(given[0].device, self.bf16):
            return self.model.states(*given)

    def new_cache(self) -> Any:
        """Make the model's own cache."""
        return self.model.new_cache()


class Rows(Wrapper, FastTranslator):
    """A model that translates by its own methods: the memory is repeated for each hypothesis."""

    def states(self, src: Tensor, tgt: Tensor) -> Tensor:
        """As `FastTranslator.states`."""
        src_mask = padding_mask(src)
        with autocast(src.device, self.bf16):
            return self.model.decode(tgt, self.model.encode(src, src_mask), src_mask)

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """As `FastTranslator.encode`."""
        return self.model.encode(src, src_mask)

    def decode(self, tgt: Tensor, memory: Tensor, src_mask: Tensor, cache: "RowsCache | None" = None) -> Tensor:
        """As `FastTranslator.decode`."""
        hypotheses = len(tgt) // len(memory)
        memory, src_mask = (x.repeat_interleave(hypotheses, dim=0) for x in (memory, src_mask))
        return self.model.decode(tgt, memory, src_mask, cache=None if cache is None else cache.cache)

    def new_cache(self, capacity: int) -> "RowsCache":
        """As `FastTranslator.new_cache`."""
        return RowsCache(self.model.new_cache())


class PlainRows(Rows, Plain):
    """The same, of a model that translates."""


class RowsCache:
    """The model's own cache, which has a row for each hypothesis and nothing for a sentence."""

    def __init__(self, cache: TranslatorCache):
        self.cache = cache

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        """As `FastCache.select`."""
        self.cache.select(rows)


def autocast(device: torch.device, bf16: bool) -> AbstractContextManager:
    """Compute products in bfloat16 inside this context, or change nothing."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if bf16 else nullcontext()
