"""The exercises of chapter 05, decoder."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.config import BOS, EOS, TransformerConfig
from annotated.decoder import LayerCache
from annotated.encoder import FeedForward, LayerNorm
from annotated.masking import causal_mask, combine, padding_mask
from annotated.multi_head import MultiHeadAttention
from annotated.transformer import Transformer
from annotated_course.exercises.exercise import Exercise, as_numbers, calls

EXERCISES: dict[str, Exercise] = {}


EXERCISES["05.1"] = Exercise(
    "A sentence's probability by hand",
    right=[0.75 * 0.4 * 0.8, 0.75 * 0.4 + 0.25 * 0.8],
    cases={"": as_numbers},
    mistakes={
        "the end symbol is a token as well: multiply by its probability, too.": [0.3, 1.0],
        "the first number lacks the end symbol's factor, 0.8.": [0.3, 0.5],
        "the first word has a probability, too, after <bos>: 0.75 for dogs, 0.25 for bark.": [0.32, 1.2],
        "the first number lacks the factor of its first word, 0.75.": [0.32, 0.5],
        "a sentence of one word ends after it: each word's probability times that of <eos> after it.": [0.24, 1.0],
        "a sentence's probability is the product of its factors, not their sum.": [1.95, 0.5],
        "one word, whichever: add up the probabilities of *dogs* <eos> and *bark* <eos>.": [0.24, 0.06],
        "that is *dogs* <eos> alone; *bark* <eos> is a sentence of one word, too.": [0.24, 0.3],
        "the two numbers are the wrong way round.": [0.5, 0.24],
    },
    tolerance=0.004,
    by_hand=True,
)


class Filled(NamedTuple):
    """Sentences filled up with padding: with bos in front, with eos behind, with neither and with both."""

    reads: Tensor
    predicts: Tensor
    words: Tensor
    whole: Tensor


def shift(choose: Callable[[Filled], Any] = lambda f: (f.reads, f.predicts), *, left: bool = False) -> Any:
    """Choose what is read and predicted, with the padding on the right or on the left."""

    def answer(sentences: list[list[int]], bos: int, eos: int, pad: int) -> Any:
        def filled(rows: list[list[int]]) -> Tensor:
            padding = [[pad] * (max(map(len, rows)) - len(row)) for row in rows]
            return torch.tensor([more + row if left else row + more for row, more in zip(rows, padding, strict=True)])

        begun, whole = [[bos, *words] for words in sentences], [[bos, *words, eos] for words in sentences]
        return choose(Filled(filled(begun), filled([row[1:] for row in whole]), filled(sentences), filled(whole)))

    return answer


EXERCISES["05.2"] = Exercise(
    "Shift and pad",
    right=shift(),
    cases={"": calls([[7, 8, 9], [5], [6, 4]], 21, 22, 20)},
    mistakes={
        "return two tensors: reads, predicts.": shift(lambda f: f.reads),
        "reads and predicts must have the same shape; got (3, 4) and (3, 3). Something is predicted at every position "
        "that is read.": shift(lambda f: (f.reads, f.words)),
        "reads and predicts must have the same shape; got (3, 5) and (3, 4). Something is predicted at every position "
        "that is read.": shift(lambda f: (f.whole, f.predicts)),
        "there is no shift: both are the same, so the decoder reads what it should predict.": (
            shift(lambda f: (f.predicts, f.predicts))
        ),
        "there is no shift: both are the same, and the end is never predicted.": shift(lambda f: (f.reads, f.reads)),
        "reads and predicts are the wrong way round.": shift(lambda f: (f.predicts, f.reads)),
        "the end symbol stands after the padding: a short sentence ends before it.": (
            shift(lambda f: (f.reads, F.pad(f.words, (0, 1), value=22)))
        ),
        "the end is never predicted, so the model would never stop: append eos to each sentence.": (
            shift(lambda f: (f.reads, F.pad(f.words, (0, 1), value=20)))
        ),
        "a short sentence reads its eos here. Leave it out: nothing real is predicted from it.": (
            shift(lambda f: (f.whole[:, :-1], f.predicts))
        ),
        "the special ids are arguments: use bos, eos and pad, not 1, 2 and 0.": (
            lambda sentences, bos, eos, pad: shift()(sentences, 1, 2, 0)
        ),
        "the padding must be on the right.": shift(left=True),
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


def greedy(
    *,
    start: int = BOS,
    stop: bool = True,
    last_only: bool = False,
    place: int = -1,
    sign: int = 1,
    more: int = 0,
    finish: Callable[[list[int]], Any] = lambda ids: ids[1:],
) -> Any:
    """Write greedily, rightly or with a mistake: what is read, whose logits count and how, and when it ends."""

    def answer(model: nn.Module, src: Tensor, limit: int) -> Any:
        ids = [start]
        while len(ids) <= limit + more:
            logits = model(src, torch.tensor([ids[-1:] if last_only else ids]))
            token = int((sign * logits[0, place]).argmax())
            if stop and token == EOS:
                break
            ids.append(token)
        return finish(ids)

    return answer


EXERCISES["05.3"] = Exercise(
    "Greedy, without a cache",
    right=greedy(),
    cases={"": writing([15, 16, 5, 2]), "with a sentence that does not end: ": writing([10, 11, 12, 13, 2])},
    mistakes={
        "return a list of ids, not a tensor: .tolist() makes one.": greedy(finish=lambda ids: torch.tensor(ids[1:])),
        "the list begins with BOS: return only what was written.": greedy(finish=lambda ids: ids),
        "the list ends with EOS: return the words only.": greedy(finish=lambda ids: [*ids[1:], EOS]),
        "the list holds BOS and EOS: return only what was written.": greedy(finish=lambda ids: [*ids, EOS]),
        "you went on after EOS: stop there.": greedy(stop=False),
        "each step must read everything written so far; here it reads the last token only, without a cache.": (
            greedy(last_only=True)
        ),
        "take the logits of the last position, [0, -1]: that is where the next token is predicted.": greedy(place=0),
        "one token too many: stop when `limit` tokens have been written.": greedy(more=1),
        "one token too few: `limit` tokens may be written, and BOS does not count.": greedy(more=-1),
        "it starts with EOS; start with BOS.": greedy(start=EOS),
        "the least probable token is taken.": greedy(sign=-1),
    },
)


def layer(
    *slips: str,
    connect: Callable[..., Tensor] = lambda x, norm, sublayer, first: x + sublayer(norm(x)),
    order: tuple[int, ...] = (0, 1, 2),
    norms: Callable[..., Any] = lambda: nn.ModuleList(LayerNorm(12) for _ in range(3)),
    change: Callable[..., Any] = lambda layer: None,
) -> type[nn.Module]:
    """Write a decoder layer, in pre-norm or with mistakes.

    Args:
        slips: names of small mistakes.
        connect: how a sub-layer is joined with its norm, its input x and the layer's own.
        order: of the sub-layers; number 3 looks at the target again, where the memory belongs.
        norms, change: what `__init__` makes, and what it does last.
    """

    class Layer(nn.Module):
        def __init__(self, d_model: int, heads: int, d_ff: int):
            super().__init__()
            self.self_attention, self.cross_attention = (MultiHeadAttention(d_model, heads) for _ in range(2))
            self.feed_forward = FeedForward(d_model, d_ff)
            self.norms = norms()
            change(self)

        def forward(self, x: Tensor, memory: Tensor, tgt_mask: Tensor, src_mask: Tensor) -> Tensor:
            first = x
            if "memory normalised" in slips:
                memory = self.norms[1](memory)
            sublayers: list[Callable[[Tensor], Tensor]] = [
                lambda y: self.self_attention(y, y, y, None if "future" in slips else tgt_mask),
                lambda y: self.cross_attention(y, memory, memory, None if "padding" in slips else src_mask),
                self.feed_forward,
                lambda y: self.cross_attention(y, y, y),
            ]
            for norm, place in zip(self.norms[::-1] if "backwards" in slips else self.norms, order, strict=False):
                x = connect(x, norm, sublayers[place], first)
            return self.norms[2](x) if "last norm" in slips else x

    return Layer


NAMES = ("self_attention", "cross_attention", "feed_forward", "norms")


def parts_of(layer: Any) -> dict[str, nn.Module]:
    """Name the parts that a layer has."""
    parts = {name: getattr(layer, name) for name in NAMES[:3] if hasattr(layer, name)}
    return parts | {f"norms[{i}]": norm for i, norm in enumerate(getattr(layer, "norms", []))}


def anatomy(answer: Any) -> dict[str, int]:
    """Count the parameters of a layer's parts, and the different parts."""
    layer = answer(12, 3, 7)
    parts = parts_of(layer)
    counts = {name: sum(parameter.numel() for parameter in part.parameters()) for name, part in parts.items()}
    return counts | {"different parts": len(set(parts.values())), "nn.Module": isinstance(layer, nn.Module)}


