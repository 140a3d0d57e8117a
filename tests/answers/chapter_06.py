"""Wrong answers to the exercises of chapter 06, each with a pattern of its diagnosis; and other right answers."""

import math
from collections.abc import Callable

import torch

from annotated.masking import causal_mask


def converter(
    added: Callable = lambda mask: mask > -1000,
    drop: Callable = torch.logical_not,
    zero_one: Callable = lambda mask: mask != 0,
) -> Callable[..., torch.Tensor]:
    """A converter to our masks with a choice of what is usually got wrong."""

    def answer(mask, meaning):
        return {"keep": lambda mask: mask, "drop": drop, "zero_one": zero_one, "added": added}[meaning](mask)

    return answer


def packing(
    mask_from: Callable[..., torch.Tensor],
    positions_from: Callable[..., torch.Tensor] = lambda mask: (mask.sum(-1) - 1).clamp(min=0)[:, 0],
) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Packing from the tensors query and key (the numbers of the segments) and past; positions from the right mask."""

    def answer(segments):
        query, key = segments[:, None, :, None], segments[:, None, None, :]
        past = causal_mask(segments.size(1))
        return mask_from(query, key, past), positions_from((query == key) & past & (key != 0))

    return answer


def right_packing(query, key, past):
    return (query == key) & past & (key != 0)


def positions_by_counting(segments):
    """The mask as a triangle of equal numbers, and the positions by looking for where each segment begins."""
    mask, _ = packing(right_packing)(segments)
    place = torch.arange(segments.size(1)).expand_as(segments)
    begins = torch.ones_like(segments, dtype=torch.bool)
    begins[:, 1:] = segments[:, 1:] != segments[:, :-1]
    start = (place * begins).cummax(dim=1).values
    return mask, (place - start) * (segments > 0)


def prefixed(mask_from: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A prefix mask from real (keys), past, and the positions of query and key beside the prefix lengths."""

    def answer(ids, pad_id, prefix):
        position = torch.arange(ids.size(1))
        real = (ids != pad_id)[:, None, None, :]
        return mask_from(real, causal_mask(ids.size(1)), position[:, None], position, prefix[:, None, None, None])

    return answer


def examples(risk: float, opening: float) -> int:
    """How many examples until a gate stays shut in all of them with no more than this risk."""
    return math.ceil(math.log(risk) / math.log(1 - opening))


def leaks(
    attempts: Callable[..., int] = lambda length, opening, risk: examples(risk / length**2, opening),
    replace: Callable[..., torch.Tensor] = lambda old, new: new,
    tolerance: float = 1e-5,
    finish: Callable[[torch.Tensor], torch.Tensor] = lambda reads: reads,
    inputs: int | None = None,
    moved: Callable[..., torch.Tensor] | None = None,
) -> Callable[..., torch.Tensor]:
    """A leak test with a choice of what makes it blind."""

    def answer(model, length, width, opening, risk):
        generator = torch.Generator().manual_seed(7)
        reads = torch.zeros(length, length, dtype=torch.bool)
        for _ in range(attempts(length, opening, risk)):
            x = torch.randn(length, width, generator=generator)
            before = model(x)
            for j in range(inputs or length):
                changed = x.clone()
                changed[j] = replace(x[j], torch.randn(width, generator=generator))
                after = model(changed)
                if moved is None:
                    reads[:, j] |= (after - before).abs().amax(-1) > tolerance
                else:
                    reads[:, j] |= moved(before, after)
        return finish(reads)

    return answer


def change_all_before(model, length, width, *_):
    """Change everything from j on: what moves then depends on one of them, not on j."""
    x, other = torch.randn(2, length, width, generator=torch.Generator().manual_seed(7))
    before = model(x)
    columns = [(model(torch.cat([x[:j], other[j:]])) - before).abs().amax(-1) > 1e-5 for j in range(length)]
    return torch.stack(columns, dim=1)


