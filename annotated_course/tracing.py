"""One sentence, traced: the tensors on the way from token ids to the next word of its translation."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.config import BOS, EOS
from annotated.decoding import greedy_decode, in_eval_mode, next_log_probs
from annotated.masking import padding_mask
from annotated.multi_head import record_attention
from annotated.transformer import Transformer
from annotated_course.plotting import ARROW, DPI, OPERATION, token_labels
from annotated_workbench.extras import load
from annotated_workbench.vocabulary import Tokenizer

LIKELIEST = 5  # words whose probabilities are shown
WIDEST = 256  # columns of a thumbnail: two pixels each in a figure at 2×


class Step(NamedTuple):
    """One tensor on the way.

    `part` is the part of the model, `name` the field's term, `symbol` the paper's formula; `tokens` are the words of a
    tensor of ids, or of the largest probabilities.
    """

    part: str
    name: str
    symbol: str
    tensor: Tensor
    tokens: tuple[str, ...] = ()


@torch.inference_mode()
def trace(
    model: Transformer, tokenizer: Tokenizer, sentence: str, language: str = "de", *, written: int = 0
) -> list[Step]:
    """Let a model write one token of a sentence's translation, greedily; return the tensors on the way, in order.

    The encoder's first layer is shown from inside, the decoder's by its weights and sums, the others by their outputs.

    Args:
        model: a trained model, post-norm and with ReLU; used in eval mode and left in the mode it was in.
        tokenizer: the one it was trained with.
        sentence: what to translate.
        language: the language it is in.
        written: how many tokens of the translation are there already, for the decoder to read.
    """
    config = model.config
    if config.norm_first or config.activation != "relu":
        raise ValueError(
            f"norm_first={config.norm_first} and activation={config.activation!r}: trace writes the paper's formulas "
            "beside the tensors, so it wants a post-norm model with ReLU."
        )
    src = torch.tensor([[*tokenizer.encode(sentence, language), EOS]])
    (translation,) = greedy_decode(model, src)
    if not 0 <= written <= len(translation.ids):
        raise ValueError(f"written={written}: the translation has {len(translation.ids)} tokens; give 0 to that many.")
    tgt = torch.tensor([[BOS, *translation.ids[:written]]])
    model = in_eval_mode(model)
    with record_attention(model) as weights, record_calls(model) as calls:
        src_mask = padding_mask(src)
        log_probs = next_log_probs(model, tgt, model.encode(src, src_mask), src_mask, None)
    chosen = log_probs.argmax(dim=-1)

    def given(module: str) -> Tensor:
        return calls[module][0][0][0]

    def made(module: str, call: int = 0) -> Tensor:
        return calls[module][call][1]

    def heads(module: str) -> Tensor:
        return made(module).unflatten(-1, (config.heads, -1)).transpose(1, 2)

    def words(ids: Tensor) -> tuple[str, ...]:
        return tuple(token_labels(tokenizer, ids.flatten().tolist()))

    residual, softmax = "LayerNorm(x + Sublayer(x))", "softmax(Qᵢ Kᵢᵀ / √d_k)"

    def outputs(stack: str, states: str) -> list[tuple[Any, ...]]:
        names = [f"output of layer {i}" for i in range(1, config.layers)]
        names[-1:] = [f"{name}: {states}" for name in names[-1:]]
        return [(name, residual, made(f"{stack}.layers.{i}")) for i, name in enumerate(names, 1)]

    encoder, decoder = "encoder.layers.0", "decoder.layers.0"
    likeliest = words(log_probs.topk(LIKELIEST).indices)
    rows: dict[str, list[tuple[Any, ...]]] = {
        "source": [
            ("source ids", "x₁, …, xₙ", src, words(src)),
            ("embeddings", "E[xᵢ] · √d_model", given("positions")),
            ("positional encoding", "PE(pos, ·)", model.positions.table[: src.size(1)]),
            ("encoder input", "E[xᵢ] · √d_model + PE", made("positions")),
        ],
        "encoder layer 0": [
            ("queries", "Qᵢ = x Wᵢ^Q", heads(f"{encoder}.self_attention.W_q")),
            ("keys", "Kᵢ = x Wᵢ^K", heads(f"{encoder}.self_attention.W_k")),
            ("values", "Vᵢ = x Wᵢ^V", heads(f"{encoder}.self_attention.W_v")),
            ("self-attention weights", softmax, weights[f"{encoder}.self_attention"][0]),
            ("heads", "Concat(head₁, …, head_h)", given(f"{encoder}.self_attention.W_o")),
            ("multi-head attention", "Concat(…) W^O", made(f"{encoder}.self_attention.W_o")),
            ("add & norm", residual, made(f"{encoder}.residuals.0")),
            ("hidden layer", "max(0, x W₁ + b₁)", given(f"{encoder}.feed_forward.W_2")),
            ("feed-forward", "max(0, x W₁ + b₁) W₂ + b₂", made(f"{encoder}.feed_forward")),
            ("add & norm: output of layer 0", residual, made(f"{encoder}.residuals.1")),
        ],
        "encoder": outputs("encoder", "memory"),
        "target": [
            ("target ids", "y₀, …, yₜ", tgt, words(tgt)),
            ("decoder input", "E[yᵢ] · √d_model + PE", made("positions", 1)),
        ],
        "decoder layer 0": [
            ("masked self-attention weights", "softmax(masked Qᵢ Kᵢᵀ / √d_k)", weights[f"{decoder}.self_attention"][0]),
            ("add & norm", residual, made(f"{decoder}.residuals.0")),
            ("cross-attention weights", softmax, weights[f"{decoder}.cross_attention"][0]),
            ("add & norm", residual, made(f"{decoder}.residuals.1")),
            ("add & norm: output of layer 0", residual, made(f"{decoder}.residuals.2")),
        ],
        "decoder": outputs("decoder", "states"),
        "next token": [
            ("logits", "last state · Eᵀ", made("output")),
            ("probabilities", "softmax(logits)", log_probs.exp(), likeliest),
            ("chosen id", "argmax", chosen, words(chosen)),
        ],
    }
    return [Step(part, *row) for part, group in rows.items() for row in group]


@contextmanager
def record_calls(model: nn.Module) -> Iterator[dict[str, list[tuple[Any, Any]]]]:
    """Record each module's inputs and its output, one pair a call, by all its names while the context is open."""
    calls: dict[str, list[tuple[Any, Any]]] = defaultdict(list)

    def hook(name: str) -> Callable[..., None]:
        return lambda module, inputs, output: calls[name].append((inputs, output))

    with ExitStack() as hooks:
        for name, module in model.named_modules(remove_duplicate=False):
            hooks.callback(module.register_forward_hook(hook(name)).remove)
        yield calls


