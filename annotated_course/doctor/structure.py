"""The checks of structure: what trains and passes all the same.

They look at one recorded call of the untouched model, whose source is shorter than its target, so that lengths tell
encoder, decoder and cross-attention apart. A *block* is a module with an attention and, after it, a feed-forward
network; its *road* is what goes round them from its first input to its output, its *branches* all that is added to it.
"""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from annotated_course.doctor.checks import Differs, NotExamined, check, differ, near, read, untouched
from annotated_course.doctor.recipe import Recipe
from annotated_course.doctor.record import (
    Call,
    Event,
    blocks,
    is_floating,
    is_wide,
    of_matrices,
    record_of,
    recorded,
    times,
)


def length(x: Tensor) -> int:
    """Count the tokens of one row, wherever the batch is."""
    return x.numel() // x.size(-1)


def stack(recipe: Recipe, call: Call) -> str:
    """Tell whose block it is: the encoder's is as long as the source."""
    if recipe.kind != "encoder-decoder":
        return "model"
    return "encoder" if length(call.output) == recorded(recipe).ids[0].size(1) else "decoder"


def deviations(x: Tensor) -> Tensor:
    """Measure the deviation of each token's numbers."""
    return x.reshape(-1, x.size(-1)).std(dim=-1)


def is_level(x: Tensor) -> bool:
    """Tell whether all tokens have the same deviation, or the same length, as what comes out of a norm has."""
    sizes = torch.stack((deviations(x), x.reshape(-1, x.size(-1)).norm(dim=-1)))
    return bool(((sizes.amax(dim=-1) - sizes.amin(dim=-1)) / sizes.mean(dim=-1) < 0.02).any())


MASKS = "06", "Three places, three masks"
ROAD = "04", "3. The residual connection (§3.1)"


@check("attentions that hide what they should show, or show what they should hide", *MASKS)
def hidden(recipe: Recipe) -> list[str]:
    """Attention to the source, of the encoder and of the decoder, may hide padding alone; a mask of the future belongs
    into the decoder's attention to itself, into each, where it may not hide the past.
    """
    record, found, own = recorded(recipe), [], {}
    for event in (event for event in record.events if event.kind == "softmax"):
        queries, keys = event.output.shape[-2:]
        zeros = (event.output.reshape(-1, queries, keys) == 0).all(dim=0)
        future, what = torch.ones_like(zeros).triu(1), f"{event.inside}, {queries} queries × {keys} keys"
        if recipe.kind != "encoder" and queries == keys == record.ids[-1].size(1):
            own[what] = bool((zeros & future).any())
            zeros = zeros.tril()
        if count := int(zeros.sum()):
            found.append(f"{'the mask of the future' if zeros.equal(future) else f'{count} zeros'} in {what}")
    return found + [f"the future is seen in {what}, not in others" for what in own if any(own.values()) > own[what]]


@check("modules with weights that one call uses twice", "04", "7. The encoder (§3.1)")
def one_layer(recipe: Recipe) -> list[str]:
    """Layers that should each have their own weights are one and the same, as after [layer] * N: build each anew."""
    model, record, names = untouched(recipe), recorded(recipe), dict[int, list[str]]()
    for name, module in model.named_modules(remove_duplicate=False):
        names.setdefault(id(module), []).append(name)
    used = Counter(id(call.module) for call in record.calls if [*call.module.parameters()])
    found = {places[0]: (places, used[key]) for key, places in names.items() if used[key] > 1}
    inner = {name for name in found if name.rpartition(".")[0] in found}
    matrices = {name: [p for p in model.get_submodule(name).parameters() if p.dim() > 1] for name in found}
    shown = [name for name in found if len(matrices[name]) != 1 and name not in inner]  # not embeddings
    several = [f"{' = '.join(found[name][0][:2])}, {found[name][1]} times" for name in shown]
    if several and all(len(found[name][0]) == 1 or not matrices[name] for name in shown):
        raise Differs(f"{several[0]} (the paper's layers have weights of their own: 1 time)")
    return several


