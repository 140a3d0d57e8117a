"""Other people's Transformers, small, with the recipes by which the doctor examines them, and usual mistakes.

`AnnotatedTransformer` is written anew after the design of Harvard's "The Annotated Transformer" (2022), its quirks
included: LayerNorm before each sub-layer and once more at the end, deviation unbiased and ε added to it, a dropout on
the attention weights that its maker's argument does not reach, layers that are copies until all matrices are drawn.
"""

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated_course.doctor import Recipe

V = 17


class Norm(nn.Module):
    """LayerNorm by the unbiased deviation."""

    def __init__(self, width: int):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last axis."""
        return self.a * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.b


class HeadedAttention(nn.Module):
    """Attention with several heads; its weights are dropped with p = 0.1 whatever the model's dropout is."""

    def __init__(self, heads: int, width: int, dropout: float = 0.1):
        super().__init__()
        self.heads = heads
        self.linears = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.dropout = nn.Dropout(dropout)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Look; mask: (batch, 1 or query, key), nonzero = may attend."""
        given = (query, key, value)
        q, k, v = (
            f(x).view(len(x), -1, self.heads, x.size(-1) // self.heads).transpose(1, 2)
            for f, x in zip(self.linears[:3], given, strict=True)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        weights = self.dropout(scores.masked_fill(mask[:, None] == 0, -1e9).softmax(dim=-1))
        return self.linears[3]((weights @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """A layer of the encoder; with `crossed`, of the decoder."""

    def __init__(self, width: int, inner: int, heads: int, dropout: float, crossed: bool):
        super().__init__()
        self.self_attn = HeadedAttention(heads, width)
        self.src_attn = HeadedAttention(heads, width) if crossed else None
        self.feed_forward = nn.Sequential(
            nn.Linear(width, inner), nn.ReLU(), nn.Dropout(dropout), nn.Linear(inner, width)
        )
        self.norms = nn.ModuleList(Norm(width) for _ in range(2 + crossed))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor, memory: Any = None, src_mask: Any = None) -> Tensor:
        """Add what each sub-layer makes of the normalised input."""
        first, *_, last = self.norms
        y = first(x)
        x = x + self.dropout(self.self_attn(y, y, y, mask))
        if self.src_attn is not None:
            x = x + self.dropout(self.src_attn(self.norms[1](x), memory, memory, src_mask))
        return x + self.dropout(self.feed_forward(last(x)))


class Stack(nn.Module):
    """Copies of a layer, and a last norm."""

    def __init__(self, layer: Layer, count: int, width: int):
        super().__init__()
        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(count))
        self.norm = Norm(width)

    def forward(self, x: Tensor, *rest: Tensor) -> Tensor:
        """Go through all layers."""
        for layer in self.layers:
            x = layer(x, *rest)
        return self.norm(x)


class Embedded(nn.Module):
    """Embeddings, scaled, and a table of sinusoids."""

    def __init__(self, width: int, vocabulary: int, dropout: float, longest: int = 64):
        super().__init__()
        self.lut, self.dropout = nn.Embedding(vocabulary, width), nn.Dropout(dropout)
        angles = torch.arange(longest)[:, None] * torch.exp(torch.arange(0, width, 2) * -(math.log(10000) / width))
        self.register_buffer("pe", torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1))

    def forward(self, ids: Tensor) -> Tensor:
        """Turn ids into vectors."""
        x = self.lut(ids) * math.sqrt(self.lut.embedding_dim)
        return self.dropout(x + self.pe[: ids.size(1)])


class AnnotatedTransformer(nn.Module):
    """An encoder–decoder whose masks come from outside, and whose generator gives log-probabilities."""

    def __init__(self, vocabulary: int = V, layers: int = 2, width: int = 32, inner: int = 64, heads: int = 2,
                 dropout: float = 0.1, drawn: bool = True):  # fmt: skip
        super().__init__()
        self.encoder = Stack(Layer(width, inner, heads, dropout, False), layers, width)
        self.decoder = Stack(Layer(width, inner, heads, dropout, True), layers, width)
        self.src_embed = Embedded(width, vocabulary, dropout)
        self.tgt_embed = Embedded(width, vocabulary, dropout)
        self.proj = nn.Linear(width, vocabulary)
        for p in self.parameters():
            if drawn and p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        """Give the decoder's states."""
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """Give the memory."""
        return self.encoder(self.src_embed(src), src_mask)

    def decode(self, memory: Tensor, src_mask: Tensor, tgt: Tensor, tgt_mask: Tensor) -> Tensor:
        """Give the decoder's states, from the memory."""
        return self.decoder(self.tgt_embed(tgt), tgt_mask, memory, src_mask)

    def generator(self, states: Tensor) -> Tensor:
        """Give log-probabilities."""
        return self.proj(states).log_softmax(dim=-1)


def subsequent(size: int) -> Tensor:
    """Let each position see itself and what is before it."""
    return torch.triu(torch.ones(1, size, size), diagonal=1) == 0


