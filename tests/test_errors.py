"""What cannot be meant is an error that says what was given and what would do: a table of messages and calls."""

import math
import re
from collections.abc import Callable
from functools import partial

import jaxtyping
import pytest
import torch
from torch import Tensor, nn

from annotated.attention import attention
from annotated.config import TransformerConfig
from annotated.decoding import beam_search
from annotated.encoder import FeedForward
from annotated.fast import decoding as fast_decoding
from annotated.fast import training as fast_training
from annotated.fast.accelerate import accelerate
from annotated.fast.transformer import FastTransformer
from annotated.masking import causal_mask, check_mask, combine
from annotated.models import bert, classifier, gpt, language_model, long_attention, recurrence
from annotated.models import relative_positions as relative
from annotated.models.long_attention import BigBirdAttention, CompressedAttention, LinformerAttention
from annotated.models.modern import GroupedQueryAttention
from annotated.multi_head import MultiHeadAttention
from annotated.positional_encoding import LearnedEncoding, SinusoidalEncoding
from annotated.training import label_smoothed_loss, make_optimizer, noam_rate, set_rate
from annotated.transformer import Transformer
from annotated_course.drawings import Node, plot_tree
from annotated_course.grids import Grid
from annotated_course.play import play_html
from annotated_course.plotting import plot_attention
from annotated_workbench.data import make_batches
from annotated_workbench.ensemble import Ensemble
from annotated_workbench.training_options import TrainingOptions
from annotated_workbench.vocabulary import SPECIALS, Vocabulary

SIZES = ("vocab_size", "d_model", "d_ff", "heads", "layers", "d_k", "d_v", "max_length")
SEARCHES = (beam_search, fast_decoding.beam_search)
IDS = torch.tensor([[4, 5], [2, 0]])
X = torch.randn(2, 7, 12)
NO_RATES = [(0, 16, 4), (1, 0, 4), (1, 16, -1)]
BIGBIRD = BigBirdAttention(12, 2, block=2)


def ones(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.bool)


def transformer(**changes) -> Transformer:
    return Transformer(TransformerConfig(**(dict(vocab_size=11, d_model=14, d_ff=9, heads=2, max_length=17) | changes)))


def writer() -> nn.Module:
    return language_model.LanguageModel(language_model.LanguageModelConfig(19, d_model=6, heads=2, layers=1))


def attend(module: nn.Module, mask: Tensor | None = None, distances: Tensor | None = None) -> Tensor:
    """Attend from X to X; in a tree if there are distances."""
    if distances is None:
        return module(X, X, X, mask)
    with relative.given_distances(module, distances):
        return module(X, X, X, mask)


def loss(**changes) -> Tensor:
    arguments = dict(logits=torch.zeros(2, 3, 5), target=torch.ones(2, 3, dtype=torch.long))
    return label_smoothed_loss(**(arguments | changes))


def update(model: nn.Module, batches: int = 1, smoothing: float = 0.1) -> float:
    return fast_training.update(model, [(IDS, IDS)] * batches, make_optimizer(model), smoothing)


sample = partial(language_model.sampling_probabilities, X)
rate_of_one = partial(set_rate, make_optimizer(nn.Linear(1, 1)))

