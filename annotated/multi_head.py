"""Multi-head attention (§3.2.2)."""

from collections.abc import Iterator
from contextlib import contextmanager

from jaxtyping import Float
from torch import Tensor, nn

from annotated.attention import attention, attention_weights
from annotated.masking import Mask


class MultiHeadAttention(nn.Module):
    """Attend in several subspaces at once (§3.2.2).

    MultiHead(Q, K, V) = Concat(head₁, …, head_h) W^O with headᵢ = Attention(Q Wᵢ^Q, K Wᵢ^K, V Wᵢ^V).

    Args:
        d_model: width of the inputs and of the output.
        heads: number of heads h.
        d_k: width of a head's queries and keys; d_model / heads unless given.
        d_v: width of a head's values; d_model / heads unless given.
        bias: add biases to the four projections; the paper has none.

    Raises:
        ValueError: a size is below 1, or d_model is not divisible by heads and d_k or d_v is not given.
    """

    def __init__(self, d_model: int, heads: int, *, d_k: int | None = None, d_v: int | None = None, bias: bool = False):
        super().__init__()
        if min(d_model, heads, d_k or 1, d_v or 1) < 1 or 0 in (d_k, d_v):
            raise ValueError(f"d_model={d_model}, heads={heads}, d_k={d_k} and d_v={d_v} must be at least 1.")
        if (d_k is None or d_v is None) and d_model % heads:
            raise ValueError(f"d_model={d_model} does not divide into {heads} heads: change one, or give d_k and d_v.")
        self.heads = heads
        self.d_k = d_k or d_model // heads
        self.d_v = d_v or d_model // heads
        self.W_q = nn.Linear(d_model, heads * self.d_k, bias=bias)
        self.W_k = nn.Linear(d_model, heads * self.d_k, bias=bias)
        self.W_v = nn.Linear(d_model, heads * self.d_v, bias=bias)
        self.W_o = nn.Linear(heads * self.d_v, d_model, bias=bias)
        self.recorders: list[list[Tensor]] = []  # see record_attention

    def forward(
        self,
        query: Float[Tensor, "batch query d_model"],
        key: Float[Tensor, "batch key d_model"],
        value: Float[Tensor, "batch key d_model"],
        mask: Mask | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """Project, attend in every head, concatenate, project back.

        Args:
            query: the positions that ask; key: those that may answer; value: what they answer with.
            mask: True = may attend; broadcastable to (batch, heads, query, key), with 2 or 4 axes.

        Raises:
            TypeError, ValueError: the mask is not boolean, or does not fit the scores.
        """
        return self.attend(query, *self.project(key, value), mask)

    def project(
        self, key: Float[Tensor, "batch key d_model"], value: Float[Tensor, "batch key d_model"]
    ) -> tuple[Float[Tensor, "batch heads key d_k"], Float[Tensor, "batch heads key d_v"]]:
        """Give each head its keys and values: K Wᵢ^K and V Wᵢ^V. A decoder computes them once and keeps them."""
        return self.split(self.W_k(key)), self.split(self.W_v(value))

    def attend(
        self,
        query: Float[Tensor, "batch query d_model"],
        keys: Float[Tensor, "batch heads key d_k"],
        values: Float[Tensor, "batch heads key d_v"],
        mask: Mask | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """Let the queries attend to keys and values that `project` made; mask and errors as in `forward`."""
        queries = self.split(self.W_q(query))
        for recorder in self.recorders:
            recorder.append(attention_weights(queries, keys, mask).detach())
        mixed = attention(queries, keys, values, mask)  # (batch, heads, query, d_v)
        return self.W_o(mixed.transpose(1, 2).flatten(2))  # concatenated: (batch, query, heads · d_v)

    def split(self, x: Float[Tensor, "batch length heads_width"]) -> Float[Tensor, "batch heads length width"]:
        """Cut the last dimension into heads."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # between the two, (batch, length, heads, width)


@contextmanager
def record_attention(model: nn.Module) -> Iterator[dict[str, list[Float[Tensor, "batch heads query key"]]]]:
    """Record the weights of every attention in `model` while the context is open, for plots.

    Yields a dictionary from the module's name ("decoder.layers.0.cross_attention") to one tensor per forward pass.
    Of nested recordings each records. What `annotated.fast` computes is not recorded.

    Args:
        model: any module that contains `MultiHeadAttention`.
    """
    modules = {name: module for name, module in model.named_modules() if isinstance(module, MultiHeadAttention)}
    recorded: dict[str, list[Tensor]] = {name: [] for name in modules}
    for name, module in modules.items():
        module.recorders.append(recorded[name])
    try:
        yield recorded
    finally:
        for module in modules.values():
            module.recorders.pop()
