"""Draw the paper's Figures 1 and 2 in a layout of our own: python -m tools.draw_architecture

Writes `transformer.svg` and `attention.svg` in `docs/drawings/`. Each box is a link to the section that builds it, and
its title names the function or class that it is. The links of an SVG that is shown as a picture are dead, so the
command also prints them as a table of Markdown, for the page that shows it.

Writes `where_01.svg` to `where_09.svg`, too: the whole model in small, for the head of each of these chapters, grey
except for what the chapter builds. The command prints the line of Markdown that shows it.
"""

import os
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from annotated_course.plotting import ARROW, OPERATION, TENSOR
from tools.sync import ROOT

ASSETS = Path("docs/drawings")
NOTEBOOKS = Path("notebooks")
WIDTH = 600
HEIGHT = 46  # of a box
GAP = 34  # between boxes, with a shape beside the arrow
HALF = 102  # half the width of a box of the encoder or the decoder

# A page's colour scheme decides between light and dark; where a drawing stands alone, the reader's system does. A
# browser that does not know light-dark() keeps to light.
COLOURS = [
    (".paper", "fill", "#ffffff", "#14181e"),
    ("text", "fill", "#1a1a1a", "#e8f0f8"),
    (".layer rect", "fill", "#f5f7fa", "#1b222b"),
    (".layer rect", "stroke", "#8898a8", "#8898a8"),
    (".tensor rect", "fill", TENSOR, "#22364a"),
    (".tensor rect", "stroke", OPERATION, "#7fa8d0"),
    (".operation rect", "fill", OPERATION, OPERATION),
    (".operation rect", "stroke", OPERATION, "#7fa8d0"),
    (".operation text", "fill", "#ffffff", "#ffffff"),
    (".line", "stroke", ARROW, "#b8c0c8"),
    (".tip", "fill", ARROW, "#b8c0c8"),
    (".over", "stroke", "#f5f7fa", "#1b222b"),
]
RULES = [
    ".drawing .small { font-size: 12px; }",
    ".drawing .start { text-anchor: start; }",
    ".drawing .end { text-anchor: end; }",
    ".drawing .over { stroke-width: 8px; paint-order: stroke; }",
    ".drawing .layer rect { stroke-dasharray: 5 4; }",
]


class Place(NamedTuple):
    """What a box stands for: a function's or class's full name, and the chapter and heading under which it is built."""

    name: str
    chapter: str
    heading: str

    def link(self, folder: Path) -> str:
        """Give the address of the heading from a folder of the repository, spelled as JupyterLab does."""
        notebook = Path(os.path.relpath(NOTEBOOKS / f"{self.chapter}.ipynb", folder))
        return f"{notebook.as_posix()}#{quote(self.heading.replace(' ', '-'))}"


class Box(NamedTuple):
    """A box by its left upper corner and its size: an "operation", a "tensor", or a "layer", a frame around others.

    Below its words stands the shape of a tensor, line by line, or what the module calls an operation or a layer.
    """

    kind: str
    words: str
    place: Place
    x: int
    y: int
    width: int
    height: int = HEIGHT
    shape: Sequence[str] = ()
    middle: int = 0  # where a frame's words stand, if not in its middle


class Arrow(NamedTuple):
    """A line through some points, each straight below, above or beside the one before, and a tip at the last."""

    points: Sequence[tuple[int, int]]


class Label(NamedTuple):
    """Words beside an arrow, that "start" or "end" at x; or with x in their "middle", or so and "over" an arrow."""

    words: str
    x: int
    y: int
    side: str


Part = Box | Arrow | Label


class Drawing(NamedTuple):
    """A figure: its title, its height and its parts."""

    title: str
    height: int
    parts: Sequence[Part]


