"""The exercises of chapter 05, decoder."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.config import BOS, EOS, TransformerConfig
from annotated.decoder import LayerCache
from annotated.encoder import FeedForward, LayerNorm
from annotated.masking import causal_mask, combine, padding_mask
from annotated.multi_head import MultiHeadAttention
from annotated.transformer import Transformer
from annotated_course.exercises.exercise import Exercise, Run, by_hand, calls, draw

EXERCISES: dict[str, Exercise] = {}
EXERCISES["05.1"] = by_hand(
    "A sentence's probability by hand",
    [0.75 * 0.4 * 0.8, 0.75 * 0.4 + 0.25 * 0.8],
    {
        "the end symbol is a token as well: multiply by its probability, too.": [0.3, 1.0],
        "the first number lacks the end symbol's factor, 0.8.": [0.3, 0.5],
        "the first word has a probability, too, after <bos>: 0.75 for dogs, 0.25 for bark.": [0.32, 1.2],
        "a sentence's probability is the product of its factors, not their sum.": [1.95, 0.5],
    },
    tolerance=0.004,
)


def filled(rows: list[list[int]], pad: int) -> Tensor:
    """Fill up rows with padding."""
    longest = max(map(len, rows))
    return torch.tensor([row + [pad] * (longest - len(row)) for row in rows])


def shift(sentences: list[list[int]], bos: int, eos: int, pad: int) -> Any:
    """What is read and what is predicted: each sentence after its beginning, and before its end."""
    reads = filled([[bos, *words] for words in sentences], pad)
    predicts = filled([[*words, eos] for words in sentences], pad)
    return reads, predicts


EXERCISES["05.2"] = Exercise(
    "Shift and pad",
    right=shift,
    cases={"": calls([[7, 8, 9], [5], [6, 4]], 21, 22, 20)},
    mistakes={
        "there is no shift: the decoder reads what it should predict.": "return reads → return predicts",
        "the end symbol stands after the padding.": "[*words, eos] for → [*words, *[pad] * (3 - len(words)), eos] for",
        "the end is never predicted, so the model would never stop.": "[*words, eos] → [*words, pad]",
    },
)


def writing(source: list[int]) -> Callable[[Any], Any]:
    """Let an answer write up to four tokens with an untrained model, as a case."""

    def run(answer: Any) -> Any:
        torch.manual_seed(6)
        config = TransformerConfig(17, d_model=16, d_ff=24, heads=2, layers=1, dropout=0.0, tie_embeddings=False)
        model = Transformer(config).eval()
        with torch.no_grad():
            model.output.weight.mul_(2)
            ids = answer(model, torch.tensor([source]), 4)
        return [int(token) for token in ids] if isinstance(ids, list | tuple) else ids

    return run


def greedy(model: nn.Module, src: Tensor, limit: int) -> Any:
    """Write greedily, reading all anew for each token."""
    ids = [BOS]
    while len(ids) <= limit:
        token = int(model(src, torch.tensor([ids]))[0, -1].argmax())
        if token == EOS:
            break
        ids.append(token)
    return ids[1:]


EXERCISES["05.3"] = Exercise(
    "Greedy, without a cache",
    right=greedy,
    cases={"": writing([15, 16, 5, 2]), "with a sentence that does not end: ": writing([10, 11, 12, 13, 2])},
    mistakes={
        "the list begins with BOS: return only what was written.": "ids[1:] → ids",
        "the list ends with EOS: return the words only.": "ids[1:] → [*ids[1:], EOS]",
        "without a cache, each step must read everything written so far.": "[ids] → [ids[-1:]]",
        "take the logits of the last position, [0, -1]: that is where the next token is predicted.": "[0, -1] → [0, 0]",
    },
    forbids="new_cache: hand the model all ids so far at each step.",
)


class Layer(nn.Module):
    """A decoder layer in pre-norm."""

    def __init__(self, d_model: int, heads: int, d_ff: int):
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, heads)
        self.cross_attention = MultiHeadAttention(d_model, heads)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norms: Any = nn.ModuleList(LayerNorm(d_model) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor, tgt_mask: Tensor, src_mask: Tensor) -> Tensor:
        """Map x (batch, length, d_model) to the same shape."""
        sublayers: list[Callable[[Tensor], Tensor]] = [
            lambda y: self.self_attention(y, y, y, tgt_mask),
            lambda y: self.cross_attention(y, memory, memory, src_mask),
            self.feed_forward,
        ]
        for place, sublayer in enumerate(sublayers):
            norm = self.norms[place]
            x = x + sublayer(norm(x))
        return x


def parts_of(layer: Any) -> dict[str, nn.Module]:
    """Name the parts that a layer has."""
    names = ("self_attention", "cross_attention", "feed_forward")
    named = {name: getattr(layer, name) for name in names if hasattr(layer, name)}
    return named | {f"norms[{i}]": norm for i, norm in enumerate(getattr(layer, "norms", []))}


def anatomy(answer: Any) -> dict[str, int]:
    """Count the parameters of a layer and of its parts, and the different parts."""
    layer = answer(12, 3, 7)
    modules = parts_of(layer)
    counted = modules | {"all": layer}
    return {name: sum(parameter.numel() for parameter in part.parameters()) for name, part in counted.items()} | {
        "different parts": len(set(modules.values()))
    }


def layer_output(answer: Any) -> Any:
    """Run a layer with parameters and inputs that are drawn, and with padding on both sides."""
    torch.manual_seed(0)
    ours = Layer(12, 3, 7)
    for parameter in ours.parameters():
        nn.init.normal_(parameter, std=0.3)
    x, memory = torch.randn(2, 5, 12), torch.randn(2, 6, 12)
    theirs = answer(12, 3, 7)
    for part, own in zip(parts_of(theirs).values(), parts_of(ours).values(), strict=True):
        part.load_state_dict(own.state_dict())
    tgt_mask = combine(causal_mask(5), padding_mask(torch.tensor([[1, 4, 5, 6, 7], [1, 4, 5, 0, 0]])))
    src_mask = padding_mask(torch.tensor([[4, 5, 6, 7, 8, 2], [4, 5, 6, 2, 0, 0]]))
    with torch.no_grad():
        return theirs(x, memory, tgt_mask, src_mask)


SUBLAYER = "x = x + sublayer(norm(x))"
EXERCISES["05.4"] = Exercise(
    "The decoder layer from scratch",
    right=Layer,
    cases={"its parts, and how many parameters each has: ": anatomy, "": layer_output},
    mistakes={
        "a plain list hides its modules from an optimizer: use nn.ModuleList.": "nn.ModuleList → list",
        "this is post-norm; the norm comes first: x + sublayer(norm(x)).": f"{SUBLAYER} → x = norm(x + sublayer(x))",
        "the second attention's keys and values come from the memory.": "memory, memory, src_mask → y, y",
        "the future is visible: hand tgt_mask to the self-attention.": ", tgt_mask), →),",
        "the source's padding is visible: hand src_mask to the cross-attention.": ", src_mask), →),",
    },
)


class Cache:
    """Keeps the keys and values of the last positions."""

    def __init__(self, window: int):
        self.window, self.kept = window, dict[str, Tensor]()

    def append(self, keys: Tensor, values: Tensor) -> Any:
        """Add some positions, and return all that are kept."""
        for name, new in (("keys", keys), ("values", values)):
            old = self.kept.get(name, new[:, :, :0])
            both = torch.cat([old, new], dim=2)
            self.kept[name] = both[:, :, -self.window :]
        return self.kept["keys"], self.kept["values"]

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        self.kept = {name: kept[rows] for name, kept in self.kept.items()}


def caching(*steps: int | list[int]) -> Run:
    """Make a case: append so many positions, or select rows; look at the keys and values that come back last."""

    def run(answer: Any) -> Any:
        generator, rows, cache = torch.Generator().manual_seed(0), 3, answer(4)
        for step in steps:
            if isinstance(step, list):
                rows = len(step)
                cache.select(torch.tensor(step))
            else:
                result = cache.append(*(torch.randn(rows, 3, step, width, generator=generator) for width in (4, 5)))
        return result

    return run


EXERCISES["05.5"] = Exercise(
    "A cache with a window",
    right=Cache,
    cases={
        "first step: ": caching(3),
        "a second cache, which must start empty: ": caching(1),  # the first is that of the first step
        "second step: ": caching(3, 2),
        "6 positions at once: ": caching(6),
        "after select([1, 2, 0]): ": caching(3, 2, [1, 2, 0], 1),
        "after select([2, 0, 0, 1]): ": caching(3, 2, [1, 2, 0], 1, [2, 0, 0, 1], 1),
    },
    mistakes={
        "all 5 positions come back; the window is 4: leave out the oldest.": "both[:, :, -self.window :] → both",
        "the first 4 positions are kept; keep the last 4.": "-self.window : → : self.window",
        "the rows are as they were before the select: keep the selection.": "kept[rows] → kept",
        "row i of the result must be the old row rows[i], not the other way round.": "[rows] → [rows.argsort()]",
    },
)


def in_chunks(attention: MultiHeadAttention, x: Tensor, chunk: int) -> Tensor:
    """Self-attention in chunks, whose keys and values are kept."""
    cache, outputs, end = LayerCache(), [], 0
    for new in x.split(chunk, dim=1):
        start, end = end, end + new.size(1)
        mask = causal_mask(end)[start:]
        keys, values = cache.append(*attention.project(new, new))
        outputs.append(attention.attend(new, keys, values, mask))
    return torch.cat(outputs, dim=1)


def attend(answer: Any, chunk: int) -> Any:
    """Let an answer attend over eight positions; count how many it projects, and how many ask at once."""
    torch.manual_seed(0)
    attention, x = MultiHeadAttention(12, 3, d_k=5, d_v=2), torch.randn(2, 8, 12)
    projected: list[int] = []
    asked: list[int] = [0]
    for part, seen in ((attention.W_k, projected), (attention.W_q, asked)):
        part.register_forward_hook(lambda module, inputs, result, seen=seen: seen.append(inputs[0].size(1)))
    with torch.no_grad():
        return answer(attention, x, chunk), sum(projected), max(asked)


EXERCISES["05.6"] = Exercise(
    "Several tokens at a time",
    right=in_chunks,
    cases={
        "": lambda answer: attend(answer, 3)[0],
        "chunk = 1: ": lambda answer: attend(answer, 1)[0],
        "chunk = 8: ": lambda answer: attend(answer, 8)[0],
        "chunk = 11: ": lambda answer: attend(answer, 11)[0],
        "positions projected to keys, 8 if the old keys are kept: ": lambda answer: max(8, attend(answer, 3)[1]),
        "positions asked at once: ": lambda answer: max(3, attend(answer, 3)[2]),
    },
    mistakes={
        "inside a chunk the future is visible: a chunk needs a mask, (new, so far).": "values, mask → values, None",
        "the mask is aligned at the left: row 0 of a chunk must see everything before the chunk. Take the last "
        "rows of the square, not the first.": "[start:] → [: end - start]",
    },
    caught={
        "asked at once: 8, expected 3": lambda attention, x, chunk: attention(x, x, x, causal_mask(8)),
        "17, expected 8": "cache.append(*attention.project(new, new)) → attention.project(x[:, :end], x[:, :end])",
    },
)


def tied(embedding: Tensor, src: Tensor, reads: Tensor, predicts: Tensor) -> Tensor:
    """Add the gradients of the three uses of a matrix."""
    root = math.sqrt(embedding.size(1))
    states = root * (embedding[reads] + embedding[src].mean(0))
    g = ((states @ embedding.T).softmax(-1) - F.one_hot(predicts, len(embedding))) / len(predicts)
    back, nothing = root * g @ embedding, torch.zeros_like(embedding)
    at_source = nothing.index_put((src,), back.sum(0) / len(src), accumulate=True)
    at_target = nothing.index_put((reads,), back, accumulate=True)
    return at_source + at_target + g.T @ states


EXERCISES["05.7"] = Exercise(
    "The gradient of a tied matrix",
    right=tied,
    cases={"": calls(draw(11, 4), *map(torch.tensor, ([3, 5, 3, 7, 9], [1, 6, 5, 6], [6, 5, 6, 2])))},
    mistakes={
        "this is the projection's part alone; the two embeddings send a gradient as well.": "at_source + at_target + →",
        "the projection's part is missing: the softmax reaches every row.": "+ g.T @ states →",
        "the embeddings' parts lack the factor √d.": "at_source + at_target → (at_source + at_target) / 2",
        "the loss is the mean over the target's tokens: divide by n.": "/ len(predicts) →",
        "a token that occurs twice must get both gradients: use index_add_.": "accumulate=True → accumulate=False",
    },
    forbids="backward grad: write down the formulas that you find on paper.",
)