def layer_output(answer: Any) -> Any:
    """Run a layer with parameters and inputs that are drawn, and with padding on both sides."""
    torch.manual_seed(0)
    ours = layer()(12, 3, 7)
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


def examine_parameters(answer: Any) -> str | None:
    """Count all parameters that an optimizer would find."""
    count, right = (sum(one.numel() for one in make(12, 3, 7).parameters()) for make in (answer, layer()))
    if count < right:
        return (
            f"the module knows of {count} parameters only, not of {right}: a plain list hides its modules, "
            "so an optimizer would not train them. Use nn.ModuleList."
        )
    return f"the layer has {count} parameters, not {right}: which part is too many?" if count > right else None


EXERCISES["05.4"] = Exercise(
    "The decoder layer from scratch",
    right=layer(),
    cases={"its parts, and how many parameters each has: ": anatomy, "": layer_output},
    mistakes={
        f"a part is missing: {name}. Make it in __init__, as self.{name}.": (
            layer(change=lambda self, name=name: delattr(self, name))
        )
        for name in NAMES
    }
    | {
        f"there must be three LayerNorms, one for each sub-layer; got {count}.": (
            layer(norms=lambda count=count: nn.ModuleList(LayerNorm(12) for _ in range(count)))
        )
        for count in (1, 2, 4)
    }
    | {
        "the class must be an nn.Module.": lambda *sizes: SimpleNamespace(**dict(layer()(*sizes).named_children())),
        "both attentions are the same module: each needs projections of its own.": (
            layer(change=lambda self: setattr(self, "cross_attention", self.self_attention))
        ),
        "the norms are one module three times: each sub-layer needs a LayerNorm of its own.": (
            layer(norms=lambda: nn.ModuleList([LayerNorm(12)] * 3))
        ),
        "this is post-norm; here the norm comes first, on what the sub-layer reads: x + sublayer(norm(x)).": (
            layer(connect=lambda x, norm, sublayer, first: norm(x + sublayer(x)))
        ),
        "the norm belongs on what the sub-layer reads, not on what it returns: x + sublayer(norm(x)).": (
            layer(connect=lambda x, norm, sublayer, first: x + norm(sublayer(x)))
        ),
        "the residual adds the normalised x; add x as it was: x + sublayer(norm(x)).": (
            layer(connect=lambda x, norm, sublayer, first: norm(x) + sublayer(norm(x)))
        ),
        "the residual connections are missing: add x to what each sub-layer makes of it.": (
            layer(connect=lambda x, norm, sublayer, first: sublayer(norm(x)))
        ),
        "the norms are never used.": layer(connect=lambda x, norm, sublayer, first: x + sublayer(x)),
        "each residual must add what went into its sub-layer; here it adds the layer's input every time.": (
            layer(connect=lambda x, norm, sublayer, first: first + sublayer(norm(x)))
        ),
        "the second attention looks at the target again; its keys and values come from the memory.": (
            layer(order=(0, 3, 2))
        ),
        "the future is visible: hand tgt_mask to the self-attention.": layer("future"),
        "the source's padding is visible: hand src_mask to the cross-attention.": layer("padding"),
        "both masks are missing.": layer("future", "padding"),
        "the order is masked self-attention, then the memory; yours is the other way round.": layer(order=(1, 0, 2)),
        "the norms are used in another order: norms[0] before the first sub-layer.": layer("backwards"),
        "the memory must not be normalised: keys and values come from it as it is.": layer("memory normalised"),
        "there is one LayerNorm too many: nothing is normalised after the last sum.": layer("last norm"),
        "the feed-forward network is missing.": layer(order=(0, 1)),
        "the feed-forward network comes last.": layer(order=(2, 0, 1)),
    },
    examine=examine_parameters,
    caught={
        "the module knows of 1339 parameters only": layer(norms=lambda: [LayerNorm(12) for _ in range(3)]),
        "the layer has 1435 parameters": layer(change=lambda self: setattr(self, "norm", LayerNorm(12))),
    },
)


