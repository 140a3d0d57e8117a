"""Models to examine that are not the course's: `nn.Transformer` with its usual mistakes."""

from typing import Any

import torch
from torch import Tensor, nn

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