@check("sub-layers that let no token through when they add nothing", *ROAD)
def residual(recipe: Recipe) -> list[str]:
    """With its matrix at 0 a sub-layer adds the same to each token, and the token itself must go round it: the
    residual connection x + f(x) is missing here.
    """
    model, found = untouched(recipe), dict[str, None]()
    for call in blocks(recipe):
        named = [(name, p) for name, p in call.module.named_parameters() if p.dim() > 1]
        with times(0, [p for _, p in named]):
            open_ = moves_its_token(call)
        for name, matrix in [] if open_ else named:
            with times(0, [matrix]):
                if not moves_its_token(call) and not hears(recipe, model, stack(recipe, call)):
                    path = name.split(".")
                    found[".".join((call.name, *path[: max(1, len(path) - 2)]))] = None
    return list(found)


def moves_its_token(call: Call) -> bool:
    """Tell whether a block's last output moves with its last input."""
    x = call.road()
    other = x.detach().clone()
    (other[-1] if x.size(0) > 1 else other[:, -1]).add_(torch.randn(x.size(-1)))
    return differ(call.again(x), call.again(other)) > 0


def hears(recipe: Recipe, model: nn.Module, of: str) -> bool:
    """Tell whether the logits of the last token move with that token, or with a token of the source."""
    ids = recorded(recipe).ids
    others = [rows.clone() for rows in ids]
    changed = others[0 if of == "encoder" else -1]
    changed[0, -2:] = changed[0, :2].flip(0)
    logits = read(recipe, model, *ids), read(recipe, model, *others)
    return differ(*(rows if of == "encoder" else rows[:, -1:] for rows in logits)) > 0


@check("blocks whose road isn't free", *ROAD)
def free_road(recipe: Recipe) -> list[str]:
    """With all branches at 0 a block must pass on what it gets (pre-norm), or else end in a norm over the features
    (post-norm). Here it does neither.
    """
    found = []
    for call in blocks(recipe):
        x = call.road()
        with times(0, of_matrices(call.module)):
            other = torch.randn_like(x)
            once, *rest = (call.again(road) for road in (x, 2 * x, x + other, 2 * x - other))
        slope = (rest[1] - once).norm().item() / other.norm().item()
        gap = ((once + rest[0] - rest[1] - rest[2]).norm() / rest[0].norm()).item()
        with times(50, of_matrices(call.module)):  # so that a quiet branch doesn't pass for a norm
            is_post_norm = is_level(call.output) and is_level(call.again(x))
        if slope == 0:  # `residual` says so
            continue
        if gap < 1e-3 and not math.isclose(slope, 1, rel_tol=0.02):
            found.append(f"{call.name} passes on {slope:.2g} times what it gets (should be 1 times)")
        elif not gap < 1e-3 and not is_post_norm:
            why = "the residual is taken from the normalised input, or the last norm is missing"
            if not is_level(once):
                low, high = (f"{of(deviations(once)):.2g}" for of in (torch.amin, torch.amax))
                why = f"what stands on it is no norm over the features: tokens' deviations are {low} to {high}"
                why += ", but one over the positions" if is_level(once.reshape(-1, once.size(-1)).T) else ""
            found.append(f"{call.name}, not linear by {gap:.2g} (should be 0): {why}")
    return found