VALUE_ERRORS: list[tuple[str, Callable[[], object]]] = [
    # Masks; in (2, 7, 7) nobody can tell texts from heads.
    ("a mask of shape (1, 2, 7, 7) does not fit scores of", lambda: attention(X, X, X, ones(1, 2, 7, 7))),
    ("a mask of shape (2, 7, 7) does not", lambda: attend(MultiHeadAttention(12, 2), ones(2, 7, 7))),
    ("a source mask of shape (2, 2) has 2 axes, not 4: give", lambda: transformer().encode(IDS, IDS != 0)),
    ("(2, 1, 2) has 3 axes", lambda: transformer().decode(IDS, torch.randn(2, 2, 14), (IDS != 0)[:, None])),
    ("(2, 2) has 2 axes", lambda: FastTransformer(transformer()).encode(IDS, IDS != 0)),
    *(("tells queries or heads apart", partial(attend, BIGBIRD, m)) for m in (causal_mask(7), ones(2, 2, 1, 7))),
    ("does not fit 7 keys", lambda: long_attention.key_mask(ones(1, 6), 7)),
    # Sizes
    *((f"{name}=0 must be at least 1", partial(transformer, **{name: 0})) for name in SIZES),
    ("d_v=-3 must be at least 1", lambda: transformer(d_v=-3)),
    ("positions='rotary' is unknown: choose from sinusoidal, learned", lambda: transformer(positions="rotary")),
    ("activation='tanh' is unknown: choose from relu, gelu, silu", lambda: transformer(activation="tanh")),
    ("unknown activation 'tanh': choose from relu, gelu, silu", lambda: FeedForward(5, 7, "tanh")),
    ("dropout p=1.0 must be at least 0 and below 1", lambda: transformer(dropout=1.0)),
    ("d_model=7 is odd, but each sine needs its cosine: use 6 or 8", lambda: SinusoidalEncoding(7, 11)),
    ("d_model=14 does not divide into 3 heads: change one, or give d_k and d_v", lambda: transformer(heads=3)),
    *(("d_model=11 does not divide into 2", partial(MultiHeadAttention, 11, 2, **{d: 3})) for d in ("d_k", "d_v")),
    *((f"6 heads do not divide into {n} groups", partial(GroupedQueryAttention, 12, 6, n)) for n in (0, 4, 12)),
    ("d_k=3 is odd", lambda: relative.RotaryAttention(9, 3)),
    ("k=-1 must be at least 0", lambda: relative.RelativeAttention(12, 2, k=-1)),
    ("k=0 must be at least 1", lambda: LinformerAttention(12, 2, length=5, k=0)),
    ("stride=0 must be at least 1", lambda: CompressedAttention(12, 2, stride=0)),
    ("give at least one block, an odd window", lambda: BigBirdAttention(12, 2, window=2)),
    ("something to look at", lambda: long_attention.block_pattern(4, window=0, first=0)),
    ("block=0 must be at least 1", lambda: BigBirdAttention(12, 2, block=0)),
    ("block=0 must be at least 1", lambda: long_attention.attention_in_blocks(X, X, X, block=0)),
    ("segments=0 must be at least 1", lambda: bert.BertConfig(segments=0)),
    ("unknown size 'huge' of BERT: choose from base, large", lambda: bert.BertConfig.published("huge")),
    ("unknown size 'huge' of GPT-2: choose from small, medium", lambda: gpt.GptConfig.published("huge")),
    ("classes=1 must be at least 2", lambda: classifier.ClassifierConfig(19, classes=1)),
    ("layers=0 must be at least 1", lambda: recurrence.RecurrentConfig(19, layers=0)),
    # Lengths and places
    ("position 11 is asked for, but there are encodings for 11", lambda: SinusoidalEncoding(6, 11)(X[:1, :3, :6], 9)),
    ("position 11 is asked for, but there are encodings for 11", lambda: LearnedEncoding(6, 11)(X[:1, :1, :6], 11)),
    ("start=-1 must be at least 0, the first position", lambda: LearnedEncoding(6, 11)(X[..., :6], -1)),
    ("position 17 is asked for", lambda: FastTransformer(transformer()).states(torch.ones(1, 18).long(), IDS[:1])),
    ("position 17 is asked for", lambda: FastTransformer(transformer()).states(IDS[:1], torch.ones(1, 18).long())),
    ("3 queries are not the last of 2 keys", lambda: relative.signed_distances(3, 2)),
    ("rows of width 3 cannot be turned", lambda: relative.rotate(torch.zeros(2, 3))),
    ("go round in a circle", lambda: relative.tree_distances(torch.tensor([[1, 2, 0]]))),
    ("parents are places, 0 … 2; got 0 … 3", lambda: relative.tree_distances(torch.tensor([[0, 3, 1]]))),
    ("Linear contains no RelativeAttention", lambda: attend(nn.Linear(1, 1), None, torch.zeros(1, 7, 7))),
    ("distances of shape (1, 5, 5)", lambda: attend(relative.RelativeAttention(12, 2), None, torch.zeros(1, 5, 5))),
    ("7 keys are more than length=6", lambda: attend(LinformerAttention(12, 2, length=6, k=2))),
    ("7 queries and 6 keys do not divide", lambda: BIGBIRD(X, X[:, :6], X[:, :6])),
    ("2 keys do not fill a group of stride=3", lambda: CompressedAttention(12, 2)(X, X[:, :2], X[:, :2])),
    # Training
    *((f"step={s}, d_model={d} and warmup={w} must be at", partial(noam_rate, s, d, w)) for s, d, w in NO_RATES),
    *((f"smoothing={p} must be at least 0 and below 1", partial(loss, smoothing=p)) for p in (-0.1, 1.0, math.nan)),
    ("smoothing=1.5 must be at least 0 and below 1", lambda: update(transformer(), smoothing=1.5)),
    ('reduction=\'none\' is unknown: choose "mean" or "sum"', lambda: loss(reduction="none")),
    ("pad_id=5 must lie in the vocabulary, 0 … 4, or be None", lambda: loss(pad_id=5)),
    ("targets of shape (1, 3) do not fit logits of shape (2, 3, 5)", lambda: loss(target=torch.ones(1, 3))),
    *((f"rate={r} must be finite and at least 0", partial(rate_of_one, r)) for r in (-0.1, math.nan, math.inf)),
    ("an update needs at least one batch", lambda: update(transformer(), batches=0)),
    ("need as many sources as targets, at least one; got 2 and 1", lambda: make_batches([[4], [5]], [[4]], 7)),
    ("need as many sources as targets, at least one; got 0 and 0", lambda: make_batches([], [], 7)),
    ("schedule='cosine' is unknown: choose from noam, linear", lambda: TrainingOptions(schedule="cosine")),
    ("share=1.1 must be between 0 and 1", lambda: bert.hide_for_prediction(IDS, 18, (4, 18), share=1.1)),
    *((f"ids must lie in 0 … 3; got {i}.", partial(Vocabulary(SPECIALS).decode, [0, i])) for i in (-1, 4)),
    ("a vocabulary starts with", lambda: Vocabulary(["ein", *SPECIALS])),
    ("'Hund' is there more often", lambda: Vocabulary([*SPECIALS, "ein", "Hund", "Hund"])),
    # Searching and drawing
    *((f"beam={n} must lie in 1 … 5", partial(s, transformer(), IDS, n)) for s in SEARCHES for n in (0, 6)),
    *((f"alpha={a} must lie in 0", partial(s, transformer(), IDS, 4, a)) for s in SEARCHES for a in (-0.1, math.nan)),
    *(("max_extra=-1 must not be", partial(s, transformer(), IDS, max_extra=-1)) for s in SEARCHES),
    ("temperature=-1.0 must be 0, or lie in 1e-30 … 1e+30", lambda: sample(temperature=-1.0)),
    *((f"temperature={t} must be 0", partial(sample, temperature=t)) for t in (1e-40, math.nan)),
    ("top_k=0 must be at least 1", lambda: sample(top_k=0)),
    ("top_p=0.0 must lie in 1.18e-38 … 1", lambda: sample(top_p=0.0)),
    ("top_p=1.5 must lie in", lambda: sample(top_p=1.5)),
    ("the text to go on from has no tokens", lambda: language_model.generate(writer(), IDS[:, :0], 3)),
    ("count=-1 must be at least 0", lambda: language_model.generate(writer(), IDS, -1)),
    # Figures
    ("got shape (1, 2, 3). Take one", lambda: plot_attention(torch.zeros(1, 2, 3), list("ab"), list("abc"))),
    ("need 2 query labels (rows) and 3 key", lambda: plot_attention(torch.zeros(2, 3), list("abc"), list("ab"))),
    ("'w', 2 × 2, needs 2 rows; got 1", lambda: Grid(torch.zeros(2, 2), "w", rows=["a"])),
    ("needs 3 colours; got 2", lambda: Grid(torch.zeros(2, 3), "w", colour_by="columns", colours=[0, 1])),
    ("node 1 ('a') must stand after its parent; got parent 2", lambda: plot_tree([Node("<bos>"), Node("a", "", 2)])),
    ("no picture 'wheel'; there are ", lambda: play_html("wheel", {}, "w")),
    ("Out of range float values", lambda: play_html("query", {"x": math.nan}, "w")),
]
TYPE_ERRORS: list[tuple[str, Callable[[], object]]] = [
    ("got torch.float32. Convert a mask of 1 and 0 with mask.bool()", lambda: attention(X, X, X, torch.zeros(7, 7))),
    ("mask must be boolean, True = may attend; got torch.int64", lambda: check_mask(ones(5, 7).long(), (2, 3, 5, 7))),
    ("mask must be boolean", lambda: combine(torch.zeros(3, 3), causal_mask(3))),
    ("mask must be boolean", lambda: FastTransformer(transformer()).encode(IDS, torch.ones(2, 1, 1, 2))),
    ("a FastTransformer is for use: train the model", lambda: update(accelerate(transformer()))),
    ("a Ensemble is for use: train the model, or the models", lambda: update(Ensemble([transformer()]))),
    ("a LanguageModel does not translate", lambda: fast_decoding.greedy_decode(writer(), IDS)),
]


@pytest.mark.parametrize(
    ("kind", "message", "call"),
    [(kind, *row) for kind, rows in ((ValueError, VALUE_ERRORS), (TypeError, TYPE_ERRORS)) for row in rows],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_an_error_says_what_is_wrong(kind: type, message: str, call: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    # Users run without the shape checks of these tests, which would complain first.
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(kind, match=re.escape(message)):
        call()
