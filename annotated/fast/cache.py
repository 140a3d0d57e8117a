"""The keys and values of all hypotheses of a sentence side by side, so that a search moves none of them."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from annotated.fast.attention import Allowed
from annotated.masking import causal_mask


class LayerCache:
    """One layer's keys and values, of the memory and of the tokens so far, whose room is allocated once."""

    def __init__(self, capacity: int):
        self.capacity, self.length = capacity, 0
        self.room: tuple[Float[Tensor, "sentence heads capacity _"], ...] = ()  # keys and values of tokens
        self.memory: tuple[Float[Tensor, "sentence heads source _"], ...] = ()

    def append(
        self, keys: Float[Tensor, "sentence heads new d_k"], values: Float[Tensor, "sentence heads new d_v"]
    ) -> tuple[Float[Tensor, "sentence heads total _"], ...]:
        """Store the keys and values of new tokens; return those of all tokens so far."""
        start, self.length = self.length, self.length + keys.size(2)
        if not self.room:
            self.room = tuple(x.new_empty(*x.shape[:2], self.capacity, x.size(3)) for x in (keys, values))
        for room, new in zip(self.room, (keys, values), strict=True):
            room[:, :, start : self.length] = new
        return tuple(room[:, :, : self.length] for room in self.room)

    def keep(self, sentences: Int[Tensor, "kept"]) -> None:
        """Keep what is stored for these sentences."""
        self.memory = tuple(x[sentences] for x in self.memory)
        for room in self.room:
            room[: len(sentences), :, : self.length] = room[sentences, :, : self.length]
        self.room = tuple(room[: len(sentences)] for room in self.room)


class Cache(list[LayerCache]):
    """A `LayerCache` for each layer, and a table of which hypothesis has which of the stored tokens in its past.

    A row is a hypothesis; a sentence's hypotheses are consecutive, and each sentence has equally many. They share the
    room of their sentence, `capacity` tokens. To branch, reorder or drop them changes the table; no key moves.
    """

    def __init__(self, layers: int, capacity: int):
        super().__init__(LayerCache(capacity) for _ in range(layers))
        self.length = 0  # positions decoded so far
        self.written: Bool[Tensor, "row token"] | None = None
        self.shared = False  # whether a sentence has ever had several hypotheses

    def line_up(
        self, x: Float[Tensor, "row new d_model"], sentences: int
    ) -> tuple[Float[Tensor, "sentence queries d_model"], Allowed | None]:
        """Put the new tokens of a sentence's hypotheses side by side, and tell what each may see.

        A token sees its hypothesis's past and itself: (sentence, 1, queries, tokens so far), or None if that is all
        there is. Where the room is too small, a ValueError leaves everything as it was.
        """
        rows, new = x.shape[:2]
        hypotheses, capacity = rows // sentences, self[0].capacity
        if (end := self[0].length + hypotheses * new) > capacity:
            raise ValueError(f"the cache holds {capacity} tokens of a sentence, and {end} are needed: enlarge it.")
        if self.written is None:
            self.written = torch.empty(rows, 0, dtype=torch.bool, device=x.device)
        # (hypotheses · new, hypotheses · new): a triangle (new, new) on the diagonal for each hypothesis
        own = torch.kron(torch.eye(hypotheses, device=x.device), causal_mask(new, device=x.device)).bool()
        # (rows · new, tokens so far): what the row had written, and of the new tokens its own up to this one
        mask = torch.cat((self.written.repeat_interleave(new, dim=0), own.repeat(sentences, 1)), dim=1)
        self.written = mask[new - 1 :: new]  # a row's last token sees all that the row has written
        self.length += new
        self.shared = self.shared or hypotheses > 1
        mask = mask.view(sentences, 1, hypotheses * new, -1)
        # Each token sees itself, so that no query sees nothing; and a single one sees all.
        allowed = Allowed(mask, mask, None) if self.shared or new > 1 else None
        return x.reshape(sentences, hypotheses * new, -1), allowed

    def select(self, rows: Int[Tensor, "kept"], sentences: Int[Tensor, "sentences"] | None = None) -> None:
        """Keep these hypotheses, in this order, and these sentences (all unless given)."""
        assert self.written is not None, "the cache is empty: there is nothing to select"
        self.written = self.written[rows]
        if sentences is not None:
            for layer in self:
                layer.keep(sentences)
