"""Harvard's "The Annotated Transformer" (2022), written anew after its design, small, for the doctor to examine.

Its quirks are included: LayerNorm before each sub-layer and once more at the end, deviation unbiased and ε added to it,
a dropout on the attention weights that its maker's argument does not reach, layers that are copies until all are drawn.
"""

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated_course.doctor import Recipe

V, WIDTH, HEADS, DROPOUT = 17, 32, 2, 0.1


class Norm(nn.Module):
    """LayerNorm by the unbiased deviation."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last axis."""
        return self.a * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.b


class HeadedAttention(nn.Module):
    """Attention with several heads."""

    def __init__(self) -> None:
        super().__init__()
        self.linears, self.dropout = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4)), nn.Dropout(DROPOUT)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Look from x into the memory; mask: (batch, 1 or query, key), True = may attend."""
        given = zip(self.linears[:3], (x, memory, memory), strict=True)
        q, k, v = (linear(states).unflatten(-1, (HEADS, -1)).transpose(1, 2) for linear, states in given)
        scores = (q @ k.mT / math.sqrt(q.size(-1))).masked_fill(~mask[:, None], -1e9)
        return self.linears[3]((self.dropout(scores.softmax(dim=-1)) @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """A layer of the encoder; with `crossed`, of the decoder."""

    def __init__(self, crossed: bool):
        super().__init__()
        self.attentions = nn.ModuleList(HeadedAttention() for _ in range(1 + crossed))
        inner = [nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Dropout(DROPOUT), nn.Linear(2 * WIDTH, WIDTH)]
        self.feed_forward, self.dropout = nn.Sequential(*inner), nn.Dropout(DROPOUT)
        self.norms = nn.ModuleList(Norm() for _ in range(2 + crossed))

    def forward(self, x: Tensor, mask: Tensor, memory: Any = None, src_mask: Any = None) -> Tensor:
        """Add what each sub-layer makes of the normalised input."""
        y = self.norms[0](x)
        x = x + self.dropout(self.attentions[0](y, y, mask))
        if memory is not None:
            x = x + self.dropout(self.attentions[1](self.norms[1](x), memory, src_mask))
        return x + self.dropout(self.feed_forward(self.norms[-1](x)))


class Stack(nn.Module):
    """Scaled embeddings with sinusoids, copies of a layer, and a last norm."""

    def __init__(self, layer: Layer, vocabulary: int, layers: int = 2):
        super().__init__()
        self.lut, self.dropout, self.norm = nn.Embedding(vocabulary, WIDTH), nn.Dropout(DROPOUT), Norm()
        angles = torch.arange(64)[:, None] * torch.exp(torch.arange(0, WIDTH, 2) * -(math.log(10000) / WIDTH))
        self.register_buffer("pe", torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1))
        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(layers))

    def forward(self, ids: Tensor, *rest: Tensor) -> Tensor:
        """Go through all layers."""
        x = self.dropout(self.lut(ids) * math.sqrt(WIDTH) + self.pe[: ids.size(1)])
        for layer in self.layers:
            x = layer(x, *rest)
        return self.norm(x)


class AnnotatedTransformer(nn.Module):
    """An encoder–decoder whose masks come from outside, and whose generator gives log-probabilities."""

    def __init__(self, vocabulary: int = V):
        super().__init__()
        self.encoder, self.decoder = Stack(Layer(False), vocabulary), Stack(Layer(True), vocabulary)
        self.proj = nn.Linear(WIDTH, vocabulary)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        """Give the decoder's states."""
        return self.decoder(tgt, tgt_mask, self.encoder(src, src_mask), src_mask)

    def generator(self, states: Tensor) -> Tensor:
        """Give log-probabilities."""
        return self.proj(states).log_softmax(dim=-1)


class Annotated(Recipe):
    """The Annotated Transformer as published: the ids of its specials, its loss, its Adam, its rates, its writing."""

    bos, eos, pad = 0, 1, 2
    build = AnnotatedTransformer

    def logits(self, model: Any, src: Tensor, tgt: Tensor) -> Tensor:
        """Make both masks, and call the model and its generator."""
        past = torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool).tril()
        src_mask, tgt_mask = (src != self.pad).unsqueeze(-2), (tgt != self.pad).unsqueeze(-2) & past
        return model.generator(model(src, tgt, src_mask, tgt_mask))

    def loss(self, model: nn.Module, src: Tensor, tgt: Tensor) -> Tensor:
        """Compute the divergence from a distribution without smoothing, per token."""
        log_probs = self.logits(model, src, tgt[:, :-1]).flatten(0, 1)
        return F.nll_loss(log_probs, tgt[:, 1:].flatten(), ignore_index=self.pad)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Make Adam and a scheduler; it counts from 0, and so its first two rates are equal."""
        adam = torch.optim.Adam(model.parameters(), lr=0.5, betas=(0.9, 0.98), eps=1e-9)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: self.plan(max(1, step)) / 0.5)
        return adam

    def plan(self, step: int) -> float:
        """The rate of §5.3."""
        return 0.5 * WIDTH**-0.5 * min(step**-0.5, step * 60**-1.5)

    def update(self, model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[Tensor, ...], step: int) -> None:
        """Do one update, in training mode."""
        model.train()
        self.loss(model, *batch).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        self.scheduler.step()

    def write(self, model: Any, src: Tensor) -> Tensor:
        """Write eight tokens for each source, and do not stop at the end."""
        ids = torch.full((len(src), 1), self.bos)
        for _ in range(8):
            ids = torch.cat((ids, self.logits(model, src, ids)[:, -1:].argmax(dim=-1)), dim=1)
        return ids