@check("places where dropout does not belong", "04", "5. Dropout (§5.4)")
def late_dropout(recipe: Recipe) -> list[str]:
    """Drop what a branch makes before it is added, and attention's weights after the softmax. With all branches at 0
    nothing should be left for dropout to drop: here it acts on the sum, x + f(x), on the scores or on the logits.
    """
    found, after = [], list[tuple[Call, float]]()
    records = recorded(recipe), record_of(recipe, 0, training=True)
    alike = [(x == x.mode(dim=-1, keepdim=True).values).double().mean().item() for x in (r.logits for r in records)]
    if alike[1] > alike[0] + 0.03 and alike[0] < 0.2:  # not those of a ReLU
        found.append(f"the logits: {alike[1]:.0%} are the same in training")
    for one, two in zip(*(record.events for record in records), strict=False):
        if one.kind == two.kind == "softmax" and is_floating(one.first) and share(two.first) > share(one.first):
            found.append(f"the scores in {one.inside}: {share(two.first):.0%} are 0 in training")
    for call in blocks(recipe):
        x = call.road()
        with times(0, of_matrices(call.module)):
            quiet = call.again(x)
            for part in call.module.modules():
                part.training = not hasattr(part, "running_mean")  # a BatchNorm changes otherwise, too
            torch.manual_seed(0)
            moved = differ(quiet, call.again(x))
        zeros = share(call.again(x))
        call.module.eval()
        if moved and is_level(call.output) and zeros:
            after.append((call, zeros))
        elif moved:
            found.append(f"the sum in {call.name}")
    if after and not found:
        raise Differs(
            f"dropout after the norm: {after[0][1]:.0%} of what {after[0][0].name} hands on is 0 (the paper: 0)"
        )
    return found


def share(x: Tensor) -> float:
    """Tell which share of some numbers is exactly 0."""
    return (x == 0).double().mean().item()


@check("sub-layers whose input isn't normalised, where others' is", "04", "4. LayerNorm (§3.1)")
def norms(recipe: Recipe) -> list[str]:
    """What goes into a sub-layer should be normalised over the features: its norm is missing, is something else, or
    starts with other weights than 1.
    """
    record, calls, level, found, stacks = recorded(recipe), blocks(recipe), 0, dict[str, bool](), set[str]()
    for call in calls:
        events, first = record.events[call.events], stack(recipe, call) not in stacks
        stacks.add(stack(recipe, call))
        seen: list[Tensor] = []
        for kind, event in zip(["", *(event.kind for event in events)], events, strict=False):
            if event.kind != "linear" or event.first.shape[-1] != call.output.shape[-1]:
                continue
            if length(event.first) != length(call.output) or any(torch.equal(event.first, x) for x in seen):
                continue
            if kind in ("product", "softmax"):  # what attention has read
                continue
            seen.append(event.first)
            made = (other for other in record.calls if is_floating(other.output) and other.output.equal(event.first))
            norm = next((other.name for other in made if is_norm(other.module)), "")
            low, high = (of(deviations(event.first)).item() for of in (torch.amin, torch.amax))
            if norm and not (is_level(event.first) and 0.3 < low < 3):
                found[f"{norm} makes tokens of deviations {low:.2g} to {high:.2g} (should be 1)"] = True
            elif is_level(event.first):
                level += 1
            elif not (first and len(seen) == 1 and is_level(call.output)):  # post-norm begins with the embeddings
                found[name_of(recipe, event)] = False
    if found and not level and not any(found.values()):
        raise Differs(f"no norm was seen before a sub-layer: 0 of {len(found)} have one (the paper: all but the first)")
    ends = {name: x for name, x in last_states(recipe).items() if not is_level(x)}
    if ends and level and not found and not any(is_level(call.output) for call in calls):
        low, high = (of(deviations(next(iter(ends.values())))).item() for of in (torch.amin, torch.amax))
        raise Differs(
            f"pre-norm needs a last norm: {next(iter(ends))} have deviations {low:.2g} to {high:.2g} (else 1)"
        )
    return list(found)


def is_norm(module: nn.Module) -> bool:
    """Tell whether a module has weights, but no matrix, as a norm."""
    return [p.dim() for p in module.parameters()].count(1) == len([*module.parameters()]) > 0