def jacobian(model, length, width, *_):
    """The leak test by derivatives, on many inputs."""
    reads = torch.zeros(length, length, dtype=torch.bool)
    for seed in range(40):
        x = torch.randn(length, width, generator=torch.Generator().manual_seed(seed))
        reads |= torch.autograd.functional.jacobian(model, x).abs().amax(dim=(1, 3)) > 1e-6
    return reads


def one_step_at_a_time(model, length, width, opening, risk):
    """A right test whose examples hang together: each replacement starts from where the last one ended."""
    generator = torch.Generator().manual_seed(7)
    reads = torch.zeros(length, length, dtype=torch.bool)
    x = torch.randn(length, width, generator=generator)
    before = model(x)
    for step in range(examples(risk / length**2, opening) * length):
        x = x.clone()
        x[step % length] = torch.randn(width, generator=generator)
        after = model(x)
        reads[:, step % length] |= (after - before).abs().amax(-1) > 1e-5
        before = after
    return reads


def replaces_again(model, length, width, opening, risk):
    """One example, in which each input is replaced many times."""
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(length, width, generator=generator)
    before, reads = model(x), torch.zeros(length, length, dtype=torch.bool)
    for _ in range(examples(risk / length**2, opening)):
        for j in range(length):
            changed = x.clone()
            changed[j] = torch.randn(width, generator=generator)
            reads[:, j] |= (model(changed) - before).abs().amax(-1) > 1e-5
    return reads


def without_return(model, *sizes):
    leaks()(model, *sizes) if sizes else inspector()(model)


def inspector(
    *skip: str, tolerance: float = 1e-5, rows: str = "real", longer: bool = True, shift: bool = False
) -> Callable[..., set[str]]:
    """An inspector that skips faults, looks at too much, or disturbs too little."""

    def answer(model):
        generator = torch.Generator().manual_seed(7)
        lengths = torch.tensor([6, 3, 9])
        real = torch.arange(9) < lengths[:, None]
        faults = set()
        for _ in range(4):
            x, other = torch.randn(2, 3, 9, 6, generator=generator)
            if shift:
                other = x + 1
            before = model(x, real)

            def moves(x, real, before=before):
                return (model(x, real)[:, :9] - before).abs().amax(-1) > tolerance

            for b, n in enumerate(lengths):
                last = n if rows == "real" else 9
                for j in range(1, last):
                    changed = x.clone()
                    changed[b, j] = other[b, j]
                    if moves(changed, real)[b, : min(j, int(n))].any():
                        faults.add("future")
                changed = x.clone()
                changed[b] = torch.where(real[b, :, None], other[b], x[b])
                if (moves(changed, real) & real)[torch.arange(3) != b].any():
                    faults.add("neighbours")
            looked_at = real if rows != "all" else torch.ones_like(real)
            junk = torch.where(real[..., None], x, other)
            wide = torch.cat([x, other[:, :2]], dim=1), torch.cat([real, torch.zeros(3, 2, dtype=torch.bool)], dim=1)
            if (moves(junk, real) & looked_at).any() or (longer and (moves(*wide) & looked_at).any()):
                faults.add("padding")
            empty = real.clone()
            empty[0] = False
            if not model(x, empty).isfinite().all():
                faults.add("empty")
        return faults - set(skip)

    return answer


def alone_or_not(model):
    """Compare a sentence alone with the same in a batch: the padded length changes too."""
    faults = inspector("neighbours")(model)
    x = torch.randn(2, 8, 6, generator=torch.Generator().manual_seed(7))
    real = torch.arange(8) < torch.tensor([[5], [8]])
    if (model(x[:1, :5], real[:1, :5]) - model(x, real)[:1, :5]).abs().max() > 1e-5:
        faults.add("neighbours")
    return faults


