"""Who takes part in `experiments.speed`: updates and searches, ours and other people's."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from annotated import training as plain
from annotated.config import BOS, EOS, PAD, UNK, TransformerConfig
from annotated.fast import training as fast
from annotated.fast.decoding import beam_search, greedy_decode, in_bfloat16
from annotated.transformer import Transformer
from experiments import peers
from experiments.contest import Call

RATE = 1e-4


def batch(config: TransformerConfig, rows: int, length: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Draw source and target ids, equally long once the target is shifted."""
    src, tgt = (torch.randint(UNK, config.vocab_size, (rows, length + extra), device=device) for extra in (0, 1))
    return src, tgt


def sentences(config: TransformerConfig, count: int, length: int, size: int, device: str = "cpu") -> Sequence[Tensor]:
    """Draw batches of sentences to translate, each ending in <eos>."""
    src = torch.randint(UNK, config.vocab_size, (count, length), device=device)
    src[:, -1] = EOS
    return src.split(size)


def ours(config: TransformerConfig, rows: int, length: int, device: str = "cpu", *, bf16: bool = False) -> Call:
    """Make the update that the command line makes."""
    model = Transformer(config).to(device)
    given = *batch(config, rows, length, device), fast.make_optimizer(model, RATE)
    return partial(fast.train_step, model, *given, bf16=bf16)


def ours_plain(config: TransformerConfig, rows: int, length: int, device: str = "cpu") -> Call:
    """Make the update that the notebooks show."""
    model = Transformer(config).to(device)
    return partial(plain.train_step, model, *batch(config, rows, length, device), plain.make_optimizer(model, RATE))


def textbook(
    make: Callable[[TransformerConfig], nn.Module],
    config: TransformerConfig,
    rows: int,
    length: int,
    device: str = "cpu",
    *,
    bf16: bool = False,
    optimizer: Callable[..., Optimizer] = plain.make_optimizer,
) -> Call:
    """Make the tutorials' update of a model that gives logits; like ours it returns the loss."""
    model, (src, tgt) = make(config).to(device).train(), batch(config, rows, length, device)
    adam, answers = optimizer(model, RATE), tgt[:, 1:].flatten()

    def step() -> float:
        adam.zero_grad()
        with torch.autocast(src.device.type, dtype=torch.bfloat16, enabled=bf16):
            logits = model(src, tgt[:, :-1]).flatten(0, 1)
            loss = F.cross_entropy(logits, answers, ignore_index=PAD, label_smoothing=0.1)
        loss.backward()
        adam.step()
        return loss.item()

    return step


def search(config: TransformerConfig, sizes: Sequence[int], device: str = "cpu", *, beam: int, bf16: bool) -> Call:
    """Make our search; sizes are those of `sentences`, and no translation is longer than its source."""
    model: Any = Transformer(config).to(device).eval()
    model = in_bfloat16(model) if bf16 else model
    find = partial(beam_search, beam=beam, max_extra=0) if beam > 1 else partial(greedy_decode, max_extra=0)
    batches = sentences(config, *sizes, device)
    return lambda: [find(model, src) for src in batches]


def generate(config: TransformerConfig, sizes: Sequence[int], device: str = "cpu", *, beam: int, bf16: bool) -> Call:
    """Make Hugging Face's search; arguments as for `search`."""
    model = peers.Marian(config).model.to(device, torch.bfloat16 if bf16 else torch.float32).eval()
    options = dict(num_beams=beam, do_sample=False, max_new_tokens=sizes[1], min_new_tokens=sizes[1], bos_token_id=BOS)
    batches = sentences(config, *sizes, device)
    return lambda: [model.generate(input_ids=src, attention_mask=src != PAD, **options) for src in batches]


def engine(config: TransformerConfig, sizes: Sequence[int], *, beam: int, precision: str) -> Call:
    """Make CTranslate2's search; arguments as for `search`."""
    translate = peers.ctranslate2(Transformer(config).eval(), precision, beam=beam)
    batches = sentences(config, *sizes)
    return lambda: [translate(src.tolist()) for src in batches]


def products(kind: str, count: int, size: int, device: str = "cpu") -> Call:
    """Make that many products of a square matrix with itself."""
    square = torch.randn(size, size, device=device).to(getattr(torch, kind))
    return lambda: [square @ square for _ in range(count)]