def last_states(recipe: Recipe) -> dict[str, Tensor]:
    """Give what a linear layer reads after the last block of each stack, if that is known."""
    events, found = recorded(recipe).events, dict[str, Tensor]()
    for name, call in {stack(recipe, call): call for call in blocks(recipe)}.items():
        later = (event for event in events[call.events.stop :] if event.kind == "linear")
        same = (event.first for event in later if event.first.numel() == call.output.numel())
        if (x := next(same, None)) is not None:
            found[f"the states after the {name}"] = x
    return found


def name_of(recipe: Recipe, event: Event) -> str:
    """Name a linear layer's matrix."""
    return next((n for n, p in untouched(recipe).named_parameters() if p is event.second), event.inside)


@check("activations out of place", "04", "2. The feed-forward network (§3.3, Eq. 2)")
def activation(recipe: Recipe) -> list[str]:
    """Between the two matrices of a feed-forward network stands an activation, such as a ReLU: without it both together
    are a single matrix. After the second there is none.
    """
    found = []
    for call in blocks(recipe):
        linear = [event for event in recorded(recipe).events[call.events] if event.kind == "linear"]
        for one, two in itertools.pairwise(linear):
            if is_wide(one) and one.output.numel() == two.first.numel():
                cosine = F.cosine_similarity(one.output.flatten(), two.first.flatten(), dim=0).item()
                if cosine > 1 - near(one.output):
                    found.append(f"none between {name_of(recipe, one)} and {name_of(recipe, two)}")
        parts = (part for part in recorded(recipe).calls if call.holds(part) and part.road() is not None)
        for part in parts:
            kinds = [event for event in recorded(recipe).events[part.events] if event.kind in ("linear", "softmax")]
            if len(kinds) not in (2, 3) or any(event.kind == "softmax" for event in kinds) or not part.output.any():
                continue
            owners = (own for own in part.module.modules() if any(p is kinds[-1].second for p in own.parameters(False)))
            last = [p for own in owners for p in own.parameters(False)]
            with times(0, of_matrices(part.module)):
                has_road = moves_its_token(part)
            with times(50, of_matrices(part.module)):  # loud enough for what is nearly linear at 0
                made = part.again(part.road())
                with times(-1, last):
                    odd = ((made + part.again(part.road())).norm() / made.norm()).item()
            if last and odd > 1e-3 and not has_road:
                found.append(
                    f"one after {name_of(recipe, kinds[-1])}: minus it gives no minus, {odd:.2g} off (should be 0)"
                )
    return found


@check("departures from softmax(QKᵀ/√d_k)V", "01", "6. Why divide by √d_k? (§3.2.1)")
def attention(recipe: Recipe) -> list[str]:
    """The scores are another multiple of QKᵀ, or what multiplies the weights, or is multiplied, is not what it should
    be.
    """
    events, found, examined = recorded(recipe).events, list[str](), 0
    for place, event in enumerate(events):
        if event.kind != "softmax" or event.first is None:
            continue
        weights, queries, keys = event.output, *event.output.shape[-2:]
        if event.second:  # PyTorch's function for it, and its scale
            (q, k, v), multiple = event.first, event.second
        else:
            products = [e for e in events[:place] if e.kind == "product" and e.output.numel() == weights.numel()]
            read_ = [e for e in events[place:] if e.kind == "product" and e.first.numel() == weights.numel()]
            if not products or not read_:
                continue
            (q, k), v, raw = products[-1][2:4], read_[0].second, products[-1].output
            known = (weights.flatten() > 1e-9) & (raw.flatten().abs() > 1e-9)
            if not known.any():
                continue
            ratios = (event.first.flatten() / raw.flatten())[known]
            multiple = ratios.median().item()
            if (ratios / multiple - 1).abs().max() > 1e-3:  # something is added to the scores
                continue
            if not torch.allclose(read_[0].first.flatten().to(weights.dtype), weights.flatten(), atol=near(weights)):
                found.append(f"{event.inside}: the values are not multiplied by the softmax, but by what is made of it")
        if v.numel() == k.numel() and torch.equal(v.flatten().sort().values, k.flatten().sort().values):
            found.append(f"{event.inside}: the keys serve as values, too")
        d_k = q.numel() * keys // weights.numel()
        linear = [e for e in events[:place] if e.kind == "linear"][-3:]
        factors = [multiple_of(x, count, linear, d_k) for x, count in ((q, queries), (k, keys))]
        if not linear or any(factor is None for factor in factors):
            if factors[0] is None and any(is_scaled(part, q) for e in linear for part in parts_of(e.output, d_k)):
                found.append(f"{event.inside}: its heads mix positions, as after a view without transpose")
            continue
        examined += 1
        times, d_model = multiple * math.prod(filter(None, factors)) * math.sqrt(d_k), linear[-1].first.size(-1)
        usual = {math.sqrt(d_k): "nothing divides them", d_k**-0.5: "√d_k divides twice"}
        usual |= {math.sqrt(d_k / d_model): "√d_model divides them, not √d_k"}
        why = [f", as if {said}" for number, said in usual.items() if math.isclose(times, number, rel_tol=1e-3)]
        if not math.isclose(times, 1, rel_tol=1e-3):
            found.append(f"{event.inside}: scores are {times:.3g} times QKᵀ/√d_k (should be 1){''.join(why[:1])}")
    if not examined and not found:
        raise NotExamined("no product of queries and keys was seen")
    return found