WRONG = [
    ("06.1", [6, 2, 6, 3], "6² \\+ 2² = 40, but padded queries count"),
    ("06.1", [8, 5, 6, 3], "104 pairs in the encoder, not 40: each of the 8 rows"),
    ("06.1", [4, 4, 6, 3], "32 pairs in the encoder, not 40"),
    ("06.1", [5, 3, 8, 2], "64 pairs of a target query and a source key, not 48"),
    ("06.1", [5, 3, 6, 5], "two triangles"),
    ("06.1", [5, 3, 6, 6], "42 pairs in the decoder, not 36: query i"),
    ("06.1", [3, 5, 6, 3], "the longer one comes first"),
    ("06.1", [5, 3, 6, 0], "at least 1"),
    ("06.1", [5, 3, 6], "expected four lengths"),
    ("06.2", converter(drop=lambda mask: mask), r'"drop": the polarity'),
    ("06.2", converter(zero_one=lambda mask: mask == 0), r'"zero_one": the polarity'),
    ("06.2", converter(zero_one=lambda mask: mask), r"expected torch\.bool, got torch\.float32"),
    ("06.2", converter(added=lambda mask: mask.bool()), r'"added": `\.bool\(\)` turns'),
    ("06.2", converter(added=lambda mask: mask == 0), "0.5 or 1.5 does not hide"),
    ("06.2", converter(added=lambda mask: mask >= 0), "small negative number"),
    ("06.2", converter(added=lambda mask: mask > -torch.inf), "not only −∞"),
    ("06.2", converter(added=lambda mask: mask >= -1000), "−1,000 itself"),
    ("06.2", converter(added=lambda mask: mask < -1000), r'"added": \d+ of 30 entries'),
    ("06.2", lambda mask, meaning: mask, r'"drop": the polarity'),
    ("06.3", packing(lambda query, key, past: ~right_packing(query, key, past)), "mask: the polarity"),
    ("06.3", packing(lambda query, key, past: (query == key) & past), "segment 0 is no sentence"),
    ("06.3", packing(lambda query, key, past: (query == key) & (key != 0)), "encoder's mask"),
    ("06.3", packing(lambda query, key, past: past & (key != 0)), "sentences before are visible"),
    ("06.3", packing(lambda query, key, past: past & (key != 0) & (key <= query)), "with ==, not with ≤"),
    ("06.3", packing(lambda query, key, past: right_packing(query, key, past.tril(-1))), "keep the diagonal"),
    ("06.3", packing(lambda query, key, past: right_packing(query, key, past.T)), "keys are the last axis"),
    ("06.3", packing(lambda query, key, past: (query == key) | past), "use &"),
    ("06.3", packing(lambda query, key, past: right_packing(query, key, past)[:, 0]), "right but for its shape"),
    ("06.3", packing(right_packing, lambda mask: mask.sum(-1)[:, 0]), "count from 1"),
    ("06.3", packing(right_packing, lambda mask: (mask.sum(-1) - 1)[:, 0]), "position −1"),
    ("06.3", packing(right_packing, lambda mask: torch.arange(8).expand(3, 8)), "do not start anew"),
    ("06.3", lambda segments: packing(right_packing)(segments)[0], "return two tensors"),
    ("06.4", prefixed(lambda real, past, i, j, n: ~(real & (past | (j < n)))), "polarity"),
    ("06.4", prefixed(lambda real, past, i, j, n: real & past), "prefix has no effect"),
    ("06.4", prefixed(lambda real, past, i, j, n: past | (j < n)), "padding is still visible"),
    ("06.4", prefixed(lambda real, past, i, j, n: real & past & (j < n)), r"use \|"),
    ("06.4", prefixed(lambda real, past, i, j, n: real & (j < n)), "only the prefix"),
    ("06.4", prefixed(lambda real, past, i, j, n: real & (past | (j <= n))), "one token too long"),
    ("06.4", prefixed(lambda real, past, i, j, n: real & (past | (i < n))), "not the query"),
    (
        "06.4",
        prefixed(lambda real, past, i, j, n: real & (((i < n) & (j < n)) | (past & (i >= n) & (j >= n)))),
        "do not see each other",
    ),
    ("06.4", prefixed(lambda real, past, i, j, n: real & (past | (j < n[0]))), "each row has its own"),
    ("06.4", prefixed(lambda real, past, i, j, n: real.transpose(-2, -1) & (past | (j < n))), "last axis"),
    ("06.4", prefixed(lambda real, past, i, j, n: (real & (past | (j < n)))[:, 0]), "right but for its shape"),
    ("06.5", leaks(finish=lambda reads: reads.T), "other way round"),
    ("06.5", leaks(finish=lambda reads: ~reads), "polarity"),
    ("06.5", leaks(finish=lambda reads: reads.tril()), "wired at random: .* missed"),
    ("06.5", leaks(inputs=4), r"Change one input at a time"),
    ("06.5", leaks(attempts=lambda *_: 1), r"gates, open for one input in six: .*many inputs.*0\.9ⁿ"),
    ("06.5", leaks(attempts=lambda *_: 15), "gate at each output.*another example"),
    ("06.5", replaces_again, "gate at each output.*another example"),
    ("06.5", leaks(attempts=lambda length, opening, risk: examples(risk, opening)), "enough for one dependence"),
    ("06.5", leaks(attempts=lambda length, opening, risk: examples(risk / length, opening)), "one row or column"),
    ("06.5", leaks(attempts=lambda *_: 127), "length 3, opening 0.5.*: 127 examples, where 14 suffice"),
    ("06.5", leaks(tolerance=0.1), "faint leak: .*too wide"),
    ("06.5", leaks(replace=lambda old, new: old + 1), "normalises its inputs: .*at random"),
    ("06.5", leaks(replace=lambda old, new: 2 * old), "normalises its inputs: .*at random"),
    ("06.5", leaks(replace=lambda old, new: old + torch.eye(6)[0]), "one feature only: .*all features"),
    ("06.5", leaks(replace=lambda old, new: old + 0.001 * new, tolerance=1e-6), "model that rounds: .*small change"),
    ("06.5", jacobian, "model that rounds: .*derivative"),
    ("06.5", change_all_before, "invented"),
    ("06.5", leaks(finish=lambda reads: reads.float()), r"expected torch\.bool"),
    ("06.5", lambda model, length, *_: causal_mask(length), "wired at random"),
    ("06.5", without_return, "returned None"),
    ("06.6", lambda model: set(), "off by one: missed future"),
    ("06.6", lambda model: {"future", "padding", "neighbours", "empty"}, "sound model: reported"),
    ("06.6", inspector("neighbours"), "neighbours begin with: missed neighbours"),
    ("06.6", inspector("empty"), "filled with −∞: missed empty"),
    ("06.6", inspector(longer=False), "divides by the padded length: missed padding"),
    ("06.6", inspector(rows="all"), "sound model: reported padding without cause"),
    ("06.6", inspector(rows="padding too"), "padding visible: reported future without cause"),
    ("06.6", inspector(tolerance=0.1), "missed future"),
    ("06.6", inspector(shift=True), "inputs normalised: missed future.*at random"),
    ("06.6", alone_or_not, "Keep the padded length|not the future"),
    ("06.6", lambda model: inspector("future", "padding", "neighbours")(model) | {"leak"}, "unknown fault 'leak'"),
    ("06.6", lambda model: ["future"], "return a set"),
    ("06.6", without_return, "returned None"),
]

RIGHT = [
    ("06.1", torch.tensor([5.0, 3.0, 6.0, 3.0])),
    ("06.1", (5, 3, 6, 3)),
    ("06.2", converter()),
    ("06.3", packing(right_packing)),
    ("06.3", positions_by_counting),
    ("06.4", prefixed(lambda real, past, i, j, n: real & (past | (j < n)))),
    ("06.5", leaks()),
    ("06.5", one_step_at_a_time),
    (
        "06.5",
        leaks(attempts=lambda length, opening, risk: int(1.5 * examples(risk / length**2, opening)), tolerance=1e-6),
    ),
    ("06.6", inspector()),
    ("06.6", inspector(tolerance=1e-4)),
]