TOKENS = Place("annotated_workbench.vocabulary.SubwordTokenizer", "07_training", "1. From text to pieces (§5.1)")
SHIFTED = Place("annotated.training.train_step", "05_decoder", "1. A loss of zero, and not one word")
EMBEDDING = Place("annotated.transformer.Transformer", "05_decoder", "8. One matrix, three times (§3.4)")
POSITIONS = Place(
    "annotated.positional_encoding.SinusoidalEncoding", "03_positional_encoding", "7. The finished encodings"
)
HEADS = Place("annotated.multi_head.MultiHeadAttention", "02_multi_head", "6. The finished code")
MASKED = HEADS._replace(chapter="05_decoder", heading="3. Masked self-attention (§3.2.3)")
CROSS = HEADS._replace(chapter="05_decoder", heading="4. Attention to the source (§3.2.3)")
FEED_FORWARD = Place("annotated.encoder.FeedForward", "04_encoder", "2. The feed-forward network (§3.3, Eq. 2)")
RESIDUAL = Place("annotated.encoder.Residual", "04_encoder", "6. The encoder layer (§3.1, Figure 1)")
ENCODER_LAYER = RESIDUAL._replace(name="annotated.encoder.EncoderLayer")
ENCODER = Place("annotated.encoder.Encoder", "04_encoder", "7. The encoder (§3.1)")
DECODER_LAYER = Place("annotated.decoder.DecoderLayer", "05_decoder", "5. The decoder layer (§3.1)")
LOGITS = EMBEDDING._replace(name="annotated.transformer.Transformer.logits")
LOSS = Place("annotated.training.label_smoothed_loss", "07_training", "3. The loss, with a softened target (§5.4)")
UPDATE = Place("annotated.training.train_step", "07_training", "6. One update")
SEARCH = Place("annotated.decoding.beam_search", "08_decoding", "7. The finished code (§6.1)")
SOFTMAX = Place("annotated.decoding.next_log_probs", "08_decoding", "7. The finished code (§6.1)")
WEIGHTS = Place("annotated.attention.attention_weights", "01_attention", "8. The finished code")
ATTENTION = WEIGHTS._replace(name="annotated.attention.attention")
MASK = WEIGHTS._replace(chapter="06_masking", heading="5. The finished code")
PROJECT = HEADS._replace(name="annotated.multi_head.MultiHeadAttention.project")
ATTEND = HEADS._replace(name="annotated.multi_head.MultiHeadAttention.attend")