def cache(
    keep: Callable[..., Tensor] = lambda old, new, both, window: both[:, :, -window:],
    *,
    select: Callable[[Tensor, Tensor], Tensor] = lambda kept, rows: kept[rows],
    back: Callable[[Tensor, Tensor], Any] = lambda keys, values: (keys, values),
    forgets: bool = False,
    shared: bool = False,
) -> type:
    """Write a cache: what is kept, after a choice of rows too, which may end the window; what comes back; from whom."""
    common: dict[str, Tensor] = {}

    class Cache:
        def __init__(self, window: int):
            self.window, self.kept = window, common if shared else {}

        def append(self, keys: Tensor, values: Tensor) -> Any:
            for name, new in (("keys", keys), ("values", values)):
                old = self.kept.get(name, new[:, :, :0])
                self.kept[name] = keep(old, new, torch.cat([old, new], dim=2), self.window)
            return back(self.kept["keys"], self.kept["values"])

        def select(self, rows: Tensor) -> None:
            self.kept = {name: select(kept, rows) for name, kept in self.kept.items()}
            self.window = 99 if forgets else self.window

    return Cache


def caching(*steps: int | list[int], place: int | None = None) -> Callable[[Any], Any]:
    """Make a case: append so many positions, or select rows; look at the keys and values that come back last."""

    def run(answer: Any) -> Any:
        generator, rows, cache = torch.Generator().manual_seed(0), 3, answer(4)
        for step in steps:
            if isinstance(step, list):
                rows = len(step)
                cache.select(torch.tensor(step))
            else:
                result = cache.append(*(torch.randn(rows, 3, step, width, generator=generator) for width in (4, 5)))
        return result if place is None else result[place]

    return run


