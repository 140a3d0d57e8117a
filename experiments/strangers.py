"""Other people's Transformers, small, with the recipes by which the doctor examines them, and usual mistakes."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated_course.doctor import Recipe
from experiments.switches import adamw

V = 17
WRAPPED_FAULTS = ("no masks", "no mask for the future", "padding kept from the encoder alone", "future mask inverted",
                  "padding mask inverted", "batch_first forgotten")  # fmt: skip


class Wrapped(nn.Module):
    """PyTorch's `nn.Transformer` with embeddings; `fault` is one of its usual mistakes."""

    def __init__(self, fault: str = "", width: int = 32):
        super().__init__()
        self.fault, self.place = fault, nn.Embedding(64, width)
        self.embed, self.out = nn.Embedding(V, width), nn.Linear(width, V)
        sizes = {"dim_feedforward": 64, "dropout": 0.1, "batch_first": fault != "batch_first forgotten"}
        self.transformer = nn.Transformer(width, 2, 2, 2, **sizes)

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


class Block(nn.Module):
    """A layer of the small language model."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        inner = [nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)]
        self.mlp = nn.Sequential(*inner)

    def forward(self, x: Tensor) -> Tensor:
        """Look back, then think."""
        # (batch, length, 3 · width) → three times (batch, heads, length, width of a head)
        q, k, v = self.c_attn(self.ln_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        looked = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        x = x + self.c_proj(looked.transpose(1, 2).flatten(2))
        return x + self.mlp(self.ln_2(x))


class SmallGpt(nn.Module):
    """A language model in the manner of nanoGPT: tied weights, small normal numbers, no padding, logits and a loss."""

    def __init__(self, vocabulary: int = V, width: int = 32):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(32, width)
        self.blocks = nn.Sequential(Block(width, 2, 0.1), Block(width, 2, 0.1))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        for part in self.modules():
            if isinstance(part, nn.Linear | nn.Embedding):
                nn.init.normal_(part.weight, std=0.02)
        self.wte.weight = self.lm_head.weight

    def forward(self, ids: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Give logits, and the loss where there are targets."""
        x = self.wte(ids) + self.wpe(torch.arange(ids.size(1)))
        logits = self.lm_head(self.ln_f(self.blocks(x)))
        return logits, None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Gpt(Recipe):
    """The small language model: rows of one length, and AdamW."""

    pad = None
    build = SmallGpt

    def loss(self, model: nn.Module, ids: Tensor) -> Tensor:
        """Take the loss that the model computes."""
        return model(ids[:, :-1], ids[:, 1:])[1]

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Make nanoGPT's AdamW."""
        return adamw(model, rate=3e-3)

    def write(self, model: Any, ids: Tensor) -> Tensor:
        """Write seven more tokens."""
        for _ in range(7):
            ids = torch.cat((ids, model(ids)[0][:, -1:].argmax(dim=-1)), dim=1)
        return ids


class Marian(Recipe):
    """Hugging Face's MarianMT, small and random; `pad` begins the target, as Marian has it."""

    pad, eos, bos = 16, 0, 1

    def build(self) -> nn.Module:
        """Make one; needs transformers."""
        from transformers import MarianConfig, MarianMTModel

        sizes = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
        sizes |= {"encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64, "d_model": 32}
        special = {"pad_token_id": self.pad, "eos_token_id": self.eos, "decoder_start_token_id": self.bos}
        return MarianMTModel(MarianConfig(vocab_size=V, dropout=0.1, **special, **sizes))

    def logits(self, model: Any, src: Tensor, tgt: Tensor) -> Any:
        """Hand both over by name, with the mask of the source."""
        return model(input_ids=src, attention_mask=(src != self.pad).long(), decoder_input_ids=tgt)
