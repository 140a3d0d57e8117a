"""The exercises of chapter 05, decoder."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated.config import BOS, EOS, TransformerConfig
from annotated.decoder import DecoderLayer
from annotated.masking import causal_mask, combine, padding_mask
from annotated.multi_head import MultiHeadAttention
from annotated.transformer import Transformer
from annotated_course.exercises.diagnosis import Exercise, compare

WRITER_SOURCES = ([15, 16, 5, 2], [10, 11, 12, 13, 2])


def a_sentence_by_hand(answer: Any) -> str | None:
    """0.75 · 0.4 · 0.8, and 0.75 · 0.4 + 0.25 · 0.8."""
    return compare(
        torch.as_tensor(answer, dtype=torch.float32),
        torch.tensor([0.24, 0.5]),
        {
            "the end symbol is a token as well: multiply by its probability, too.": torch.tensor([0.3, 1.0]),
            "the first number lacks the end symbol's factor, 0.8.": torch.tensor([0.3, 0.5]),
            "the first word has a probability, too, after <bos>: 0.75 for dogs, 0.25 for bark.": torch.tensor(
                [0.32, 1.2]
            ),
            "the first number lacks the factor of its first word, 0.75.": torch.tensor([0.32, 0.5]),
            "a sentence of one word ends after it: each word's probability times that of <eos> after it.": (
                torch.tensor([0.24, 1.0])
            ),
            "a sentence's probability is the product of its factors, not their sum.": torch.tensor([1.95, 0.5]),
            "one word, whichever: add up the probabilities of *dogs* <eos> and *bark* <eos>.": (
                torch.tensor([0.24, 0.06])
            ),
            "that is *dogs* <eos> alone; *bark* <eos> is a sentence of one word, too.": torch.tensor([0.24, 0.3]),
            "the two numbers are the wrong way round.": torch.tensor([0.5, 0.24]),
        },
        tolerance=0.004,
        by_hand=True,
    )


def shift_and_pad(answer: Callable[..., tuple[Tensor, Tensor]]) -> str | None:
    """Reads and predicts for sentences of three lengths, with unusual special ids."""
    sentences, bos, eos, pad = [[7, 8, 9], [5], [6, 4]], 21, 22, 20
    pair = answer([list(sentence) for sentence in sentences], bos, eos, pad)
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(isinstance(one, Tensor) for one in pair):
        return "return two tensors: reads, predicts."
    if pair[0].shape != pair[1].shape:
        return (
            f"reads and predicts must have the same shape; got {tuple(pair[0].shape)} and {tuple(pair[1].shape)}. "
            "Something is predicted at every position that is read."
        )

    def filled(rows: list[list[int]], width: int = 4) -> Tensor:
        return torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows])

    reads, predicts = filled([[bos, *s] for s in sentences]), filled([[*s, eos] for s in sentences])
    with_eos = filled([[bos, *s, eos] for s in sentences], 5)[:, :-1]
    mistakes = {
        "there is no shift: both are the same, so the decoder reads what it should predict.": (predicts, predicts),
        "there is no shift: both are the same, and the end is never predicted.": (reads, reads),
        "reads and predicts are the wrong way round.": (predicts, reads),
        "the end symbol stands after the padding: a short sentence ends before it.": (
            reads,
            F.pad(filled(sentences, 3), (0, 1), value=eos),
        ),
        "the end is never predicted, so the model would never stop: append eos to each sentence.": (
            reads,
            filled(sentences),
        ),
        "a short sentence reads its eos here. Leave it out: nothing real is predicted from it.": (with_eos, predicts),
        "the special ids are arguments: use bos, eos and pad, not 1, 2 and 0.": tuple(
            one.where(one < pad, one - pad) for one in (reads, predicts)
        ),
        "the padding must be on the right.": tuple(
            torch.tensor([[*[pad] * (4 - len(row)), *row] for row in rows])
            for rows in ([[bos, *s] for s in sentences], [[*s, eos] for s in sentences])
        ),
    }
    return compare(
        torch.stack(tuple(pair)),
        torch.stack((reads, predicts)),
        {diagnosis: torch.stack(wrong) for diagnosis, wrong in mistakes.items()},
    )


def greedy_writing(answer: Callable[..., list[int]]) -> str | None:
    """Greedy decoding of one sentence that ends by itself and one that does not."""
    model, limit = random_writer(), 9
    for source in WRITER_SOURCES:
        src = torch.tensor([source])
        expected = greedily(model, src, limit)
        with torch.no_grad():
            got = answer(model, src, limit)
        if got is None:
            return "your function returned None: does it end in a return?"
        if isinstance(got, Tensor):
            return "return a list of ids, not a tensor: .tolist() makes one."
        got = [int(token) for token in got]
        mistakes = {
            "the list begins with BOS: return only what was written.": [BOS, *expected],
            "the list ends with EOS: return the words only.": [*expected, EOS],
            "the list holds BOS and EOS: return only what was written.": [BOS, *expected, EOS],
            "you went on after EOS: stop there.": greedily(model, src, limit, stop=False),
            "each step must read everything written so far; here it reads the last token only, without a cache.": (
                greedily(model, src, limit, last_only=True)
            ),
            "take the logits of the last position, [0, -1]: that is where the next token is predicted.": (
                greedily(model, src, limit, position=0)
            ),
            "one token too many: stop when `limit` tokens have been written.": greedily(model, src, limit + 1),
            "one token too few: `limit` tokens may be written, and BOS does not count.": (
                greedily(model, src, limit - 1)
            ),
            "it starts with EOS; start with BOS.": greedily(model, src, limit, start=EOS),
            "the least probable token is taken.": greedily(model, src, limit, sign=-1),
        }
        if got != expected:
            for diagnosis, wrong in mistakes.items():
                if got == wrong:
                    return diagnosis
            return f"expected {expected}, got {got}."
    return None


def random_writer() -> Transformer:
    """Make an untrained model whose greedy translation of the first source ends by itself, and of the second not."""
    with torch.random.fork_rng():
        torch.manual_seed(267)
        config = TransformerConfig(17, d_model=16, d_ff=24, heads=2, layers=1, dropout=0.0, tie_embeddings=False)
        model = Transformer(config).eval()
    with torch.no_grad():
        model.output.weight.mul_(2)
    return model


@torch.no_grad()
def greedily(
    model: Transformer,
    src: Tensor,
    limit: int,
    *,
    stop: bool = True,
    last_only: bool = False,
    position: int = -1,
    start: int = BOS,
    sign: int = 1,
) -> list[int]:
    """Write greedily, rightly or with a mistake.

    Args:
        model: what gives the logits.
        src: one sentence.
        limit: how many tokens may be written.
        stop: at the end symbol.
        last_only: read the last token only.
        position: whose logits to take.
        start: the first token that is read.
        sign: -1 takes the least probable token.
    """
    ids = [start]
    while len(ids) <= limit:
        token = int((sign * model(src, torch.tensor([ids[-1:] if last_only else ids]))[0, position]).argmax())
        if stop and token == EOS:
            break
        ids.append(token)
    return ids[1:]


def decoder_layer_from_scratch(answer: type[nn.Module]) -> str | None:
    """The decoder layer in pre-norm with the parameters of ours, against ours."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        d_model, heads, d_ff = 12, 3, 7
        config = TransformerConfig(1, d_model=d_model, d_ff=d_ff, heads=heads, dropout=0.0, norm_first=True)
        ours = DecoderLayer(config)
        for parameter in ours.parameters():
            nn.init.normal_(parameter, std=0.3)
        x, memory = torch.randn(2, 5, d_model), torch.randn(2, 6, d_model)
        given = answer(d_model, heads, d_ff)
    if not isinstance(given, nn.Module):
        return "the class must be an nn.Module."
    theirs: Any = given
    parts: dict[str, nn.Module] = {"self_attention": ours.self_attention, "cross_attention": ours.cross_attention}
    parts |= {"feed_forward": ours.feed_forward}
    residuals: Any = ours.residuals
    norms = [residual.norm for residual in residuals]
    missing = [name for name in (*parts, "norms") if not hasattr(theirs, name)]
    if missing:
        return f"a part is missing: {missing[0]}. Make it in __init__, as self.{missing[0]}."
    if len(theirs.norms) != 3:
        return f"there must be three LayerNorms, one for each sub-layer; got {len(theirs.norms)}."
    if theirs.self_attention is theirs.cross_attention:
        return "both attentions are the same module: each needs projections of its own."
    if len({id(norm) for norm in theirs.norms}) < 3:
        return "the norms are one module three times: each sub-layer needs a LayerNorm of its own."
    counts = [sum(parameter.numel() for parameter in module.parameters()) for module in (theirs, ours)]
    if counts[0] < counts[1]:
        return (
            f"the module knows of {counts[0]} parameters only, not of {counts[1]}: a plain list hides its modules, "
            "so an optimizer would not train them. Use nn.ModuleList."
        )
    if counts[0] > counts[1]:
        return f"the layer has {counts[0]} parameters, not {counts[1]}: which part is too many?"
    for name, part in parts.items():
        getattr(theirs, name).load_state_dict(part.state_dict())
    for theirs_norm, norm in zip(theirs.norms, norms, strict=True):
        theirs_norm.load_state_dict(norm.state_dict())

    tgt_mask = combine(causal_mask(5), padding_mask(torch.tensor([[1, 4, 5, 6, 7], [1, 4, 5, 0, 0]])))
    src_mask = padding_mask(torch.tensor([[4, 5, 6, 7, 8, 2], [4, 5, 6, 2, 0, 0]]))

    def to_target(x: Tensor, mask: Tensor | None = tgt_mask) -> Tensor:
        return ours.self_attention(x, x, x, mask)

    def to_memory(x: Tensor, mask: Tensor | None = src_mask) -> Tensor:
        return ours.cross_attention(x, memory, memory, mask)

    def to_itself(x: Tensor) -> Tensor:
        return ours.cross_attention(x, x, x)

    def run(*sublayers: Callable[[Tensor], Tensor], norms: list = norms, kind: str = "pre") -> Tensor:
        y = x
        for norm, sublayer in zip(norms, sublayers, strict=True):
            match kind:
                case "pre":
                    y = y + sublayer(norm(y))
                case "post":
                    y = norm(y + sublayer(y))
                case "inside":
                    y = y + norm(sublayer(y))
                case "normalised residual":
                    y = norm(y)
                    y = y + sublayer(y)
                case "no residual":
                    y = sublayer(norm(y))
                case "no norm":
                    y = y + sublayer(y)
                case "from the input":
                    y = x + sublayer(norm(y))
        return y

    right = to_target, to_memory, ours.feed_forward
    with torch.no_grad():
        mistakes = {
            "this is post-norm; here the norm comes first, on what the sub-layer reads: x + sublayer(norm(x)).": (
                run(*right, kind="post")
            ),
            "the norm belongs on what the sub-layer reads, not on what it returns: x + sublayer(norm(x)).": (
                run(*right, kind="inside")
            ),
            "the residual adds the normalised x; add x as it was: x + sublayer(norm(x)).": (
                run(*right, kind="normalised residual")
            ),
            "the residual connections are missing: add x to what each sub-layer makes of it.": (
                run(*right, kind="no residual")
            ),
            "the norms are never used.": run(*right, kind="no norm"),
            "each residual must add what went into its sub-layer; here it adds the layer's input every time.": (
                run(*right, kind="from the input")
            ),
            "the second attention looks at the target again; its keys and values come from the memory.": (
                run(to_target, to_itself, ours.feed_forward)
            ),
            "the future is visible: hand tgt_mask to the self-attention.": (
                run(lambda x: to_target(x, None), *right[1:])
            ),
            "the source's padding is visible: hand src_mask to the cross-attention.": (
                run(to_target, lambda x: to_memory(x, None), ours.feed_forward)
            ),
            "both masks are missing.": (
                run(lambda x: to_target(x, None), lambda x: to_memory(x, None), ours.feed_forward)
            ),
            "the order is masked self-attention, then the memory; yours is the other way round.": (
                run(to_memory, to_target, ours.feed_forward)
            ),
            "the norms are used in another order: norms[0] before the first sub-layer.": run(*right, norms=norms[::-1]),
            "the memory must not be normalised: keys and values come from it as it is.": (
                run(
                    to_target, lambda y: ours.cross_attention(y, norms[1](memory), norms[1](memory), src_mask), right[2]
                )
            ),
            "there is one LayerNorm too many: nothing is normalised after the last sum.": norms[2](run(*right)),
            "the feed-forward network is missing.": run(*right[:2], norms=norms[:2]),
            "the feed-forward network comes last.": run(ours.feed_forward, to_target, to_memory),
        }
        return compare(
            theirs(x.clone(), memory.clone(), tgt_mask, src_mask), ours(x, memory, tgt_mask, src_mask), mistakes
        )


