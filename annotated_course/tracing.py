"""One sentence, traced: the tensors on the way from token ids to the next word of its translation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.config import BOS, EOS
from annotated.decoding import evaluating, greedy_decode, next_log_probs
from annotated.masking import padding_mask
from annotated.multi_head import record_attention
from annotated.transformer import Transformer
from annotated_course.plotting import ARROW, DPI, OPERATION, token_labels
from annotated_workbench.extras import load
from annotated_workbench.vocabulary import Tokenizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDEST = 256  # columns of a thumbnail: two pixels each in a figure at 2×
Row = tuple[Any, ...]  # a `Step` without its part


class Step(NamedTuple):
    """One tensor on the way.

    `part` is the part of the model, `name` the field's term, `symbol` the paper's formula, `where` the full name of the
    function that computes it; `tokens` are the words of a tensor of ids.
    """

    part: str
    name: str
    symbol: str
    where: str
    tensor: Tensor
    tokens: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape, the batch of one sentence first."""
        return tuple(self.tensor.shape)


@torch.inference_mode()
def trace(
    model: Transformer, tokenizer: Tokenizer, sentence: str, language: str = "de", *, written: int = 0
) -> list[Step]:
    """Let a model write one token of a sentence's translation, greedily; return the tensors on the way, in order.

    The encoder's first layer is shown from inside, the decoder's by its weights and sums, the others by what they give.

    Args:
        model: a trained model, post-norm and with ReLU; used in eval mode and left in the mode it was in.
        tokenizer: the one it was trained with.
        sentence: what to translate.
        language: the language it is in.
        written: how many tokens of the translation are there already, for the decoder to read.

    Raises:
        TypeError: the model is no `Transformer`.
        ValueError: the model computes other formulas than the paper's, the sentence has no tokens or too many, or its
            translation has fewer tokens than shall be there already.
    """
    if not isinstance(model, Transformer):
        raise TypeError(f"trace follows an annotated.transformer.Transformer; got {type(model).__qualname__}.")
    config = model.config
    if config.norm_first or config.activation != "relu":
        raise ValueError(
            f"norm_first={config.norm_first} and activation={config.activation!r}: trace writes the paper's formulas "
            "beside the tensors, so it wants a post-norm model with ReLU."
        )
    ids = tokenizer.encode(sentence, language)
    if not ids:
        raise ValueError(f"the sentence {sentence!r} has no tokens: give at least one word.")
    src = torch.tensor([[*ids, EOS]])
    (translation,) = greedy_decode(model, src)
    if not 0 <= written <= len(translation.ids):
        raise ValueError(f"written={written}: the translation has {len(translation.ids)} tokens; give 0 to that many.")
    tgt = torch.tensor([[BOS, *translation.ids[:written]]])
    with evaluating(model), record_attention(model) as weights, record_calls(model) as calls:
        src_mask = padding_mask(src)
        log_probs = next_log_probs(model, tgt, model.encode(src, src_mask), src_mask, None)
    chosen = log_probs.argmax(dim=-1)

    def given(module: str, call: int = 0) -> Tensor:
        return calls[module][call][0]

    def made(module: str, call: int = 0) -> Tensor:
        return calls[module][call][1]

    def heads(module: str) -> Tensor:
        return made(module).unflatten(-1, (config.heads, -1)).transpose(1, 2)

    def words(ids: Tensor) -> tuple[str, ...]:
        return tuple(token_labels(tokenizer, ids.flatten().tolist()))

    residual = "LayerNorm(x + Sublayer(x))"

    def outputs(stack: str, states: str) -> Iterator[Row]:
        name = f"{stack.capitalize()}Layer"
        for i in range(1, config.layers):
            last = f": {states}" if i == config.layers - 1 else ""
            yield f"output of layer {i}{last}", residual, f"{stack}.{name}.forward", made(f"{stack}.layers.{i}")

    inside = "encoder.layers.0"
    asking, asked = "multi_head.MultiHeadAttention.attend", "multi_head.MultiHeadAttention.project"
    softmax, network = "softmax(Qᵢ Kᵢᵀ / √d_k)", "encoder.FeedForward.forward"
    embed = "transformer.Transformer"
    table = f"positional_encoding.{type(model.positions).__name__}"
    add = f"{table}.forward"
    rows: dict[str, list[Row]] = {
        "source": [
            (
                "source ids",
                "x₁, …, xₙ",
                f"annotated_workbench.vocabulary.{type(tokenizer).__name__}.encode",
                src,
                words(src),
            ),
            ("embeddings", "E[xᵢ] · √d_model", f"{embed}.encode", given("positions")),
            ("positional encoding", "PE(pos, ·)", table, model.positions.table[: src.size(1)]),
            ("encoder input", "E[xᵢ] · √d_model + PE", add, made("positions")),
        ],
        "encoder layer 0": [
            ("queries", "Qᵢ = x Wᵢ^Q", asking, heads(f"{inside}.self_attention.W_q")),
            ("keys", "Kᵢ = x Wᵢ^K", asked, heads(f"{inside}.self_attention.W_k")),
            ("values", "Vᵢ = x Wᵢ^V", asked, heads(f"{inside}.self_attention.W_v")),
            ("self-attention weights", softmax, "attention.attention_weights", weights[f"{inside}.self_attention"][0]),
            ("heads", "Concat(head₁, …, head_h)", asking, given(f"{inside}.self_attention.W_o")),
            ("multi-head attention", "Concat(…) W^O", asking, made(f"{inside}.self_attention.W_o")),
            ("add & norm", residual, "encoder.Residual.forward", made(f"{inside}.residuals.0")),
            ("hidden layer", "max(0, x W₁ + b₁)", network, given(f"{inside}.feed_forward.W_2")),
            ("feed-forward", "max(0, x W₁ + b₁) W₂ + b₂", network, made(f"{inside}.feed_forward")),
            ("add & norm: output of layer 0", residual, "encoder.Residual.forward", made(f"{inside}.residuals.1")),
        ],
        "encoder": [*outputs("encoder", "memory")],
    }
    inside = "decoder.layers.0"
    attend = "attention.attention_weights"
    rows |= {
        "target": [
            ("target ids", "y₀, …, yₜ", "decoding.greedy_decode", tgt, words(tgt)),
            ("decoder input", "E[yᵢ] · √d_model + PE", add, made("positions", 1)),
        ],
        "decoder layer 0": [
            ("masked self-attention weights", softmax, attend, weights[f"{inside}.self_attention"][0]),
            ("add & norm", residual, "encoder.Residual.forward", made(f"{inside}.residuals.0")),
            ("cross-attention weights", softmax, attend, weights[f"{inside}.cross_attention"][0]),
            ("add & norm", residual, "encoder.Residual.forward", made(f"{inside}.residuals.1")),
            ("add & norm: output of layer 0", residual, "encoder.Residual.forward", made(f"{inside}.residuals.2")),
        ],
        "decoder": [*outputs("decoder", "states")],
        "next token": [
            ("logits", "last state · Eᵀ", f"{embed}.logits", made("output")),
            ("probabilities", "softmax(logits); 0 for <pad> and <bos>", "decoding.next_log_probs", log_probs.exp()),
            ("chosen id", "argmax", "decoding.greedy_decode", chosen, words(chosen)),
        ],
    }
    return [
        Step(part, name, symbol, where if where.startswith("annotated_") else f"annotated.{where}", *tensors)
        for part, group in rows.items()
        for name, symbol, where, *tensors in group
    ]


