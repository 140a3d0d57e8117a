"""The encoder, and the feed-forward, residual, LayerNorm and dropout it shares with the decoder (§3.1, §3.3, §5.4)."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.config import ACTIVATIONS, TransformerConfig
from annotated.masking import Mask
from annotated.multi_head import MultiHeadAttention


class Dropout(nn.Module):
    """Zero each number with probability p in training and scale the rest by 1 / (1 − p) (Srivastava et al., 2014).

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
        kept = torch.rand_like(x, dtype=torch.float32) >= self.p
        return x * kept / (1 - self.p)

    def extra_repr(self) -> str:
        """Show p where the model is printed."""
        return f"p={self.p}"


class LayerNorm(nn.Module):
    """Give a position mean 0 and variance 1, scale and shift it: γ (x − μ) / √(σ² + ε) + β (§3.1; Ba et al., 2016).

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
        mean = x.mean(dim=-1, keepdim=True)
        variance = x.var(dim=-1, keepdim=True, correction=0)
        return self.gain * (x - mean) / (variance + self.eps).sqrt() + self.bias


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
        self.activation: Callable[[Tensor], Tensor] = getattr(F, activation)
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
        return self.norm(x + self.dropout(sublayer(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each in a residual connection (§3.1).

    Args:
        config: sizes and switches.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.self_attention = MultiHeadAttention(
            config.d_model, config.heads, d_k=config.d_k, d_v=config.d_v, bias=config.attention_bias
        )
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation)
        self.residuals = nn.ModuleList(Residual(config.d_model, config.dropout, config.norm_first) for _ in range(2))

    def forward(
        self, x: Float[Tensor, "batch source d_model"], mask: Mask | None = None
    ) -> Float[Tensor, "batch source d_model"]:
        """Let the positions look at each other, then transform each by itself.

        Args:
            x: the source so far.
            mask: True = may attend; broadcastable to (batch, heads, source, source).
        """
        x = self.residuals[0](x, lambda y: self.self_attention(y, y, y, mask))
        return self.residuals[1](x, self.feed_forward)


class Encoder(nn.Module):
    """A stack of N encoder layers (§3.1); a last LayerNorm only with norm_first, whose layers end without one.

    Args:
        config: sizes and switches.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.norm = LayerNorm(config.d_model) if config.norm_first else nn.Identity()

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
