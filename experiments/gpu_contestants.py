"""What takes part in `experiments.gpu`: updates and searches, ours and other people's, on any device."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from annotated.config import BOS, PAD, TransformerConfig
from annotated.fast.accelerate import accelerate
from annotated.fast.decoding import beam_search, greedy_decode, in_bfloat16
from annotated.fast.training import make_optimizer, train_step
from annotated.positional_encoding import SinusoidalEncoding
from annotated.training import make_optimizer as make_plain_optimizer
from annotated.training import train_step as plain_step
from annotated.transformer import Transformer
from experiments import peers
from experiments.speed import RATE, textbook_step

Step = Callable[[], object]


def ours(config: TransformerConfig, src: Tensor, tgt: Tensor, *, bf16: bool) -> Step:
    """Make the update that the command line makes."""
    model = Transformer(config).to(src.device)
    return partial(train_step, model, src, tgt, make_optimizer(model, RATE), bf16=bf16)


def ours_on_each(config: TransformerConfig, batches: Sequence[Sequence[Tensor]]) -> Step:
    """Make such an update on each batch, one after the other."""
    model = Transformer(config).to(batches[0][0].device)
    optimizer = make_optimizer(model, RATE)
    return lambda: [train_step(model, *batch, optimizer, bf16=True) for batch in batches]


def plain(config: TransformerConfig, src: Tensor, tgt: Tensor) -> Step:
    """Make the update that the notebooks show."""
    model = Transformer(config).to(src.device)
    return partial(plain_step, model, src, tgt, make_plain_optimizer(model, RATE))


def library(config: TransformerConfig) -> nn.Module:
    """Make a model of `nn.Transformer`."""
    return peers.LibraryTransformer(config, SinusoidalEncoding(config.d_model, config.max_length))


def fast(config: TransformerConfig) -> nn.Module:
    """Make our fast form, as a module."""
    return accelerate(Transformer(config), bf16=True)


def textbook(make: Callable, config: TransformerConfig, src: Tensor, tgt: Tensor, bf16=True, compiled=False) -> Step:
    """Make the tutorials' update of a model, with the same one-pass Adam as ours."""
    model = make(config).to(src.device)
    forward = torch.compile(model) if compiled else model
    return textbook_step(lambda: forward(src, tgt[:, :-1]), tgt, make_optimizer(model, RATE), bf16)


def search(config: TransformerConfig, batches: Sequence[Tensor], beam: int, *, bf16: bool) -> Step:
    """Make our greedy or beam search of all batches."""
    model = Transformer(config).to(batches[0].device).eval()
    model = in_bfloat16(model) if bf16 else model
    find = partial(beam_search, beam=beam, max_extra=0) if beam > 1 else partial(greedy_decode, max_extra=0)
    return lambda: [find(model, batch) for batch in batches]


def generate(config: TransformerConfig, batches: Sequence[Tensor], beam: int) -> Step:
    """Make Hugging Face's search of all batches, with a model of the same sizes."""
    model = peers.marian(config).to(batches[0].device, torch.bfloat16).eval()
    length = batches[0].size(1)
    options = dict(num_beams=beam, do_sample=False, max_new_tokens=length, min_new_tokens=length, bos_token_id=BOS)
    return lambda: [model.generate(input_ids=batch, attention_mask=batch != PAD, **options) for batch in batches]
