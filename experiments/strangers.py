"""Models to examine that are not the course's: `nn.Transformer` with its usual mistakes, and Harvard's design."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.config import TransformerConfig
from annotated.encoder import LayerNorm
from annotated.transformer import Transformer
from annotated_course.doctor import Recipe
from experiments.model_changes import drop_in_four_places

V, WIDTH = 17, 32
WRAPPED_FAULTS = ("no masks", "no mask for the future", "padding kept from the encoder alone", "future mask inverted",
                  "padding mask inverted", "batch_first forgotten")  # fmt: skip


class Wrapped(nn.Module):
    """PyTorch's `nn.Transformer` with embeddings; `fault` is one of its usual mistakes."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault, self.place = fault, nn.Embedding(64, WIDTH)
        self.embed, self.out = nn.Embedding(V, WIDTH), nn.Linear(WIDTH, V)
        sizes = {"dim_feedforward": 64, "dropout": 0.1, "batch_first": fault != "batch_first forgotten"}
        self.transformer = nn.Transformer(WIDTH, 2, 2, 2, **sizes)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Give logits; PyTorch's masks are True where nothing may be read."""
        padding, future = src == 0, torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool).triu(1)
        masks = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding, "tgt_mask": future}
        mistakes: dict[str, dict[str, Any]] = {
            "no masks": dict.fromkeys(masks),
            "batch_first forgotten": dict.fromkeys(masks),
            "no mask for the future": {"tgt_mask": None},
            "padding kept from the encoder alone": {"memory_key_padding_mask": None},
            "future mask inverted": {"tgt_mask": ~future},
            "padding mask inverted": {"src_key_padding_mask": ~padding, "memory_key_padding_mask": ~padding},
        }
        vectors = (self.embed(ids) + self.place(torch.arange(ids.size(1))) for ids in (src, tgt))
        return self.out(self.transformer(*vectors, **(masks | mistakes.get(self.fault, {}))))


class DeviationNorm(LayerNorm):
    """LayerNorm by the unbiased deviation, to which ε is added."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last axis."""
        return self.gain * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.bias


class AnnotatedTransformer(Transformer):
    """Harvard's "The Annotated Transformer" (2022) as changes of ours: pre-norm by deviation, dropout in four places.

    Its masks come from outside, (batch, 1 or query, key), and its generator gives log-probabilities.
    """

    def __init__(self, vocabulary: int = V):
        sizes = {"d_model": WIDTH, "d_ff": 2 * WIDTH, "heads": 2, "layers": 2, "max_length": 64}
        switches = {"norm_first": True, "tie_embeddings": False, "attention_bias": True}
        super().__init__(TransformerConfig(vocabulary, **sizes, **switches))
        drop_in_four_places(self)
        for part in self.modules():
            if isinstance(part, LayerNorm):
                part.__class__ = DeviationNorm
        for matrix in (parameter for parameter in self.parameters() if parameter.dim() > 1):
            nn.init.xavier_uniform_(matrix)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        """Give the decoder's states, (batch, target, width)."""
        src_mask, tgt_mask = src_mask[:, None], tgt_mask[:, None]
        return self.decode(tgt, self.encode(src, src_mask), src_mask, tgt_mask)

    def generator(self, states: Tensor) -> Tensor:
        """Give log-probabilities."""
        return self.output(states).log_softmax(dim=-1)


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
        return F.nll_loss(self.logits(model, src, tgt[:, :-1]).mT, tgt[:, 1:], ignore_index=self.pad)

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