def is_scaled(x: Tensor, y: Tensor) -> bool:
    """Tell whether two tensors hold the same numbers in any order, but for a factor."""
    if x.numel() != y.numel():
        return False
    x, y = (numbers.flatten().sort().values for numbers in (x, y))
    return bool(F.cosine_similarity(x, y, dim=0) > 1 - 1e-9)


def attention_weights(recipe: Recipe) -> list[Tensor]:
    """List the attention weights of an untrained model, whatever its parts are called."""
    if not (weights := [event.output for event in recorded(recipe).events if event.kind == "softmax"]):
        raise NotExamined("no softmax over the positions was seen")
    return weights


@check("from 1, the sum of a query's weights", "01", "2. All words at once (Equation 1)", high=1e-6)
def rows_sum_to_one(recipe: Recipe) -> float:
    """The softmax of attention runs over another axis than the keys: softmax(dim=-1)."""
    sums = torch.cat([weights.sum(dim=-1).flatten() for weights in attention_weights(recipe)])
    return torch.where(sums == 0, 0, sums - 1).abs().max().item()  # 0: a query with nothing to look at


@check("of ln(keys), the entropy of untrained attention", "01", "6. Why divide by √d_k? (§3.2.1)", low=0.67, high=1.001)
def spread(recipe: Recipe) -> float:
    """An untrained query should look at all keys; here the scores are too large: √d_k is missing, or the embeddings
    are too large.
    """
    rows = [weights[..., -1, :] for weights in attention_weights(recipe)]  # of the last query
    shares = [torch.special.entr(row).sum(dim=-1).mean() / math.log(row.size(-1)) for row in rows]
    share = torch.stack(shares).mean().item()
    own = [event for event in recorded(recipe).events if event.kind == "softmax" and event.first is not None]
    if share >= 0.67:
        return share
    divided = "the scores are divided by √d_k, but "
    try:
        if own and attention(recipe):
            return share
    except NotExamined:
        divided = "√d_k is missing, or "
    raise Differs(
        f"{share:.3f} of ln(keys) is the entropy of untrained attention (should be 0.67 at least): {divided}embeddings "
        "or weights start large"
    )


def sizes(x: Tensor, tokens: int) -> Tensor:
    """Measure the root mean square of each token's numbers."""
    axis = next((axis for axis in (-2, 1, -1, 0) if x.dim() >= -axis and x.size(axis) == tokens), 0)
    return x.movedim(axis, 0).flatten(1).square().mean(dim=1).sqrt()