class Station(NamedTuple):
    """A row of the figure: where in a trace it comes from, what there is to see, its height in inches.

    Of a tensor that is wider than `columns`, only the first so many are drawn.
    """

    part: str
    name: str
    see: str
    height: float
    columns: int | None = None


DRAWN = [
    Station("source", "source ids", "one id for each token", 0.6),
    Station("source", "embeddings", "each token its own pattern", 1.1),
    Station("source", "positional encoding", "fast waves left, slower ones right", 1.1, 64),
    Station("encoder layer 0", "self-attention weights", "each token looks at all", 2.4),
    Station("encoder layer 0", "hidden layer", "ReLU cuts most to 0 (white)", 1.1),
    Station("encoder", "memory", "what the decoder reads", 1.1),
    Station("target", "target ids", "what is written so far", 0.5),
    Station("decoder layer 0", "masked self-attention weights", "nobody looks ahead", 1.4),
    Station("decoder layer 0", "cross-attention weights", "the words so far look at the source", 2.0),
    Station("next token", "probabilities", "the likeliest word is written", 1.15),
]
LARGEST = 2.5  # the darkest blue and red of every row of numbers
FRAME = "#d55e00"  # around what a text speaks of
EDGE = "#bbbbbb"


def plot_trace(
    steps: Sequence[Step],
    title: str = "",
    english: Sequence[str] = (),
    *,
    framed: tuple[int, int] | None = None,
) -> Any:
    """Draw ten stations of a trace, downwards: ids as words, vectors and weights as colours, probabilities as bars.

    Of vectors each position is a row, blue above zero and red below, on one scale for all; of weights each head is a
    map, a query's row to a key's column, darker for more, also on one scale. `english` stands beside the source tokens,
    "" for none; `framed` is a head of the cross-attention and a row of its map.
    """
    plt = load("matplotlib.pyplot")
    source = [f"{word} · {other}" if other else word for word, other in zip_longest(steps[0].tokens, english)]
    target = next(step.tokens for step in steps if step.name == "target ids")
    top, text_x, picture_x, width = 0.55, 0.1, 3.6, 9.6  # inches
    height, wide = top + sum(row.height for row in DRAWN), width - picture_x - text_x
    figure = plt.figure(figsize=(width, height), dpi=DPI)

    def write(x: float, y: float, words: str, size: float = 9, **style: Any) -> None:
        figure.text(x / width, y / height, words, va="center", fontsize=size, **style)

    def axes(x: float, y: float, wide: float, high: float) -> Any:
        ax = figure.add_axes((x / width, y / height, wide / width, high / height))
        ax.tick_params(length=0, labelsize=7)
        ax.spines[:].set_color(EDGE)
        return ax

    write(text_x, height - 0.2, title, size=12)
    y = height - top
    for number, row in enumerate(DRAWN):
        named = [step for step in steps if (step.part, step.name) == (row.part, row.name)]
        step = named[0] if named else [step for step in steps if step.part.startswith("encoder")][-1]  # the memory
        line = [text_x / width, 1 - text_x / width]
        figure.add_artist(plt.Line2D(line, [y / height] * 2, color=EDGE, linewidth=0.5))
        write(text_x, y - 0.14, f"{number}  {row.name}", fontweight="bold", color=OPERATION)
        sizes = " × ".join(str(size) for size in step.tensor.shape[step.tensor.dim() > 2 or len(step.tensor) == 1 :])
        cropped = f", first {row.columns} columns" if row.columns and row.columns < step.tensor.size(-1) else ""
        write(text_x + 0.2, y - 0.32, f"{step.symbol}     {sizes}{cropped}", size=8, color=ARROW)
        if row.height > 0.7:
            write(text_x + 0.2, y - 0.52, row.see, size=8.5)
        bottom, high = y - row.height + 0.08, row.height - 0.16
        if step.name.endswith("ids"):
            words, ax = source if number == 0 else step.tokens, axes(picture_x, bottom, wide, high)
            ax.set(xticks=[], yticks=[], xlim=(0, len(words)), ylim=(0, 1))
            for i, word in enumerate(words):
                ax.axvline(i, color=EDGE, linewidth=0.5)
                size, lines = min(8, 60 / len(words)), word.replace(" · ", "\n")
                ax.text(i + 0.5, 0.5, lines, ha="center", va="center", fontsize=size, parse_math=False)
        elif step.name.endswith("weights"):
            keys = target if "masked" in step.name else source
            queries = source if "encoder" in step.part else target
            share = wide / step.tensor.size(1)  # of the width, for each head
            below, above = 0.17, 0.062 * max(map(len, keys))  # room for the head's number and for the words
            for i, weights in enumerate(step.tensor[0]):
                ax = axes(picture_x + i * share, bottom + below, share - 0.12, high - below - above)
                ax.imshow(weights.numpy(), cmap=plt.get_cmap("Blues", 15), vmin=0, vmax=1, aspect="auto")
                ax.xaxis.tick_top()
                ax.set_xticks(range(len(keys)), keys, rotation=90, parse_math=False)
                ax.set_yticks(range(len(queries)), queries if i == 0 else [""] * len(queries), parse_math=False)
                ax.set_xlabel(f"head {i}", fontsize=7.5, labelpad=1)
                if "cross" in step.name and framed and framed[0] == i:
                    frame = {"fill": False, "color": FRAME, "linewidth": 2, "clip_on": False}
                    ax.add_patch(plt.Rectangle((-0.5, framed[1] - 0.5), len(keys), 1, **frame))
        elif step.name == "probabilities":
            ax = axes(picture_x, bottom + 0.05, wide / 2, high - 0.04)
            likeliest = step.tensor[0].topk(len(step.tokens)).values.tolist()
            bars = ax.barh(range(len(step.tokens)), likeliest, color=OPERATION)
            ax.bar_label(bars, [f"{probability:.0%}" for probability in likeliest], padding=3, fontsize=7)
            ax.set(xlim=(0, 1), xticks=[])
            ax.invert_yaxis()
            ax.set_yticks(range(len(step.tokens)), step.tokens, parse_math=False)
        else:
            ax = axes(picture_x, bottom, wide, high)
            colours = {"cmap": plt.get_cmap("RdBu", 15), "vmin": -LARGEST, "vmax": LARGEST}  # few: the file stays small
            ax.imshow(thumbnail(step.tensor[..., : row.columns]), aspect="auto", **colours)
            ax.set(xticks=[])
            ax.set_yticks(range(len(source)), source, parse_math=False)
        y -= row.height
    return figure


def thumbnail(tensor: Tensor) -> np.ndarray:
    """Flatten one sentence's vectors into a picture: positions downwards, numbers across.

    Of a tensor with more than `WIDEST` columns each column of the picture shows the largest of several numbers.
    """
    picture = tensor.float().reshape(-1, tensor.size(-1))
    if picture.size(-1) > WIDEST:
        picture = F.adaptive_max_pool1d(picture, WIDEST)
    return picture.numpy()