def window_cache(answer: type) -> str | None:
    """Fewer and more positions than the window, a choice of rows twice, and a second cache that must start empty."""
    window = 4
    generator = torch.Generator().manual_seed(0)

    def draw(rows: int, new: int) -> list[Tensor]:
        return [torch.randn(rows, 3, new, width, generator=generator) for width in (4, 5)]

    def joined(old: list[Tensor], new: list[Tensor]) -> list[Tensor]:
        return [torch.cat(parts, dim=2) for parts in zip(old, new, strict=True)]

    def kept(pair: list[Tensor]) -> list[Tensor]:
        return [x[:, :, -window:] for x in pair]

    def diagnose(step: str, got: Any, expected: list[Tensor], mistakes: dict[str, list[Tensor]]) -> str | None:
        if not isinstance(got, tuple | list) or len(got) != 2:
            return "append must return two tensors: the keys and the values that are kept."
        for i, name in enumerate(("keys", "values")):
            diagnosis = compare(got[i], expected[i], {text: wrong[i] for text, wrong in mistakes.items()})
            if diagnosis:
                return f"{step}, {name}: {diagnosis}"
        return None

    first, second, third, fourth, fresh, many = (
        draw(*size) for size in ((3, 3), (3, 2), (4, 1), (4, 1), (3, 1), (3, 6))
    )
    cache = answer(window)
    diagnosis = diagnose("first step", cache.append(*first), first, {"keys and values are exchanged.": first[::-1]})
    if diagnosis:
        return diagnosis

    both = joined(first, second)
    now = kept(both)
    mistakes = {
        "only the new positions come back; return all that are kept.": second,
        "only the old positions come back.": first,
        "all 5 positions come back; the window is 4: leave out the oldest.": both,
        "the first 4 positions are kept; keep the last 4.": [x[:, :, :window] for x in both],
        "one position too few is kept.": [x[:, :, 1 - window :] for x in both],
        "the new positions stand in front; append them at the end.": kept(joined(second, first)),
        "the order is reversed: the oldest position comes first.": [x.flip(2) for x in now],
    }
    diagnosis = diagnose("second step", cache.append(*second), now, mistakes)
    if diagnosis:
        return diagnosis

    diagnosis = diagnose("a second cache, which must start empty", answer(window).append(*fresh), fresh, {})
    if diagnosis:
        return diagnosis
    mistakes = {"all 6 new positions come back; the window is 4.": many}
    diagnosis = diagnose("6 positions at once", answer(window).append(*many), kept(many), mistakes)
    if diagnosis:
        return diagnosis

    for rows, new in (([2, 0, 0, 1], third), ([3, 0, 1, 2], fourth)):
        cache.select(torch.tensor(rows))
        stale, selected = now, [old[rows] for old in now]
        now = kept(joined(selected, new))
        mistakes = {
            "only the new positions come back; return all that are kept.": new,
            "all positions come back; the window is 4: leave out the oldest.": joined(selected, new),
        }
        if len(stale[0]) == len(rows):
            inverse = torch.tensor(rows).argsort()
            mistakes |= {
                "the rows are as they were before the select: keep the selection.": kept(joined(stale, new)),
                "row i of the result must be the old row rows[i], not the other way round.": kept(
                    joined([old[inverse] for old in stale], new)
                ),
            }
        diagnosis = diagnose(f"after select({rows})", cache.append(*new), now, mistakes)
        if diagnosis:
            return diagnosis
    return None