@contextmanager
def record_calls(model: nn.Module) -> Iterator[dict[str, list[tuple[Tensor, Tensor]]]]:
    """Record what goes into each module of `model` and what comes out, one pair a call, while the context is open.

    Yields a dictionary from the module's name to its pairs.

    Args:
        model: any module whose parts take a tensor first and return one.
    """
    calls: dict[str, list[tuple[Tensor, Tensor]]] = defaultdict(list)

    def hook(name: str) -> Callable[..., None]:
        return lambda module, inputs, output: calls[name].append((inputs[0], output))

    hooks = [module.register_forward_hook(hook(name)) for name, module in model.named_modules()]
    try:
        yield calls
    finally:
        for handle in hooks:
            handle.remove()


def plot_trace(steps: Sequence[Step], title: str | None = None) -> Figure:
    """Draw a trace from top to bottom: each tensor's name and formula, its shape, where it is computed, a thumbnail.

    In a thumbnail rows are positions, columns the width, heads side by side with a line between them; blue is above
    zero, red below, white zero, and the darkest is the thumbnail's own largest number.

    Args:
        steps: what `trace` returned.
        title: what it shows.
    """
    plt = load("matplotlib.pyplot")

    row, header, top = 0.42, 0.34, 0.75  # heights in inches
    columns = {"tensor": 0.1, "shape": 2.7, "computed in": 3.8, "its numbers": 6.1}
    name_x, shape_x, where_x, picture_x = columns.values()
    parts = dict.fromkeys(step.part for step in steps)
    width, height = 8.8, top + row * len(steps) + header * len(parts)
    figure = plt.figure(figsize=(width, height), dpi=DPI)

    def write(x: float, y: float, words: str, **style: Any) -> None:
        figure.text(x / width, y / height, words, va="center", **({"fontsize": 9} | style))

    write(name_x, height - 0.2, title or "", fontsize=11)
    for words, x in columns.items():
        write(x, height - 0.55, words, color=ARROW)
    y = height - top
    for i, step in enumerate(steps):
        if i == 0 or step.part != steps[i - 1].part:
            line = [name_x / width, (picture_x + WIDEST / DPI) / width]
            figure.add_artist(plt.Line2D(line, [(y - 0.03) / height] * 2, color=OPERATION, linewidth=0.5))
            write(name_x, y - 0.2, step.part, fontweight="bold", color=OPERATION)
            y -= header
        write(name_x + 0.15, y - 0.13, step.name)
        write(name_x + 0.15, y - 0.3, step.symbol, fontsize=7.5, color=ARROW)
        write(shape_x, y - row / 2, str(step.shape))
        write(where_x, y - row / 2, ".".join(step.where.split(".")[-2:]), fontsize=7.5, color=ARROW)
        ax = figure.add_axes((picture_x / width, (y - 0.38) / height, WIDEST / DPI / width, 0.34 / height))
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_color("#bbbbbb")
        picture = thumbnail(step.tensor) * (not step.tokens)
        largest = float(np.abs(picture).max()) or 1.0
        colours = plt.get_cmap("RdBu", 15)  # few, or the file would be large
        ax.imshow(picture, cmap=colours, vmin=-largest, vmax=largest, aspect="auto", interpolation="nearest")
        for head in range(1, step.tensor.size(1) if step.tensor.dim() == 4 else 1):
            ax.axvline(head * step.tensor.size(-1) - 0.5, color=ARROW, linewidth=0.7)
        for column, token in enumerate(step.tokens):
            ax.text(column, 0, token, ha="center", va="center", fontsize=min(7, 50 / len(step.tokens)))
        y -= row
    return figure


def thumbnail(tensor: Tensor) -> np.ndarray:
    """Flatten one sentence's tensor into a picture: positions downwards, everything else across, heads side by side.

    Of a tensor with more than `WIDEST` columns each column of the picture shows the largest of several numbers.

    Args:
        tensor: (length, width), (1, length, width) or (1, heads, length, width), or ids.
    """
    picture = tensor.float()
    if picture.dim() == 4:
        picture = picture.transpose(1, 2).flatten(2)
    picture = picture.reshape(-1, picture.size(-1))
    if picture.size(-1) > WIDEST:
        picture = F.adaptive_max_pool1d(picture, WIDEST)
    return picture.numpy()
