"""Wrong answers to the exercises of chapter 05, each with a pattern of its diagnosis; and other right answers."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.config import BOS, EOS
from annotated.decoder import LayerCache
from annotated.encoder import FeedForward, LayerNorm
from annotated.masking import causal_mask
from annotated.multi_head import MultiHeadAttention


def fill(rows: list[list[int]], pad: int, width: int = 0) -> Tensor:
    width = max([width, *(len(row) for row in rows)])
    return torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows])


def reads_of(sentences, bos, pad):
    return fill([[bos, *s] for s in sentences], pad)


def predicts_of(sentences, eos, pad):
    return fill([[*s, eos] for s in sentences], pad)


def forced(choose: Callable[[Tensor, Tensor], object]) -> Callable:
    """The right pair, and what is made of it."""

    def answer(sentences, bos, eos, pad):
        return choose(reads_of(sentences, bos, pad), predicts_of(sentences, eos, pad))

    return answer


def cut_from_one_tensor(sentences, bos, eos, pad):
    both = fill([[bos, *s, eos] for s in sentences], pad)
    return both[:, :-1], both[:, 1:]


def end_after_padding(sentences, bos, eos, pad):
    words = fill(sentences, pad)
    return F.pad(words, (1, 0), value=bos), F.pad(words, (0, 1), value=eos)


def without_end(sentences, bos, eos, pad):
    return reads_of(sentences, bos, pad), fill(sentences, pad, 4)


def usual_ids(sentences, bos, eos, pad):
    return reads_of(sentences, 1, 0), predicts_of(sentences, 2, 0)


def different_widths(sentences, bos, eos, pad):
    return reads_of(sentences, bos, pad), fill(sentences, pad)


def greedy(
    *,
    stop: bool = True,
    position: int = -1,
    context: int = 0,
    more: int = 0,
    finish: Callable[[list[int]], object] = lambda ids: ids[1:],
    keep_end: bool = False,
) -> Callable:
    """Greedy decoding with a choice of mistakes; `context` is how many tokens are read, 0 for all."""

    def answer(model, src, limit):
        ids = [BOS]
        for _ in range(limit + more):
            token = int(model(src, torch.tensor([ids[-context:]]))[0, position].argmax())
            if stop and token == EOS and not keep_end:
                break
            ids.append(token)
            if stop and token == EOS:
                break
        return finish(ids)

    return answer


def layer(
    forward: Callable[..., Tensor], norms: Callable[[int], object] | None = None, attentions: int = 2
) -> type[nn.Module]:
    """A decoder layer class with the right parts and a given forward."""

    class Layer(nn.Module):
        def __init__(self, d_model, heads, d_ff):
            super().__init__()
            self.self_attention = MultiHeadAttention(d_model, heads)
            self.cross_attention = MultiHeadAttention(d_model, heads) if attentions == 2 else self.self_attention
            self.feed_forward = FeedForward(d_model, d_ff)
            self.norms = norms(d_model) if norms else nn.ModuleList(LayerNorm(d_model) for _ in range(3))

        def forward(self, x, memory, tgt_mask, src_mask):
            return forward(self, x, memory, tgt_mask, src_mask)

    return Layer


def post_norm(self, x, memory, tgt_mask, src_mask):
    x = self.norms[0](x + self.self_attention(x, x, x, tgt_mask))
    x = self.norms[1](x + self.cross_attention(x, memory, memory, src_mask))
    return self.norms[2](x + self.feed_forward(x))


def pre_norm(self, x, memory, tgt_mask, src_mask):
    y = self.norms[0](x)
    x = x + self.self_attention(y, y, y, tgt_mask)
    x = x + self.cross_attention(self.norms[1](x), memory, memory, src_mask)
    return x + self.feed_forward(self.norms[2](x))


def normalised_residual(self, x, memory, tgt_mask, src_mask):
    x = self.norms[0](x)
    x = x + self.self_attention(x, x, x, tgt_mask)
    x = self.norms[1](x)
    x = x + self.cross_attention(x, memory, memory, src_mask)
    x = self.norms[2](x)
    return x + self.feed_forward(x)


def no_residual(self, x, memory, tgt_mask, src_mask):
    y = self.norms[0](x)
    x = self.self_attention(y, y, y, tgt_mask)
    x = self.cross_attention(self.norms[1](x), memory, memory, src_mask)
    return self.feed_forward(self.norms[2](x))


def memory_forgotten(self, x, memory, tgt_mask, src_mask):
    y = self.norms[0](x)
    x = x + self.self_attention(y, y, y, tgt_mask)
    y = self.norms[1](x)
    x = x + self.cross_attention(y, y, y)
    return x + self.feed_forward(self.norms[2](x))


def memory_first(self, x, memory, tgt_mask, src_mask):
    x = x + self.cross_attention(self.norms[0](x), memory, memory, src_mask)
    y = self.norms[1](x)
    x = x + self.self_attention(y, y, y, tgt_mask)
    return x + self.feed_forward(self.norms[2](x))


def memory_normalised(self, x, memory, tgt_mask, src_mask):
    return pre_norm(self, x, self.norms[1](memory), tgt_mask, src_mask)


def memory_asks(self, x, memory, tgt_mask, src_mask):
    y = self.norms[0](x)
    x = x + self.self_attention(y, y, y, tgt_mask)
    return self.feed_forward(self.norms[2](self.cross_attention(memory, x, x)))


class WithoutNorms(nn.Module):
    def __init__(self, d_model, heads, d_ff):
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, heads)
        self.cross_attention = MultiHeadAttention(d_model, heads)
        self.feed_forward = FeedForward(d_model, d_ff)


class WithoutSuper(nn.Module):
    def __init__(self, d_model, heads, d_ff):
        self.self_attention = MultiHeadAttention(d_model, heads)


class KeepsLast:
    """A right cache, kept as one pair of tensors."""

    def __init__(self, window):
        self.window, self.pair = window, ()

    def append(self, keys, values):
        pair = keys, values
        if self.pair:
            pair = tuple(torch.cat(part, dim=2) for part in zip(self.pair, pair, strict=True))
        self.pair = tuple(x[:, :, -self.window :] for x in pair)
        return self.pair

    def select(self, rows):
        self.pair = tuple(x[rows] for x in self.pair)


class CacheOfPositions(KeepsLast):
    """Another right cache, a list of single positions."""

    def append(self, keys, values):
        new = zip(keys.split(1, dim=2), values.split(1, dim=2), strict=True)
        self.pair = [*self.pair, *new][-self.window :]
        return [torch.cat(part, dim=2) for part in zip(*self.pair, strict=True)]

    def select(self, rows):
        self.pair = [(keys[rows], values[rows]) for keys, values in self.pair]


class KeepsAll(KeepsLast):
    def __init__(self, window):
        super().__init__(100)


class KeepsFirst(KeepsLast):
    def append(self, keys, values):
        if self.pair:
            keys, values = (torch.cat(part, dim=2) for part in zip(self.pair, (keys, values), strict=True))
        self.pair = keys[:, :, : self.window], values[:, :, : self.window]
        return self.pair


class OneTooFew(KeepsLast):
    def append(self, keys, values):
        pair = super().append(keys, values)
        self.pair = tuple(x[:, :, 1 - self.window :] for x in pair)
        return self.pair


class NewUncut(KeepsLast):
    def append(self, keys, values):
        pair = super().append(keys, values)
        return pair if keys.size(2) <= self.window else (keys, values)


class SharedByAll(CacheOfPositions):
    pair = []  # noqa: RUF012 (this is the mistake)

    def __init__(self, window):
        self.window = window

    def append(self, keys, values):
        self.pair += zip(keys.split(1, dim=2), values.split(1, dim=2), strict=True)
        del self.pair[: -self.window]
        return [torch.cat(part, dim=2) for part in zip(*self.pair, strict=True)]

    def select(self, rows):
        self.pair[:] = [(keys[rows], values[rows]) for keys, values in self.pair]


class NewOnly(KeepsLast):
    def append(self, keys, values):
        return keys, values


class InFront(KeepsLast):
    def append(self, keys, values):
        if self.pair:
            keys, values = (torch.cat(part, dim=2) for part in zip((keys, values), self.pair, strict=True))
        self.pair = keys[:, :, -self.window :], values[:, :, -self.window :]
        return self.pair


class AlongHeads(KeepsLast):
    def append(self, keys, values):
        if self.pair:
            last = [x[:, :, -1:] for x in (*self.pair, keys, values)]
            keys, values = torch.cat(last[::2], dim=1), torch.cat(last[1::2], dim=1)
        self.pair = keys, values
        return self.pair


class Exchanged(KeepsLast):
    def append(self, keys, values):
        return super().append(keys, values)[::-1]


class KeysOnly(KeepsLast):
    def append(self, keys, values):
        return super().append(keys, values)[0]


class SelectsNothing(KeepsLast):
    def select(self, rows):
        if len(rows) != len(self.pair[0]):
            super().select(rows)


class SelectsKeysOnly(KeepsLast):
    def select(self, rows):
        same = len(rows) == len(self.pair[0])
        self.pair = self.pair[0][rows], self.pair[1] if same else self.pair[1][rows]


class ScattersRows(KeepsLast):
    def select(self, rows):
        if len(rows) == len(self.pair[0]):
            rows = rows.argsort()
        super().select(rows)


def chunks(
    mask: Callable[[int, int], Tensor | None], *, old: bool = True, cut: bool = False, again: bool = False
) -> Callable:
    """Self-attention in chunks with a given mask; without old keys, without the last chunk, or projecting anew."""

    def answer(attention, x, chunk):
        cache, outputs, start = LayerCache(), [], 0
        for new in x.split(chunk, dim=1):
            end = start + new.size(1)
            if again:
                keys, values = attention.project(x[:, :end], x[:, :end])
            elif old:
                keys, values = cache.append(*attention.project(new, new))
            else:
                keys, values = attention.project(new, new)
            if not cut or new.size(1) == chunk:
                outputs.append(attention.attend(new, keys, values, mask(start, end)))
            start = end
        return torch.cat(outputs, dim=1)

    return answer


def last_rows(start: int, end: int) -> Tensor:
    """The right mask of a chunk."""
    return causal_mask(end)[start:]


def tied(
    *, parts: str = "sto", root: float = 2.0, mean: bool = True, share: bool = True, add: bool = True, sign: int = 1
) -> Callable:
    """The tied gradient, with parts left out (source, target, output) or a factor or a repetition forgotten."""

    def answer(embedding, src, reads, predicts):
        states = math.sqrt(embedding.size(1)) * (embedding[reads] + embedding[src].mean(0))
        at_logits = (states @ embedding.T).softmax(-1) - F.one_hot(predicts, len(embedding))
        at_logits = at_logits / (len(reads) if mean else 1)
        at_states = root * at_logits @ embedding
        to_source = at_states.sum(0).expand(len(src), -1) / (len(src) if share else 1)
        total = torch.zeros_like(embedding)
        for name, rows, gradient in (("t", reads, at_states), ("s", src, to_source)):
            if name in parts and add:
                total.index_add_(0, rows, gradient)
            elif name in parts:
                total[rows] += gradient
        return sign * (total + at_logits.T @ states if "o" in parts else total)

    return answer


WRONG = [
    ("05.1", [0.3, 1.0], "the end symbol is a token"),
    ("05.1", [0.3, 0.5], r"lacks the end symbol's factor, 0\.8"),
    ("05.1", [0.32, 0.5], "first word, 0.75"),
    ("05.1", [0.32, 1.2], "0.25 for bark"),
    ("05.1", [0.24, 1.0], "ends after it"),
    ("05.1", [1.95, 0.5], "product"),
    ("05.1", [0.24, 0.3], "alone"),
    ("05.1", [0.5, 0.24], "wrong way round"),
    ("05.1", [0.24, 0.2], r"number 1, counted from 0, is not 0\.2\."),
    ("05.1", 0.24, "shape"),
    ("05.1", "a quarter", "raised (ValueError|TypeError)"),
    ("05.2", forced(lambda reads, predicts: (predicts, predicts)), "no shift"),
    ("05.2", forced(lambda reads, predicts: (reads, reads)), "no shift.*never predicted"),
    ("05.2", forced(lambda reads, predicts: (predicts, reads)), "wrong way round"),
    ("05.2", forced(lambda reads, predicts: reads), "two tensors"),
    ("05.2", forced(lambda reads, predicts: (reads.flip(1), predicts)), r"\d+ of 24 entries"),
    ("05.2", end_after_padding, "after the padding"),
    ("05.2", without_end, "never stop"),
    ("05.2", cut_from_one_tensor, "reads its eos"),
    ("05.2", usual_ids, "not 1, 2 and 0"),
    ("05.2", different_widths, r"same shape.*\(3, 4\) and \(3, 3\)"),
    ("05.3", greedy(finish=lambda ids: ids), "begins with BOS"),
    ("05.3", greedy(keep_end=True), "ends with EOS"),
    ("05.3", greedy(keep_end=True, finish=lambda ids: ids), "BOS and EOS"),
    ("05.3", greedy(stop=False), "after EOS"),
    ("05.3", greedy(context=1), "last token only"),
    ("05.3", greedy(position=0), "last position"),
    ("05.3", greedy(more=1), "too many"),
    ("05.3", greedy(more=-1), "too few"),
    ("05.3", greedy(finish=lambda ids: None), "end in a return"),
    ("05.3", greedy(finish=torch.tensor), "not a tensor"),
    ("05.3", greedy(finish=lambda ids: ids[:0:-1]), r"expected \[.*\], got \["),
    ("05.4", layer(post_norm), "post-norm"),
    ("05.4", layer(normalised_residual), "add x as it was"),
    ("05.4", layer(memory_normalised), "memory must not be normalised"),
    ("05.4", layer(lambda self, *args: self.norms[2](pre_norm(self, *args))), "one LayerNorm too many"),
    ("05.4", layer(no_residual), "residual connections are missing"),
    ("05.4", layer(memory_forgotten), "from the memory"),
    ("05.4", layer(memory_first), "other way round"),
    ("05.4", layer(memory_asks), r"expected shape \(2, 5, 12\), got \(2, 6, 12\)"),
    ("05.4", layer(lambda self, x, memory, tgt_mask, src_mask: pre_norm(self, x, memory, None, src_mask)), "future"),
    ("05.4", layer(lambda self, x, memory, tgt_mask, src_mask: pre_norm(self, x, memory, tgt_mask, None)), "padding"),
    ("05.4", layer(pre_norm, lambda d_model: [LayerNorm(d_model) for _ in range(3)]), "ModuleList"),
    ("05.4", layer(pre_norm, lambda d_model: nn.ModuleList([LayerNorm(d_model)] * 3)), "one module three times"),
    ("05.4", layer(pre_norm, lambda d_model: nn.ModuleList(LayerNorm(d_model) for _ in range(2))), "got 2"),
    ("05.4", layer(pre_norm, attentions=1), "the same module"),
    ("05.4", WithoutNorms, "missing: norms"),
    ("05.4", WithoutSuper, "raised AttributeError"),
    ("05.5", KeepsAll, "all 5 positions come back"),
    ("05.5", KeepsFirst, "keep the last 4"),
    ("05.5", OneTooFew, "one position too few"),
    ("05.5", NewUncut, "all 6 new positions"),
    ("05.5", NewOnly, "only the new positions"),
    ("05.5", InFront, "stand in front"),
    ("05.5", AlongHeads, "expected shape"),
    ("05.5", Exchanged, "exchanged"),
    ("05.5", KeysOnly, "two tensors"),
    ("05.5", SharedByAll, "must start empty"),
    ("05.5", SelectsNothing, "before the select"),
    ("05.5", SelectsKeysOnly, "values: .*before the select"),
    ("05.5", ScattersRows, "the other way round"),
    ("05.6", chunks(lambda start, end: None), "future is visible"),
    ("05.6", chunks(lambda start, end: causal_mask(end)[: end - start]), "aligned at the left"),
    ("05.6", chunks(lambda start, end: causal_mask(end - start), old=False), "sees itself only"),
    ("05.6", chunks(lambda start, end: causal_mask(end).tril(-1)[start:]), "diagonal"),
    ("05.6", chunks(lambda start, end: causal_mask(end - start)), "raised (ValueError|TypeCheckError)"),
    ("05.6", chunks(last_rows, cut=True), "last positions are missing"),
    ("05.6", chunks(last_rows, again=True), "17 positions were projected"),
    ("05.6", lambda attention, x, chunk: attention(x, x, x, causal_mask(8)), "8 positions were asked at once"),
    ("05.6", lambda attention, x, chunk: attention(x, x, x), "nothing is masked"),
    ("05.7", tied(parts="o"), "projection's part alone"),
    ("05.7", tied(parts="to"), "source embedding's part is missing"),
    ("05.7", tied(parts="so"), "target embedding's part is missing"),
    ("05.7", tied(parts="st"), "every row"),
    ("05.7", tied(root=1.0), "factor √d"),
    ("05.7", tied(mean=False), "divide by n"),
    ("05.7", tied(share=False), "divided by m"),
    ("05.7", tied(add=False), "index_add_"),
    ("05.7", tied(sign=-1), "sign"),
    ("05.7", lambda embedding, src, reads, predicts: embedding[src], r"shape \(11, 4\), got \(5, 4\)"),
]

RIGHT = [
    ("05.1", torch.tensor([0.24, 0.5])),
    ("05.2", forced(lambda reads, predicts: [reads, predicts])),
    ("05.3", greedy()),
    ("05.4", layer(pre_norm)),
    ("05.5", KeepsLast),
    ("05.5", CacheOfPositions),
    ("05.6", chunks(last_rows)),
    ("05.7", tied()),
]