def multiple_of(x: Tensor, tokens: int, linear: Sequence[Event], d_k: int) -> float | None:
    """Find the factor between a linear layer's output, or one of its three parts, and what attention makes of it."""
    fits = list[tuple[float, float]]()
    for made in (event.output for event in linear if length(event.output) % tokens == 0):
        ratios = torch.stack([sizes(x, tokens) / sizes(part, tokens) for part in parts_of(made, d_k)])
        fits += zip((ratios.amax(dim=1) / ratios.amin(dim=1) - 1).tolist(), ratios.mean(dim=1).tolist(), strict=True)
    gap, factor = min(fits, default=(1.0, 0.0))
    return factor if gap < 1e-4 else None


def parts_of(made: Tensor, d_k: int) -> list[Tensor]:
    """Give what may be the queries of a linear layer's output: all, or one of three parts, of all heads or of each."""
    if made.size(-1) % (3 * d_k):
        return [made]
    return [made, *made.chunk(3, dim=-1), *made.unflatten(-1, (-1, 3, d_k)).unbind(dim=-2)]


class Entry(NamedTuple):
    """What goes into the first block of a stack: factor · embedding + positions."""

    factor: float
    embedding: Tensor
    positions: Tensor
    learned: bool

    def sizes(self) -> tuple[float, float]:
        """Measure both summands, as roots of mean squares."""
        parts = self.factor * self.embedding, self.positions
        return parts[0].square().mean().sqrt().item(), parts[1].square().mean().sqrt().item()


@lru_cache(maxsize=1)
def entries(recipe: Recipe) -> dict[str, Entry]:
    """Part the input of the encoder's and the decoder's first block, by calls with two different rows.

    If that is no sum, since a norm stands between, it is one of the inputs of what was called before.
    """
    found, records = dict[str, Entry](), [record_of(recipe, word) for word in (0, 1)]
    for block in blocks(recipe):
        name = stack(recipe, block)
        before = ([c for c in record.calls if c.road() is not None] for record in records)
        same = [pair for pair in zip(*before, strict=True) if length(pair[0].output) == length(block.output)]
        first = next(i for i, (call, _) in enumerate(same) if call is block or block.holds(call))
        roads = [(block.road(), next(c for c in records[1].calls if c.name == block.name).road())]
        roads += [(call.road(), other.road()) for call, other in reversed(same[:first])]
        for (x, other), pair in itertools.product(roads, zip(*(record.events for record in records), strict=False)):
            if name in found or pair[0].kind != "embedding" or pair[0].output.numel() != x.numel():
                continue
            x, other = (road.reshape(-1, road.size(-1)) for road in (x, other))
            e, another = (event.output.reshape(x.shape) for event in pair)
            if recipe.shifts and name != "encoder":
                e, another = (F.pad(rows, (0, 0, 1, 0))[:-1] for rows in (e, another))
            if torch.equal(e, another):
                continue
            by = ((x - other) * (e - another)).sum() / (e - another).square().sum()
            if ((x - other) - by * (e - another)).norm() < 1e-4 * (x - other).norm():
                added, learned = x - by * e, comes_from_others(x, pair[0].second)
                found[name] = Entry(by.item(), e.detach(), added.detach(), learned)
    if not found:
        raise NotExamined("what enters the first block is no sum of embedding and positions")
    return found


def comes_from_others(x: Tensor, weight: Tensor) -> bool:
    """Tell whether gradients of x go to other parameters than this one, as those of learned positions."""
    nodes, seen = [x.grad_fn], set[Any]()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        if hasattr(node, "variable") and node.variable is not weight:
            return True
        seen.add(node)
        nodes += [before for before, _ in node.next_functions]
    return False


