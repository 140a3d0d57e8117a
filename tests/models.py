"""Small models, and what training and searching must do with them: for the tests of the plain and the fast ones."""

import copy
import functools
from collections.abc import Sequence

import pytest
import torch

from annotated.config import BOS, EOS, UNK, TransformerConfig
from annotated.decoding import Hypothesis
from annotated.training import make_optimizer, train_step
from annotated.transformer import Transformer
from annotated_workbench.data import Batch, pad
from annotated_workbench.vocabulary import SPECIALS

VOCAB = 13
SIZES = dict(d_model=8, heads=2, d_k=3, d_v=5, d_ff=11, layers=2, max_length=17)


def make_model(**changes) -> Transformer:
    return Transformer(TransformerConfig(VOCAB, **(SIZES | dict(dropout=0.0) | changes)))


def make_batch(*lengths: tuple[int, int]) -> Batch:
    """Make random sentences with these numbers of source and target words."""

    def words(count: int) -> list[int]:
        return torch.randint(len(SPECIALS), VOCAB, (count,)).tolist()

    return Batch(pad([[*words(n), EOS] for n, _ in lengths]), pad([[BOS, *words(m), EOS] for _, m in lengths]))


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def assert_same_update(model: torch.nn.Module, other: torch.nn.Module, atol: float = 1e-6) -> None:
    for tensors in (gradients, lambda m: dict(m.named_parameters())):
        torch.testing.assert_close(tensors(model), tensors(other), rtol=0, atol=atol)


@functools.cache
def make_doubtful(seed: int, vocab: int = 11, longest: int = 7) -> Transformer:
    """Make a Transformer whose answers depend on the source, and that has doubts."""
    sizes = dict(d_model=14, heads=2, d_k=3, d_v=5, d_ff=31, layers=2, max_length=59, dropout=0.5)
    with torch.random.fork_rng(devices=[]):  # so that a test draws the same sources whether the model is new or not
        torch.manual_seed(seed)
        return with_doubts(Transformer(TransformerConfig(vocab, **sizes)), longest)


def with_doubts(model: torch.nn.Module, longest: int = 7) -> torch.nn.Module:
    """Train a model for a moment on random pairs.

    A model with random weights repeats one token for ever, and searches have nothing to disagree on.
    """
    vocab, model = model.config.vocab_size, model.eval()
    src = pad([[*random_ids(vocab, 1 + i % 6), EOS] for i in range(20)])
    tgt = pad([[BOS, *random_ids(vocab, i % (longest + 1)), EOS] for i in range(20)])
    optimizer = make_optimizer(model, 0.01)
    for _ in range(60):
        train_step(model, src, tgt, optimizer)
    return model


def biased(model: Transformer, extra: dict[int, float]) -> Transformer:
    """Copy a model and add to the logits of some tokens."""
    model = copy.deepcopy(model)
    bias = torch.zeros(model.config.vocab_size)
    bias[list(extra)] = torch.tensor(list(extra.values()))
    model.output.bias = torch.nn.Parameter(bias)
    return model


def random_ids(vocab: int, count: int) -> list[int]:
    return torch.randint(UNK, vocab, (count,)).tolist()


def make_sources(vocab: int, *lengths: int) -> list[list[int]]:
    return [[*random_ids(vocab, n - 1), EOS] for n in lengths]


def token_log_probs(model: torch.nn.Module, source: list[int], rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """Score every next token after each beginning of each row (all of one length) by teacher forcing."""
    with torch.no_grad():
        src = torch.tensor([source]).expand(len(rows), -1)
        return model(src, torch.tensor([[BOS, *row] for row in rows])).log_softmax(-1)


def log_prob(model: torch.nn.Module, source: list[int], ids: list[int]) -> float:
    """Sum the log-probabilities of `ids` given the source by teacher forcing."""
    return token_log_probs(model, source, [ids[:-1]])[0, range(len(ids)), ids].sum().item()


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [h.ids for h in found] == [h.ids for h in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours[1:] == pytest.approx(theirs[1:], abs=1e-4)