STEPS: dict[str, list[Any]] = {
    "second step": [3, 2],
    "6 positions at once": [6],
    "after select([1, 2, 0])": [3, 2, [1, 2, 0], 1],
    "after select([2, 0, 0, 1])": [3, 2, [1, 2, 0], 1, [2, 0, 0, 1], 1],
}
EXERCISES["05.5"] = Exercise(
    "A cache with a window",
    right=cache(),
    cases={
        "first step: ": caching(3),
        "a second cache, which must start empty: ": caching(1),  # the first is that of the first step
    }
    | {
        f"{step}, {name}: ": caching(*steps, place=place)
        for step, steps in STEPS.items()
        for place, name in enumerate(("keys", "values"))
    },
    mistakes={
        "append must return two tensors: the keys and the values that are kept.": cache(back=lambda keys, values: keys),
        "keys and values are exchanged.": cache(back=lambda keys, values: (values, keys)),
        "only the new positions come back; return all that are kept.": cache(lambda old, new, both, window: new),
        "only the old positions come back.": cache(lambda old, new, both, window: old if old.numel() else new),
        "all 5 positions come back; the window is 4: leave out the oldest.": cache(lambda old, new, both, window: both),
        "the first 4 positions are kept; keep the last 4.": cache(lambda old, new, both, window: both[:, :, :window]),
        "one position too few is kept.": cache(lambda old, new, both, window: both[:, :, 1 - window :]),
        "the new positions stand in front; append them at the end.": (
            cache(lambda old, new, both, window: torch.cat([new, old], dim=2)[:, :, -window:])
        ),
        "the order is reversed: the oldest position comes first.": (
            cache(back=lambda keys, values: (keys.flip(2), values.flip(2)))
        ),
        "all 6 new positions come back; the window is 4.": (
            cache(lambda old, new, both, window: both[:, :, -window:] if old.numel() else new)
        ),
        "all positions come back; the window is 4: leave out the oldest.": cache(forgets=True),
        "the rows are as they were before the select: keep the selection.": cache(select=lambda kept, rows: kept),
        "row i of the result must be the old row rows[i], not the other way round.": (
            cache(select=lambda kept, rows: kept[rows.argsort()])
        ),
    },
    caught={"a second cache, which must start empty: item 0": cache(shared=True)},
)


def in_chunks(
    mask: Callable[[int, int], Tensor | None] = lambda start, end: causal_mask(end)[start:], use: str = "kept"
) -> Any:
    """Self-attention in chunks, by a mask from a chunk's start and end; its keys are kept, made again, or its own."""

    def answer(attention: MultiHeadAttention, x: Tensor, chunk: int) -> Tensor:
        cache, outputs, start = LayerCache(), [], 0
        for new in x.split(chunk, dim=1):
            end = start + new.size(1)
            seen = x[:, :end] if use == "again" else new
            keys, values = attention.project(seen, seen)
            if use == "kept":
                keys, values = cache.append(keys, values)
            outputs.append(attention.attend(new, keys, values, mask(start, end)))
            start = end
        return torch.cat(outputs, dim=1)

    return answer


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