@check("stacks whose embeddings go in by a wrong factor", "03", "The factor √d_model")
def embeddings(recipe: Recipe) -> list[str]:
    """The embeddings must be a match for the positions that are added: with a small start it takes √d_model, once."""
    found, noted = [], []
    factors = [entry.factor for entry in entries(recipe).values()]
    for name, entry in entries(recipe).items():
        (tokens, places), d_model = entry.sizes(), entry.embedding.size(-1)
        said = f"{name}: embedding × {entry.factor:.3g} (√d_model is {math.sqrt(d_model):.3g}), "
        said += f"of size {tokens:.2g} beside positions of {places:.2g}"
        right, twice = (math.isclose(entry.factor, d_model**power, rel_tol=1e-3) for power in (0.5, 1))
        added = places > 1e-5 * tokens
        unlike = not math.isclose(min(factors), max(factors), rel_tol=1e-3)
        if not entry.learned and math.isclose(places, math.sqrt(d_model / 2), rel_tol=0.05):
            found.append(f"{said}: the positions are scaled, too")
        elif twice or (unlike and not right) or (added and tokens > 60 * places):
            found.append(said + (": √d_model twice" if twice else ", and in the other stack it isn't so" * unlike))
        elif added and not right and (tokens < places / 2 or not entry.learned):
            noted.append(said)
    if noted and not found:
        raise Differs(f"{noted[0]} (the paper: × √d_model)")
    return found


def from_clocks(second: Tensor) -> float:
    """Measure how far a vector for the second position is from the paper's, in any order, or from tensor2tensor's."""
    half = len(second) // 2
    turns = (10000.0 ** -(torch.arange(half) / steps) for steps in (half, half - 1))
    known = (torch.cat((turn.sin(), turn.cos())).sort().values / math.sqrt(half) for turn in turns)
    return min((second[: 2 * half].sort().values - clock).abs().max().item() for clock in known)


@check("stacks with wrong positions", "03", "3. The paper's clock (§3.5)")
def positions(recipe: Recipe) -> list[str]:
    """What is added to the embeddings doesn't tell the positions apart as sine and cosine at many frequencies do."""
    found, noted, sizes_ = [], [], {name: entry.sizes()[1] for name, entry in entries(recipe).items()}
    least = 1e-5 * max(max(entry.sizes()) for entry in entries(recipe).values())
    if max(sizes_.values()) < least:
        raise NotExamined("nothing is added to the embeddings")
    for name, entry in entries(recipe).items():
        table, tokens = entry.positions, len(entry.positions)
        lengths, products = table.square().sum(dim=1), table @ table.T
        rank = int((torch.linalg.svdvals(table) > 1e-5 * table.norm()).sum())
        off = max((products.diagonal(k).amax() - products.diagonal(k).amin()).item() for k in range(tokens))
        if sizes_[name] < least:
            found.append(f"{name}: nothing is added there (size 0; the other's is {max(sizes_.values()):.2g})")
        elif (table - table[0]).abs().max() < least:
            found.append(f"{name}: all {tokens} positions get the same vector")
        elif not entry.learned and rank < min(3, tokens, table.size(1)):
            found.append(f"{name}: {tokens} positions lie in {rank} dimensions, as if all clocks went alike")
        elif not entry.learned and lengths.max() > 1.7 * lengths.min():
            low, high = lengths.min(), lengths.max()
            found.append(f"{name}: lengths² from {low:.2g} to {high:.2g} (should be equal): all sine, or all cosine")
        elif not entry.learned and products.diagonal(1).mean() < lengths.mean() / 2:
            cosine = (products.diagonal(1).mean() / lengths.mean()).item()
            found.append(f"{name}: the clocks turn too fast, neighbours have cosine {cosine:.2g} (the paper's: 0.9)")
        elif not entry.learned and off > 1e-3 * lengths.max():
            noted.append(f"{name}: p_i · p_j depends on more than the distance, by {off:.2g} (the paper's clock: 0)")
        elif not entry.learned and (gap := from_clocks(table[1] / lengths[1].sqrt())) > 1e-3:
            noted.append(f"{name}: the clocks turn at other speeds: the second position is {gap:.2g} from the paper's")
    if noted and not found:
        raise Differs(noted[0])
    return found