def several_tokens_at_a_time(answer: Callable[..., Tensor]) -> str | None:
    """Causal self-attention in chunks of 3 and of other sizes, each position projected once."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        attention = MultiHeadAttention(12, 3, d_k=5, d_v=2)
        x = torch.randn(2, 8, 12)
    length = x.size(1)

    def by_chunks(mask: Callable[[int, int], Tensor | None], chunk: int = 3, old: bool = True) -> Tensor:
        outputs = []
        for start in range(0, length, chunk):
            end = min(start + chunk, length)
            seen = x[:, 0 if old else start : end]
            outputs.append(attention(x[:, start:end], seen, seen, mask(start, end)))
        return torch.cat(outputs, dim=1)

    with torch.no_grad():
        expected = attention(x, x, x, causal_mask(length))
        mistakes = {
            "inside a chunk the future is visible: a chunk needs a mask, (new, so far).": (
                by_chunks(lambda start, end: None)
            ),
            "the mask is aligned at the left: row 0 of a chunk must see everything before the chunk. Take the last "
            "rows of the square, not the first.": by_chunks(lambda start, end: causal_mask(end)[: end - start]),
            "each chunk sees itself only: the keys and values of earlier chunks are missing.": (
                by_chunks(lambda start, end: causal_mask(end - start), old=False)
            ),
            "the mask hides the position itself: keep the diagonal.": (
                by_chunks(lambda start, end: causal_mask(end).tril(-1)[start:])
            ),
            "nothing is masked: no position may see later ones.": attention(x, x, x),
            "the last positions are missing: 8 positions in chunks of 3 leave a last chunk of 2.": expected[:, :6],
        }
        for chunk in (3, 1, 8, 11):
            projected: list[int] = []
            asked: list[int] = []
            hooks = [
                part.register_forward_hook(lambda module, inputs, result, seen=seen: seen.append(inputs[0].size(1)))
                for part, seen in ((attention.W_k, projected), (attention.W_q, asked))
            ]
            try:
                result = answer(attention, x, chunk)
            finally:
                for hook in hooks:
                    hook.remove()
            diagnosis = compare(result, expected, mistakes)
            if diagnosis:
                return f"chunk = {chunk}: {diagnosis}" if chunk != 3 else diagnosis
            if max(asked, default=0) > chunk:
                return f"the result is right, but {max(asked)} positions were asked at once; a chunk has {chunk}."
            if sum(projected) > length:
                return (
                    f"the result is right, but {sum(projected)} positions were projected to keys, for a sequence of "
                    f"{length}: project the new ones only, and keep the old keys and values."
                )
    return None


def tied_gradient(answer: Callable[..., Tensor]) -> str | None:
    """The gradient of one matrix in three roles, against autograd; tokens repeat in and between the roles."""
    generator = torch.Generator().manual_seed(0)
    embedding = torch.randn(11, 4, generator=generator)
    src, reads, predicts = (torch.tensor(ids) for ids in ([3, 5, 3, 7, 9], [1, 6, 5, 6], [6, 5, 6, 2]))

    def loss(from_source: Tensor, from_target: Tensor, from_output: Tensor) -> Tensor:
        states = math.sqrt(4) * (from_target[reads] + from_source[src].mean(0))
        return F.cross_entropy(states @ from_output.T, predicts)

    with torch.enable_grad():
        leaves = [embedding.clone().requires_grad_() for _ in range(3)]
        source, target, output = torch.autograd.grad(loss(*leaves), leaves)
    with torch.no_grad():
        states = 2 * (embedding[reads] + embedding[src].mean(0))
        at_logits = ((states @ embedding.T).softmax(-1) - F.one_hot(predicts, 11)) / 4
        at_states = at_logits @ embedding
        assigned_target, assigned_source = torch.zeros(11, 4), torch.zeros(11, 4)
        assigned_target[reads] = 2 * at_states
        assigned_source[src] = 2 * at_states.sum(0) / 5
    total = source + target + output
    mistakes = {
        "this is the projection's part alone; the two embeddings send a gradient as well.": output,
        "the source embedding's part is missing.": target + output,
        "the target embedding's part is missing.": source + output,
        "the projection's part is missing: the softmax reaches every row.": source + target,
        "the embeddings' parts lack the factor √d.": (source + target) / 2 + output,
        "it is the gradient of the sum of the losses; the loss is their mean: divide by n.": 4 * total,
        "the source's part must be divided by m, the number of source tokens.": 5 * source + target + output,
        "the three parts must be added, not averaged.": total / 3,
        "a token that occurs twice must get both gradients: += on a row list keeps only one. Use index_add_.": (
            assigned_source + assigned_target + output
        ),
        "a source token that occurs twice must get both gradients: use index_add_.": assigned_source + target + output,
        "a target token that occurs twice must get both gradients: use index_add_.": source + assigned_target + output,
        "the sign is reversed.": -total,
    }
    result = answer(embedding.clone(), src, reads, predicts)
    return compare(result.detach() if isinstance(result, Tensor) else result, total, mistakes)


EXERCISES = {
    "05.1": Exercise("A sentence's probability by hand", a_sentence_by_hand),
    "05.2": Exercise("Shift and pad", shift_and_pad),
    "05.3": Exercise("Greedy, without a cache", greedy_writing),
    "05.4": Exercise("The decoder layer from scratch", decoder_layer_from_scratch),
    "05.5": Exercise("A cache with a window", window_cache),
    "05.6": Exercise("Several tokens at a time", several_tokens_at_a_time),
    "05.7": Exercise("The gradient of a tied matrix", tied_gradient),
}
