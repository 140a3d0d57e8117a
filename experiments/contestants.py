"""Who takes part in `experiments.speed`: our updates, and the tutorials' of PyTorch's own model."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated import training as plain
from annotated.config import PAD, UNK, TransformerConfig
from annotated.fast import training as fast
from annotated.positional_encoding import SinusoidalEncoding
from annotated.transformer import Transformer
from experiments.contest import Call

RATE = 1e-4


class LibraryTransformer(nn.Module):
    """`torch.nn.Transformer` as its documentation and tutorials use it: embeddings, positions, masks, projection."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        self.src_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.tgt_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = SinusoidalEncoding(config.d_model, config.max_length)
        self.dropout = nn.Dropout(config.dropout)
        sizes = (config.d_model, config.heads, config.layers, config.layers, config.d_ff, config.dropout)
        self.transformer = nn.Transformer(*sizes, batch_first=True)
        self.output = nn.Linear(config.d_model, config.vocab_size)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Compute the logits, as `Transformer.forward` does."""
        x, y = (
            self.dropout(self.positions(embedding(ids) * self.config.d_model**0.5))
            for embedding, ids in ((self.src_embedding, src), (self.tgt_embedding, tgt))
        )
        future = nn.Transformer.generate_square_subsequent_mask(tgt.size(1), tgt.device, torch.bool)
        padding = {f"{side}_key_padding_mask": ids == PAD for side, ids in dict(src=src, tgt=tgt, memory=src).items()}
        return self.output(self.transformer(x, y, tgt_mask=future, **padding))


def batch(config: TransformerConfig, rows: int, length: int) -> tuple[Tensor, Tensor]:
    """Draw source and target ids, equally long once the target is shifted."""
    src, tgt = (torch.randint(UNK, config.vocab_size, (rows, length + extra)) for extra in (0, 1))
    return src, tgt


def ours(config: TransformerConfig, rows: int, length: int, *, bf16: bool = False) -> Call:
    """Make the update that the command line makes."""
    model = Transformer(config)
    return partial(fast.train_step, model, *batch(config, rows, length), fast.make_optimizer(model, RATE), bf16=bf16)


def ours_plain(config: TransformerConfig, rows: int, length: int) -> Call:
    """Make the update that the notebooks show."""
    model = Transformer(config)
    return partial(plain.train_step, model, *batch(config, rows, length), plain.make_optimizer(model, RATE))


def textbook(config: TransformerConfig, rows: int, length: int, *, bf16: bool = False) -> Call:
    """Make the tutorials' update of PyTorch's model; like ours it returns the loss."""
    model, (src, tgt) = LibraryTransformer(config).train(), batch(config, rows, length)
    adam, answers = plain.make_optimizer(model, RATE), tgt[:, 1:].flatten()

    def step() -> float:
        adam.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            logits = model(src, tgt[:, :-1]).flatten(0, 1)
            loss = F.cross_entropy(logits, answers, ignore_index=PAD, label_smoothing=0.1)
        loss.backward()
        adam.step()
        return loss.item()

    return step


def products(kind: str, count: int, size: int) -> Call:
    """Make that many products of a square matrix with itself."""
    square = torch.randn(size, size).to(getattr(torch, kind))
    return lambda: [square @ square for _ in range(count)]