class Annotated(Recipe):
    """The Annotated Transformer as published: the ids of its specials, its loss, its Adam, its rates, its writing."""

    bos, eos, pad = 0, 1, 2

    def build(self) -> nn.Module:
        """Make one."""
        return AnnotatedTransformer()

    def logits(self, model: Any, src: Tensor, tgt: Tensor) -> Tensor:
        """Make both masks, and call the model and its generator."""
        src_mask, tgt_mask = (src != self.pad).unsqueeze(-2), (tgt != self.pad).unsqueeze(-2) & subsequent(tgt.size(1))
        return model.generator(model(src, tgt, src_mask, tgt_mask))

    def loss(self, model: nn.Module, src: Tensor, tgt: Tensor) -> Tensor:
        """Compute the divergence from a distribution without smoothing, per token."""
        answers = tgt[:, 1:].flatten()
        log_probs = self.logits(model, src, tgt[:, :-1]).flatten(0, 1)
        wanted = F.one_hot(answers, V) * (answers != self.pad)[:, None]
        return F.kl_div(log_probs, wanted.to(log_probs), reduction="sum") / (answers != self.pad).sum()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Make Adam and a scheduler; it counts from 0, and so its first two rates are equal."""
        adam = torch.optim.Adam(model.parameters(), lr=0.5, betas=(0.9, 0.98), eps=1e-9)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: self.plan(max(1, step)) / 0.5)
        return adam

    def plan(self, step: int) -> float:
        """The rate of §5.3."""
        return 0.5 * 32**-0.5 * min(step**-0.5, step * 60**-1.5)

    def update(self, model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[Tensor, ...], step: int) -> None:
        """Do one update, in training mode."""
        model.train()
        self.loss(model, *batch).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        self.scheduler.step()

    def write(self, model: Any, src: Tensor) -> Tensor:
        """Write eight tokens for each source, and do not stop at the end."""
        src_mask, ids = (src != self.pad).unsqueeze(-2), torch.full((len(src), 1), self.bos)
        memory = model.encode(src, src_mask)
        for _ in range(8):
            states = model.decode(memory, src_mask, ids, subsequent(ids.size(1)))
            ids = torch.cat((ids, model.generator(states[:, -1:]).argmax(dim=-1)), dim=1)
        return ids


class Wrapped(nn.Module):
    """PyTorch's `nn.Transformer` with embeddings, in ten lines; `fault` is one of its usual mistakes."""

    def __init__(self, fault: str = "", width: int = 32):
        super().__init__()
        self.fault, self.place = fault, nn.Embedding(64, width)
        self.embed, self.out = nn.Embedding(V, width), nn.Linear(width, V)
        sizes = {"dim_feedforward": 64, "dropout": 0.1, "batch_first": fault != "batch_first forgotten"}
        self.transformer = nn.Transformer(width, 2, 2, 2, **sizes)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Give logits; PyTorch's masks are True where nothing may be read."""
        future = torch.ones(tgt.size(1), tgt.size(1), dtype=torch.bool).triu(1)
        padding = {"src_key_padding_mask": src == 0, "memory_key_padding_mask": src == 0, "tgt_mask": future}
        if self.fault in ("no masks", "batch_first forgotten"):
            padding = {}
        elif self.fault == "no mask for the future":
            del padding["tgt_mask"]
        elif self.fault == "padding kept from the encoder alone":
            del padding["memory_key_padding_mask"]
        elif self.fault == "future mask inverted":
            padding["tgt_mask"] = ~future
        elif self.fault == "padding mask inverted":
            padding |= {"src_key_padding_mask": src != 0, "memory_key_padding_mask": src != 0}
        src_vectors, tgt_vectors = (self.embed(ids) + self.place(torch.arange(ids.size(1))) for ids in (src, tgt))
        return self.out(self.transformer(src_vectors, tgt_vectors, **padding))


WRAPPED_FAULTS = ("no masks", "no mask for the future", "padding kept from the encoder alone", "future mask inverted",
                  "padding mask inverted", "batch_first forgotten")  # fmt: skip


class Block(nn.Module):
    """A layer of the small language model."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Look back, then think."""
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).chunk(3, -1)
        )
        p = self.dropout if self.training else 0.0
        looked = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=p)
        x = x + self.c_proj(looked.transpose(1, 2).flatten(2))
        return x + self.mlp(self.ln_2(x))


class SmallGpt(nn.Module):
    """A language model in the manner of nanoGPT: tied weights, small normal numbers, no padding, logits and a loss."""

    def __init__(self, vocabulary: int = V, width: int = 32, heads: int = 2, layers: int = 2, block: int = 32):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(block, width)
        self.blocks = nn.ModuleList(Block(width, heads, 0.1) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        for part in self.modules():
            if isinstance(part, nn.Linear | nn.Embedding):
                nn.init.normal_(part.weight, std=0.02)
        self.wte.weight = self.lm_head.weight

    def forward(self, ids: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Give logits, and the loss where there are targets."""
        x = self.wte(ids) + self.wpe(torch.arange(ids.size(1)))
        for block in self.blocks:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Gpt(Recipe):
    """The small language model: rows of one length, and AdamW."""

    pad = None

    def build(self) -> nn.Module:
        """Make one."""
        return SmallGpt()

    def loss(self, model: nn.Module, ids: Tensor) -> Tensor:
        """Take the loss that the model computes."""
        return model(ids[:, :-1], ids[:, 1:])[1]

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Make AdamW, whose weight decay touches matrices alone."""
        matrices, others = ([p for p in model.parameters() if (p.dim() > 1) is flat] for flat in (True, False))
        return torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=3e-3
        )

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
