"""The encoder, and the feed-forward, residual, LayerNorm and dropout it shares with the decoder (§3.1, §3.3, §5.4)."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.masking import Mask
from annotated.multi_head import MultiHeadAttention

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}


class Dropout(nn.Module):
    """Zero each number with probability p in training and scale the rest by 1 / (1 − p) (Srivastava et al., 2014).

    On a CPU the mask compares random 16-bit integers with a threshold: the same mask on every version of torch for the
    same seed, which `nn.Dropout` does not promise, and in less time. p is met to within 2⁻¹⁷.

    Args:
        p: probability of a zero, 0 ≤ p < 1.

    Raises:
        ValueError: p is outside that range.
    """

    def __init__(self, p: float):
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout p={p} must be at least 0 and below 1.")
        self.p = p

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Drop in training mode; pass through in eval mode."""
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        # numpy's generators are faster than torch's; the seed comes from torch, so that manual_seed governs all.
        generator = np.random.SFC64(int(torch.randint(2**62, ())))
        draws = torch.from_numpy(generator.random_raw(-(-x.numel() // 4)).view(np.int16))[: x.numel()].view(x.shape)
        threshold = min(round(self.p * 2**16), 2**16 - 1) - 2**15
        kept = torch.ge(draws, threshold, out=torch.empty_like(x))  # 1 or 0: a product with booleans is slow
        return (x * kept).div_(1 - self.p)

    def extra_repr(self) -> str:
        """Show p where the model is printed."""
        return f"p={self.p}"


class LayerNorm(nn.Module):
    """Give a position mean 0 and variance 1, then scale and shift: γ (x − μ) / √(σ² + ε) + β (§3.1; Ba et al., 2016).

    σ² is the biased variance (divided by d_model) and ε stands inside the root.

    Args:
        d_model: number of features to normalise over.
        eps: ε.
    """

    def __init__(self, d_model: int, eps: float = 1e-5):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Normalise over the last dimension."""
        return F.layer_norm(x, self.gain.shape, self.gain, self.bias, self.eps)


class FeedForward(nn.Module):
    """The same two-layer network at every position: max(0, x W₁ + b₁) W₂ + b₂ (§3.3, Eq. 2).

    Args:
        d_model: width of input and output.
        d_ff: width of the hidden layer.
        activation: "relu" as in the paper, "gelu" or "silu".

    Raises:
        ValueError: the activation is unknown.
    """

    def __init__(self, d_model: int, d_ff: int, activation: str = "relu"):
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {activation!r}: choose from {', '.join(ACTIVATIONS)}.")
        self.activation = ACTIVATIONS[activation]
        self.W_1 = nn.Linear(d_model, d_ff)
        self.W_2 = nn.Linear(d_ff, d_model)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Transform each position by itself."""
        return self.W_2(self.activation(self.W_1(x)))


class Residual(nn.Module):
    """Wrap a sub-layer: LayerNorm(x + Dropout(sublayer(x))) (§3.1, §5.4).

    Args:
        d_model: width of x.
        dropout: probability of dropping an element of the sub-layer's output.
        norm_first: x + Dropout(sublayer(LayerNorm(x))) instead, a departure from the paper (Xiong et al., 2020).
    """

    def __init__(self, d_model: int, dropout: float, norm_first: bool = False):
        super().__init__()
        self.norm = LayerNorm(d_model)
        self.dropout = Dropout(dropout)
        self.norm_first = norm_first

    def forward(
        self, x: Float[Tensor, "batch length d_model"], sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "batch length d_model"]:
        """Add what the sub-layer computes to what went into it."""
        if self.norm_first:
            return x + self.dropout(sublayer(self.norm(x)))
        change = self.dropout(sublayer(x))
        # Under autocast both terms may have 16 bits. Their sum gets those of the LayerNorm until it is normalised.
        wide = next(self.parameters(), x).dtype
        return self.norm(x.to(wide) + change).to(change.dtype)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each in a residual connection (§3.1).

    Args:
        d_model, heads, d_ff, dropout: as in the paper.
        d_k, d_v: widths of a head; d_model / heads unless given.
        norm_first: LayerNorm before each sub-layer instead of after it.
        activation: of the feed-forward network.
        attention_bias: biases in the attention projections; the paper has none.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        d_ff: int,
        dropout: float = 0.1,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        norm_first: bool = False,
        activation: str = "relu",
        attention_bias: bool = False,
    ):
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, heads, d_k=d_k, d_v=d_v, bias=attention_bias)
        self.feed_forward = FeedForward(d_model, d_ff, activation)
        self.residuals = nn.ModuleList(Residual(d_model, dropout, norm_first) for _ in range(2))

    def forward(
        self, x: Float[Tensor, "batch source d_model"], mask: Mask | None = None
    ) -> Float[Tensor, "batch source d_model"]:
        """Let the positions look at each other, then transform each by itself.

        Args:
            x: the source so far.
            mask: True = may attend; broadcastable to (batch, heads, source, source).
        """
        x = self.residuals[0](x, lambda x: self.self_attention(x, x, x, mask))
        return self.residuals[1](x, self.feed_forward)


class Encoder(nn.Module):
    """A stack of N encoder layers (§3.1); a last LayerNorm only with norm_first, whose layers end without one.

    Args:
        layers: N.
        d_model: width of the model.
        norm_first: see `EncoderLayer`.
        options: all other arguments of `EncoderLayer`, by name.
    """

    def __init__(self, layers: int, d_model: int, *, norm_first: bool = False, **options):
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(d_model, norm_first=norm_first, **options) for _ in range(layers))
        self.norm = LayerNorm(d_model) if norm_first else nn.Identity()

    def forward(
        self, x: Float[Tensor, "batch source d_model"], mask: Mask | None = None
    ) -> Float[Tensor, "batch source d_model"]:
        """Turn embeddings into the memory that the decoder reads.

        Args:
            x: embeddings with positions.
            mask: True = may attend; broadcastable to (batch, heads, source, source).
        """
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)