def transformer() -> Drawing:
    """Lay out the whole model (Figure 1): the encoder on the left, the decoder on the right, both downwards."""
    feed_forward = ("feed-forward", FEED_FORWARD, "")
    memory = Box("tensor", "memory", ENCODER, 30, 0, 2 * HALF, shape=("(batch, source, d_model)",))
    encoder, y = tower(
        (Box("tensor", "source token ids", TOKENS, 30, 8, 2 * HALF, shape=("(batch, source)",)), "(batch, source)"),
        ("encoder layer, N ×", ENCODER_LAYER),
        [("multi-head attention", HEADS, "Q, K, V"), feed_forward],
        "(batch, source, d_model)",
        [(memory, "")],
        outer=-1,
    )
    ids, x = ("(batch, target)",), WIDTH - 30 - 2 * HALF
    vocab = "(batch, target, vocab)"
    decoder, height = tower(
        (Box("tensor", "target ids, shifted right", SHIFTED, x, 8, 2 * HALF, shape=ids), *ids),
        ("decoder layer, N ×", DECODER_LAYER),
        [("masked multi-head attention", MASKED, "Q, K, V"), ("multi-head attention", CROSS, "Q"), feed_forward],
        "(batch, target, d_model)",
        [
            (Box("operation", "linear", LOGITS, x, 0, 2 * HALF), vocab),
            (Box("operation", "softmax", SOFTMAX, x, 0, 2 * HALF), vocab),
            (Box("tensor", "output probabilities", SOFTMAX, x, 0, 2 * HALF, shape=(vocab,)), ""),
        ],
        outer=1,
    )
    start = y - HEIGHT // 2
    level = next(part.y for part in decoder if isinstance(part, Box) and part.place == CROSS) + HEIGHT // 2
    reading = Arrow([(30 + 2 * HALF, start), (WIDTH // 2, start), (WIDTH // 2, level), (x, level)])
    roles = Label("K, V", x - 12, level - 8, "end")
    sizes = ["In the paper's base model", "N = 6, d_model = 512, d_ff = 2048,", "h = 8 heads, d_k = d_v = 64."]
    notes = [Label(line, 30 + HALF, y + 60 + 18 * i, "middle") for i, line in enumerate(sizes)]
    return Drawing("The Transformer", height + 8, [*encoder, *decoder, reading, roles, *notes])


def tower(
    first: tuple[Box, str],
    layer: tuple[str, Place],
    sublayers: Sequence[tuple[str, Place, str]],
    shape: str,
    last: Sequence[tuple[Box, str]],
    *,
    outer: int,
) -> tuple[list[Part], int]:
    """Lay out the encoder or the decoder, downwards; return its parts, and where it ends.

    Args:
        first: the box of its input, and the shape below it.
        layer: the words and the place of the frame around its sub-layers.
        sublayers: the words and the place of each, and the roles in which its input enters.
        shape: the shape of everything between the embedding and the last boxes.
        last: the boxes after the layers, wherever they stand, each with the shape below it.
        outer: the side of the residual connections, away from the other tower: -1 for left, 1 for right.
    """
    parts: list[Part] = []
    left, y = first[0].x, first[0].y
    x = left + HALF
    inside, outside = ("start", "end") if outer < 0 else ("end", "start")

    def place(box: Box, below: str, gap: int = GAP) -> None:
        nonlocal y
        parts.append(box._replace(x=left, y=y))
        y += HEIGHT
        if gap:
            parts.append(Arrow([(x, y), (x, y + gap)]))
            parts.append(Label(below, x - 8 * outer, y + 21, inside))
        y += gap

    def operation(words: str, stands_for: Place) -> Box:
        return Box("operation", words, stands_for, left, y, 2 * HALF)

    place(*first)
    place(operation("embedding · √d_model", EMBEDDING), shape)
    place(operation("+ positions", POSITIONS), shape, gap=90)
    frame = y - 56
    branch = frame + 12
    for i, (words, stands_for, roles) in enumerate(sublayers):
        parts.append(Label(roles, x + 8 * outer, y - 7, outside))
        place(operation(words, stands_for), "", gap=18)
        level = y + HEIGHT // 2
        edge = x + HALF * outer
        parts.append(Arrow([(x, branch), (edge + 12 * outer, branch), (edge + 12 * outer, level), (edge, level)]))
        ending = i == len(sublayers) - 1
        place(operation("add & norm", RESIDUAL), "" if ending else shape, gap=46 if ending else GAP)
        branch = y - GAP + 10
    parts.append(Label(shape, x - 8 * outer, y - 12, inside))
    width = 2 * HALF + 76
    frame_left = x - 126 if outer < 0 else x + 126 - width
    bottom = y - 30 - frame
    parts.append(Box("layer", *layer, frame_left, frame, width, bottom, middle=x - 79 * outer))
    for box, below in last:
        place(box, below, gap=GAP if below else 0)
    return parts, y


def attention() -> Drawing:
    """Lay out scaled dot-product attention on the left and multi-head attention on the right (Figure 2), downwards."""
    top, tall, first, last, bottom = 58, 64, 156, 556, 612
    roles = "4. Three roles for one word (§3.2.2)"
    weights, values = WEIGHTS._replace(heading=roles), ATTENTION._replace(heading=roles)
    parts: list[Part] = [
        Box("layer", "scaled dot-product attention", ATTENTION, 4, 4, 288, bottom - 4),
        Box("layer", "multi-head attention", HEADS, 308, 4, 288, bottom - 4),
        Box("tensor", "Q", weights, 12, top, 86, tall, ("(batch, heads,", "query, d_k)")),
        Box("tensor", "K", weights, 105, top, 86, tall, ("(batch, heads,", "key, d_k)")),
        Box("tensor", "V", values, 198, top, 86, tall, ("(batch, heads,", "key, d_v)")),
        Arrow([(55, top + tall), (55, first)]),
        Arrow([(148, top + tall), (148, first)]),
    ]
    y = first
    for words, place in (
        ("matmul, Q Kᵀ", WEIGHTS),
        ("scale by 1 / √d_k", WEIGHTS),
        ("mask (optional)", MASK),
        ("softmax", WEIGHTS),
    ):
        parts.append(Box("operation", words, place, 12, y, 179))
        y += HEIGHT + GAP
        parts.append(Arrow([(101, y - GAP), (101, y)]))
        parts.append(Label("(batch, heads, query, key)", 109, y - 13, "start"))
    parts += [
        Box("operation", "matmul with V", ATTENTION, 12, y, 272),
        Arrow([(268, top + tall), (268, y)]),
        Arrow([(101, y + HEIGHT), (101, last)]),
        Label("(batch, heads, query, d_v)", 109, y + HEIGHT + 21, "start"),
        Box(
            "tensor",
            "the values, mixed for each query",
            ATTENTION,
            12,
            last,
            272,
            shape=("(batch, heads, query, d_v)",),
        ),
    ]
    for i, (words, axis, place) in enumerate(
        (("query", "query", ATTEND), ("key", "key", PROJECT), ("value", "key", PROJECT))
    ):
        x = 316 + 93 * i
        parts += [
            Box("tensor", words, HEADS, x, top, 86, tall, (f"(batch, {axis},", "d_model)")),
            Arrow([(x + 43, top + tall), (x + 43, first)]),
            Box("operation", f"linear W_{words[0].replace('u', 'v')}", place, x, first, 86),
            Arrow([(x + 43, first + HEIGHT), (x + 43, first + 124)]),
        ]
    parts.append(Label("(batch, heads, query or key, d_k or d_v)", 452, first + 86, "over"))
    y = first + 124
    for words, place, shape in (
        ("attention in h heads, in parallel", ATTENTION, "(batch, heads, query, d_v)"),
        ("concatenate the heads", ATTEND, "(batch, query, h · d_v)"),
        ("linear W_o", ATTEND, "(batch, query, d_model)"),
    ):
        parts.append(Box("operation", words, place, 316, y, 272))
        parts.append(Arrow([(452, y + HEIGHT), (452, y + 92)]))
        parts.append(Label(shape, 452, y + HEIGHT + 24, "over"))
        y += 92
    parts.append(
        Box("tensor", "a new vector for each query", HEADS, 316, last, 272, shape=("(batch, query, d_model)",))
    )
    return Drawing("Scaled dot-product attention, and multi-head attention", bottom + 4, parts)


# The whole model in small, for the head of chapters 01 to 09: one drawing, so that it is learned once. For each
# chapter, where the reader is, and what is lit: parts by their names, or all of a layer.
ATTENTIONS = ("self-attention", "masked self-attention", "attention to the source")
WHERE: dict[str, tuple[str, Sequence[str]]] = {
    "01": ("attention", ATTENTIONS),
    "02": ("several heads", (*ATTENTIONS, "heads")),
    "03": ("positions", ("positions",)),
    "04": ("the encoder", ("encoder layer",)),
    "05": ("the decoder", ("target tokens", "embedding", "decoder layer", "linear, softmax")),
    "06": ("masks", ("mask",)),
    "07": ("training", ("source tokens", "target tokens", "linear, softmax", "loss", "optimizer")),
    "08": ("search", ("target tokens", "linear, softmax", "search")),
    "09": ("the whole model", ("every part",)),
}
SMALL_WIDTH, SMALL_HEIGHT = 648, 164
TALL = 30  # of a box that holds two lines
SMALL_RULES = [
    ".where:not(:root) { margin-bottom: 12px; }",
    ".where:not(:root) .paper { display: none; }",  # a page has its own
    ".where text { font-size: 12.5px; }",
    ".where :is(.frame text, .start, .here) { text-anchor: start; }",
    ".where .here { font-size: 14.5px; }",
    ".where .name { font-weight: bold; }",
    ".where .update .line { stroke-dasharray: 3 3; }",
    ".where .sign { fill: none; stroke-width: 1.5px; }",
]
SMALL_COLOURS = [
    (".paper", "fill", "#ffffff", "#14181e"),
    ("text", "fill", "#626d78", "#939fab"),
    ("a rect", "fill", "#f6f8fa", "#1b222b"),
    ("a rect", "stroke", "#ccd4dc", "#3a4551"),
    (".frame rect", "fill", "transparent", "transparent"),
    (".line", "stroke", "#b4bec8", "#4a5663"),
    (".tip", "fill", "#b4bec8", "#4a5663"),
    (".sign", "stroke", "#b4bec8", "#5a6773"),
    (".mask .sign", "fill", "#b4bec8", "#5a6773"),
    (".lit rect", "fill", OPERATION, "#35689a"),
    (".lit rect", "stroke", OPERATION, "#9cc2e8"),
    (".lit text", "fill", "#ffffff", "#ffffff"),
    (".lit .line", "stroke", OPERATION, "#9cc2e8"),
    (".lit .tip", "fill", OPERATION, "#9cc2e8"),
    (".lit .sign", "stroke", "#ffffff", "#ffffff"),
    (".lit.frame rect", "fill", TENSOR, "#1d2d3d"),
    (":is(.lit.frame text, .lit .start, .here)", "fill", OPERATION, "#9cc2e8"),
    (".lit.sheets rect", "fill", "#a9c4de", "#22425f"),
    (".lit.mask rect", "stroke", "#ffffff", "#9cc2e8"),
    (".lit.mask .sign", "fill", "#ffffff", "#ffffff"),
]
# What is drawn on a part: a sum, or the pairs that a mask leaves, with queries downwards and keys to the right.
SUM, CAUSAL, PADDING = "m3 7h8m-4 -4v8", "m4 4v10h10z", "m4 4v10h5v-10z"


class Tile(NamedTuple):
    """A part of the small model: a "box", a "frame" around several, a "sum", an attention's "sheets" or its "mask"."""

    kind: str
    name: str
    place: Place
    x: int
    y: int
    width: int
    height: int
    words: str = ""
    layer: str = ""
    sign: str = ""


class Wire(NamedTuple):
    """An arrow of the small model through some points: lit where all its parts are; perhaps with words beside it."""

    parts: Sequence[Tile]
    points: Sequence[tuple[int, int]]
    kind: str = "wire"
    label: Label | None = None


def small_model() -> tuple[list[Tile], list[Wire], list[Tile]]:
    """Lay out the model in small, from left to right; return what lies below the arrows, these, and what lies above."""
    top, bottom = 24, 94  # of the encoder's row and the decoder's
    both = bottom - top + TALL
    encoder = Tile(
        "frame", "encoder layer", ENCODER_LAYER, 240, top - 9, 242, 50, "encoder layer, N ×", "encoder layer"
    )
    decoder = Tile(
        "frame", "decoder layer", DECODER_LAYER, 240, bottom - 9, 332, 50, "decoder layer, N ×", "decoder layer"
    )
    source = Tile("box", "source tokens", TOKENS, 2, top, 56, TALL, "source\ntokens")
    target = Tile("box", "target tokens", SHIFTED, 2, bottom, 56, TALL, "target\ntokens")
    embedding = Tile("box", "embedding", EMBEDDING, 70, top, 76, both, "embedding")
    positions = Tile("box", "positions", POSITIONS, 158, top, 68, both, "add\npositions")
    plain, masked, cross = (
        Tile("box", name, place, x, y, width, TALL, words, layer.name)
        for layer, name, place, x, y, width, words in (
            (encoder, ATTENTIONS[0], ATTENTION, 250, top, 92, "self-\nattention"),
            (decoder, ATTENTIONS[1], MASKED, 250, bottom, 92, "masked\nself-attention"),
            (decoder, ATTENTIONS[2], CROSS, 380, bottom, 78, "attention\nto source"),
        )
    )
    first, second = (
        Tile("box", "feed-forward", FEED_FORWARD, x, y, width, TALL, "feed-\nforward", layer.name)
        for layer, x, y, width in ((encoder, 380, top, 78), (decoder, 490, bottom, 58))
    )
    softmax = Tile("box", "linear, softmax", LOGITS, 586, bottom, 60, TALL, "linear,\nsoftmax")
    loss = Tile("box", "loss", LOSS, 586, top, 60, TALL, "loss")
    optimizer = Tile("box", "optimizer", UPDATE, 494, top, 74, TALL, "optimizer")
    search = Tile("box", "search", SEARCH, 240, 141, 160, 20, "search: the next token")
    sheets = [
        Tile("sheets", "heads", HEADS, box.x + 4, box.y + 4, box.width, TALL, layer=box.layer)
        for box in (plain, masked, cross)
    ]
    masks = [
        Tile("mask", "mask", MASK, box.x + box.width - 9, box.y - 6, 18, 18, sign=sign)
        for box, sign in ((plain, PADDING), (masked, CAUSAL), (cross, PADDING))
    ]
    sums = {
        box: Tile("sum", "add & norm", RESIDUAL, x, box.y + 8, 14, 14, layer=box.layer, sign=SUM)
        for box, x in ((plain, 355), (first, 461), (masked, 355), (cross, 467), (second, 552))
    }
    wires = [
        Wire([one, sums.get(one, one), other], [(one.x + one.width, row[0].y + 15), (other.x, row[0].y + 15)])
        for row in (
            [source, embedding, positions, plain, first],
            [target, embedding, positions, masked, cross, second, softmax],
        )
        for one, other in pairwise(row)
    ]
    wires += [
        Wire(
            [first, cross],
            [(458, top + 15), (468, top + 15), (468, 75), (419, 75), (419, bottom)],
            label=Label("memory", 474, 79, "start"),
        ),
        Wire([softmax, loss], [(616, bottom), (616, top + TALL)]),
        Wire([loss, optimizer], [(586, top + 15), (568, top + 15)]),
        Wire([optimizer], [(494, top + 15), (482, top + 15)], "update"),
        Wire([optimizer], [(548, top + TALL), (548, bottom - 9)], "update", Label("update", 556, 71, "start")),
        Wire([softmax, search], [(616, bottom + TALL), (616, 151), (400, 151)]),
        Wire([search, target], [(240, 151), (30, 151), (30, bottom + TALL)]),
    ]
    boxes = [
        source,
        target,
        embedding,
        positions,
        plain,
        first,
        masked,
        cross,
        second,
        softmax,
        loss,
        optimizer,
        search,
    ]
    return [encoder, decoder, *sheets], wires, [*boxes, *sums.values(), *masks]


DRAWINGS = {"transformer": transformer, "attention": attention}


def boxes(drawing: Drawing) -> list[Box]:
    """List the boxes of a drawing."""
    return [part for part in drawing.parts if isinstance(part, Box)]


def svg(drawing: Drawing) -> str:
    """Write a drawing as SVG, with links as they lead from its folder."""
    body = [line for part in sorted(drawing.parts, key=depth) for line in element(part)]
    return page("drawing", drawing.title, WIDTH, drawing.height, [*RULES, *colours("drawing", COLOURS)], body)


def where(chapter: str) -> str:
    """Write the model in small as SVG, with what a chapter is about lit."""
    below, wires, above = small_model()
    body = [f'<text class="here" x="2" y="13">You are here: <tspan class="name">{WHERE[chapter][0]}</tspan></text>']
    for tile in below:
        body += tile_element(tile, lit(chapter, tile))
    for wire in wires:
        body += wire_element(wire, all(lit(chapter, part) for part in wire.parts))
    for tile in above:
        body += tile_element(tile, lit(chapter, tile))
    rules = [*SMALL_RULES, *colours("where", SMALL_COLOURS)]
    return page("where", where_alt(chapter), SMALL_WIDTH, SMALL_HEIGHT, rules, body)


def lit(chapter: str, tile: Tile) -> bool:
    """Tell whether a chapter lights a part of the small model."""
    return not {tile.name, tile.layer, "every part"}.isdisjoint(WHERE[chapter][1])


def where_alt(chapter: str) -> str:
    """Say in a sentence what a chapter's small model shows."""
    return f"The whole Transformer in miniature, lit up where you are: {WHERE[chapter][0]}."


def where_markdown(chapter: str) -> str:
    """Write the line of a notebook that shows a chapter's small model."""
    address = Path(os.path.relpath(ASSETS / f"where_{chapter}.svg", NOTEBOOKS)).as_posix()
    return f"![{where_alt(chapter)}]({address})"


def page(kind: str, title: str, width: int, height: int, rules: Sequence[str], body: Sequence[str]) -> str:
    """Write an SVG, without an empty line, so that Markdown can hold it, and with rules that touch no other kind.

    Args:
        kind: the class that its rules begin with.
        title: what it shows.
        width: as its coordinates count, and as it is shown where there is room.
        height: likewise.
        rules: how its parts look.
        body: its parts.
    """
    size = f'width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{kind}" {size} viewBox="0 0 {width} {height}">',
        f"<title>{escape(title)}</title>",
        "<style>",
        "svg:root { color-scheme: light dark; }",
        f".{kind} {{ max-width: 100%; height: auto; }}",
        f'.{kind} {{ font: 15px "Helvetica Neue", Arial, "Liberation Sans", sans-serif; text-anchor: middle; }}',
        f".{kind} .line {{ fill: none; stroke-width: 1.5px; }}",
        f".{kind} a {{ text-decoration: none; }}",
        f".{kind} a[href]:is(:hover, :focus-visible) rect {{ stroke: #de8f05; stroke-width: 3px; }}",
        *rules,
        "</style>",
        f'<rect class="paper" {size} rx="6"/>',
        *body,
    ]
    return "\n".join([*lines, "</svg>\n"])


def colours(kind: str, table: Sequence[tuple[str, str, str, str]]) -> list[str]:
    """Give the rules that colour the parts of a kind of drawing, in light and dark."""
    return [
        f".{kind} {part} {{ {name}: {light}; {name}: light-dark({light}, {dark}); }}"
        for part, name, light, dark in table
    ]


def tile_element(tile: Tile, bright: bool) -> Iterator[str]:
    """Write a part of the small model as SVG."""
    kind, name, place, x, y, width, height, words, _, sign = tile
    yield f'<a class="{kind}{" lit" * bright}" href="{place.link(ASSETS)}">'
    yield f"<title>{escape(name)}: {place.name}, chapter {place.chapter[:2]}, {escape(place.heading)}</title>"
    rounded = {"sum": 7, "mask": 2}.get(kind, 5)
    for shift in (4, 0) if kind == "sheets" else (0,):
        yield f'<rect x="{x + shift}" y="{y + shift}" width="{width}" height="{height}" rx="{rounded}"/>'
    if sign:
        yield f'<path class="sign" d="M{x} {y}{sign}"/>'
    if kind == "frame":
        yield f'<text x="{x + 10}" y="{y - 4}">{words}</text>'
    elif words:
        lines = words.split("\n")
        for i, line in enumerate(lines):
            yield f'<text x="{x + width // 2}" y="{y + height // 2 + 11 - 7 * len(lines) + 14 * i}">{line}</text>'
    yield "</a>"


def wire_element(wire: Wire, bright: bool) -> Iterator[str]:
    """Write an arrow of the small model as SVG."""
    yield f'<g class="{wire.kind}{" lit" * bright}">'
    yield from element(Arrow(wire.points))
    if wire.label:
        yield from element(wire.label)
    yield "</g>"


def depth(part: Part) -> int:
    """Tell what lies behind what: frames, arrows, labels, boxes."""
    match part:
        case Box(kind="layer"):
            return 0
        case Arrow():
            return 1
        case Label():
            return 2
    return 3


def element(part: Part) -> Iterator[str]:
    """Write one part as SVG."""
    match part:
        case Arrow(points):
            (*_, (x, y), (end_x, end_y)) = points
            dx, dy = (end_x > x) - (end_x < x), (end_y > y) - (end_y < y)
            line = [*points[:-1], (end_x - 7 * dx, end_y - 7 * dy)]
            yield f'<path class="line" d="M{" L".join(f"{x} {y}" for x, y in line)}"/>'
            corners = [(end_x - 8 * dx + 4 * side * dy, end_y - 8 * dy + 4 * side * dx) for side in (1, -1)]
            yield f'<path class="tip" d="M{end_x} {end_y} {" ".join(f"L{x} {y}" for x, y in corners)} Z"/>'
        case Label(words, x, y, side):
            if words:
                yield f'<text class="small {side}" x="{x}" y="{y}">{escape(words)}</text>'
        case Box(kind, words, place, x, y, width, height):
            name = place.name.rpartition(".")[2]
            below = part.shape or [f"{name} · {place.chapter[:2]}"]
            middle = part.middle or x + width // 2
            yield f'<a class="{kind}" href="{place.link(ASSETS)}">'
            yield f"<title>{escape(words)}: {place.name}, chapter {place.chapter[:2]}, {escape(place.heading)}</title>"
            yield f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>'
            room = width - 14  # a font that the reader lacks may be replaced by a wider one
            fit = f' textLength="{room}" lengthAdjust="spacingAndGlyphs"' if 7.2 * len(words) > room else ""
            yield f'<text x="{middle}" y="{y + 20}"{fit}>{escape(words)}</text>'
            for i, line in enumerate(below):
                yield f'<text class="small" x="{middle}" y="{y + 37 + 15 * i}">{escape(line)}</text>'
            yield "</a>"


def table(drawing: Drawing, folder: Path) -> str:
    """Write the links of a drawing as a table of Markdown, for a page in a folder of the repository."""
    words: dict[Place, dict[str, None]] = {}  # each once, in order
    for box in boxes(drawing):
        words.setdefault(box.place, {})[box.words] = None
    rows = ["| in the drawing | in the module | built in |", "|---|---|---|"]
    for place, names in words.items():
        link = f"[{place.chapter[:2]}, {place.heading}]({place.link(folder)})"
        rows.append(f"| {'; '.join(names)} | `{place.name.removeprefix('annotated.')}` | {link} |")
    return "\n".join(rows)


def main() -> None:
    """Write all files; print the links of the large drawings, and what shows the small ones, for a notebook."""
    for name, lay_out in DRAWINGS.items():
        drawing = lay_out()
        (ROOT / ASSETS / f"{name}.svg").write_text(svg(drawing), encoding="utf-8")
        print(f"{table(drawing, NOTEBOOKS)}\n")
    for chapter in WHERE:
        (ROOT / ASSETS / f"where_{chapter}.svg").write_text(where(chapter), encoding="utf-8")
        print(where_markdown(chapter))


if __name__ == "__main__":
    main()