def examine_counts(answer: Callable[..., Tensor]) -> str | None:
    """Look at how many positions are asked at once, and how many are projected in all."""
    for chunk in (3, 1, 8, 11):
        _, projected, asked = attend(answer, chunk)
        if asked > chunk:
            return f"the result is right, but {asked} positions were asked at once; a chunk has {chunk}."
        if projected > 8:
            return (
                f"the result is right, but {projected} positions were projected to keys, for a sequence of 8: "
                "project the new ones only, and keep the old keys and values."
            )
    return None


EXERCISES["05.6"] = Exercise(
    "Several tokens at a time",
    right=in_chunks(),
    cases={
        "": lambda answer: attend(answer, 3)[0],
        "chunk = 1: ": lambda answer: attend(answer, 1)[0],
        "chunk = 8: ": lambda answer: attend(answer, 8)[0],
        "chunk = 11: ": lambda answer: attend(answer, 11)[0],
    },
    mistakes={
        "inside a chunk the future is visible: a chunk needs a mask, (new, so far).": in_chunks(
            lambda start, end: None
        ),
        "the mask is aligned at the left: row 0 of a chunk must see everything before the chunk. Take the last "
        "rows of the square, not the first.": in_chunks(lambda start, end: causal_mask(end)[: end - start]),
        "each chunk sees itself only: the keys and values of earlier chunks are missing.": (
            in_chunks(lambda start, end: causal_mask(end - start), use="own")
        ),
        "the mask hides the position itself: keep the diagonal.": (
            in_chunks(lambda start, end: causal_mask(end).tril(-1)[start:])
        ),
        "nothing is masked: no position may see later ones.": lambda attention, x, chunk: attention(x, x, x),
        "the last positions are missing: 8 positions in chunks of 3 leave a last chunk of 2.": (
            lambda attention, x, chunk: in_chunks()(attention, x[:, :6], chunk)
        ),
    },
    examine=examine_counts,
    caught={
        "8 positions were asked at once; a chunk has 3": (
            lambda attention, x, chunk: attention(x, x, x, causal_mask(8))
        ),
        "17 positions were projected to keys": in_chunks(use="again"),
    },
)


def tied(source: int | float = 1, target: int | float = 1, output: int | float = 1, lost: str = "") -> Any:
    """Add the gradients of the three uses, by weights; where one is lost, a token keeps one gradient of several."""

    def answer(embedding: Tensor, src: Tensor, reads: Tensor, predicts: Tensor) -> Tensor:
        rows = [one.clone().requires_grad_() for one in (embedding[src], embedding[reads], embedding)]
        states = math.sqrt(embedding.size(1)) * (rows[1] + rows[0].mean(0))
        at_source, at_target, total = torch.autograd.grad(F.cross_entropy(states @ rows[2].T, predicts), rows)
        total *= output
        for use, ids, gradient in (("source", src, source * at_source), ("target", reads, target * at_target)):
            total += torch.zeros_like(total).index_put((ids,), gradient, accumulate=use not in lost)
        return total

    return answer


EXERCISES["05.7"] = Exercise(
    "The gradient of a tied matrix",
    right=tied(),
    cases={
        "": calls(
            torch.randn(11, 4, generator=torch.Generator().manual_seed(0)),
            *(torch.tensor(ids) for ids in ([3, 5, 3, 7, 9], [1, 6, 5, 6], [6, 5, 6, 2])),
        )
    },
    mistakes={
        "this is the projection's part alone; the two embeddings send a gradient as well.": tied(source=0, target=0),
        "the source embedding's part is missing.": tied(source=0),
        "the target embedding's part is missing.": tied(target=0),
        "the projection's part is missing: the softmax reaches every row.": tied(output=0),
        "the embeddings' parts lack the factor √d.": tied(source=1 / 2, target=1 / 2),
        "it is the gradient of the sum of the losses; the loss is their mean: divide by n.": tied(4, 4, 4),
        "the source's part must be divided by m, the number of source tokens.": tied(source=5),
        "the three parts must be added, not averaged.": tied(1 / 3, 1 / 3, 1 / 3),
        "a token that occurs twice must get both gradients: += on a row list keeps only one. Use index_add_.": (
            tied(lost="source, target")
        ),
        "a source token that occurs twice must get both gradients: use index_add_.": tied(lost="source"),
        "a target token that occurs twice must get both gradients: use index_add_.": tied(lost="target"),
        "the sign is reversed.": tied(-1, -1, -1),
    },
)
