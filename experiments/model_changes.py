"""What the switches of 20_paper_code_today need beyond a configuration: changes of a model, and optimizers."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from annotated.attention import attention_weights
from annotated.encoder import Dropout, LayerNorm
from annotated.multi_head import MultiHeadAttention
from annotated.transformer import Transformer


def layers_of(model: Transformer) -> Iterator[Any]:
    """Go through the layers of the encoder and the decoder."""
    yield from (*model.encoder.layers, *model.decoder.layers)


def attentions_of(model: Transformer) -> Iterator[MultiHeadAttention]:
    """Go through all attentions."""
    return (part for part in model.modules() if isinstance(part, MultiHeadAttention))


def set_last_norm(model: Transformer, norm: Callable[[], nn.Module]) -> None:
    """Let both stacks end in another norm, or in none."""
    model.encoder.norm, model.decoder.norm = norm(), norm()


def norm_the_branches(model: Transformer, *, alone: bool = False) -> None:
    """Put a LayerNorm after each sub-layer, before its output is added; alone: take away the norm before it."""
    for attention in attentions_of(model):
        attention.W_o = nn.Sequential(attention.W_o, LayerNorm(model.config.d_model))
    for layer in layers_of(model):
        layer.feed_forward.W_2 = nn.Sequential(layer.feed_forward.W_2, LayerNorm(model.config.d_model))
        for residual in layer.residuals if alone else ():
            residual.norm = nn.Identity()


class DroppingAttention(MultiHeadAttention):
    """Multi-head attention with dropout on its weights."""

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
        """As in `MultiHeadAttention`."""
        weights = self.dropout(attention_weights(self.split(self.W_q(query)), keys, mask))
        return self.W_o((weights @ values).transpose(1, 2).flatten(2))


def drop_in_four_places(model: Transformer) -> None:
    """Add dropout on the attention weights and after the ReLU."""
    for attention in attentions_of(model):
        attention.__class__ = DroppingAttention
        attention.dropout = Dropout(model.config.dropout)
    for layer in layers_of(model):
        layer.feed_forward.activation = nn.Sequential(nn.ReLU(), Dropout(model.config.dropout))


def concatenate_sinusoids(model: Transformer) -> None:
    """Put all sines before all cosines, the slowest of them with 10000 for its wavelength / 2π (tensor2tensor)."""
    table: Any = model.positions.table
    length, width = table.shape
    angle = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(width // 2) / (width // 2 - 1))
    model.positions.table = torch.cat((angle.sin(), angle.cos()), dim=1)


def draw_embeddings(model: Transformer, draw: Callable[[Tensor], object]) -> None:
    """Draw the embeddings in another way; unless they are tied, the output projection stays as it is."""
    for weight in dict.fromkeys((model.src_embedding.weight, model.tgt_embedding.weight)):
        draw(weight)


def without_factor(model: Any) -> None:
    """Take away the factor √d_model of the embeddings, to which positions are added."""
    model.positions.register_forward_pre_hook(lambda _, args: (args[0] / math.sqrt(args[0].size(-1)), *args[1:]))


def draw_as_one_matrix(model: Transformer) -> None:
    """Draw the matrices of an attention as parts of one (tensor2tensor, June 2017): Q, K, V, or K, V to the memory."""
    for name, attention in model.named_modules():
        if isinstance(attention, MultiHeadAttention):
            together = [attention.W_k, attention.W_v] + [attention.W_q] * name.endswith("self_attention")
            for part in together:
                bound = math.sqrt(6 / (model.config.d_model * (1 + len(together))))
                nn.init.uniform_(part.weight, -bound, bound)


def draw_small(model: Transformer) -> None:
    """Draw all matrices from N(0, 0.02²), the last of each sub-layer by √(2N) smaller (GPT-2)."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            last = name.endswith(("W_o.weight", "W_2.weight"))
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * model.config.layers) if last else 0.02)


def without_biases(model: Transformer) -> None:
    """Take away the biases of the feed-forward networks."""
    for layer in layers_of(model):
        layer.feed_forward.W_1.bias = layer.feed_forward.W_2.bias = None


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """Make AdamW as nanoGPT has it: decay of the matrices alone."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-9)


def adam_of_tensor2tensor(model: nn.Module) -> torch.optim.Optimizer:
    """Make Adam with the β₂ that tensor2tensor has now."""
    return torch.optim.Adam(model.parameters(), betas=(0.9, 0.997), eps=1e-9)
