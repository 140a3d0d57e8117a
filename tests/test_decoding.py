"""Greedy and beam search against teacher forcing and a search that never stops early, with a beam for all sequences."""

import copy
from concurrent.futures import ThreadPoolExecutor
from types import MethodType

import pytest

from annotated import decoding
from annotated.config import BOS, EOS, PAD
from annotated.decoding import Hypothesis, beam_search, greedy_decode, length_penalty
from annotated.fast import decoding as fast
from annotated.multi_head import record_attention
from annotated.transformer import Transformer
from annotated_workbench.data import pad
from tests.models import assert_same, biased, log_prob, make_doubtful, make_sources, token_log_probs

SEEDS = range(3)


def search(model: Transformer, sources: list[list[int]], method: str, **options) -> list[Hypothesis]:
    searches = {"greedy": greedy_decode, "beam": beam_search, "fast": fast.beam_search}
    return searches[method](model, pad(sources), **options)


@pytest.mark.parametrize(
    ("length", "alpha", "penalty"),
    [(1, 0.6, 1), (7, 1.0, 2), (19, 0.5, 2), (5, 0.0, 1), (43, 2.0, 64), (5, 0.6, 1.35866)],
)
def test_the_length_penalty_by_hand(length, alpha, penalty):
    assert length_penalty(length, alpha) == pytest.approx(penalty, rel=1e-5)


def test_greedy_takes_the_most_probable_token_at_each_step():
    model, sources = make_doubtful(1), make_sources(11, 2, 3, 5)
    for source, (ids, _, _) in zip(sources, search(model, sources, "greedy"), strict=True):
        best = token_log_probs(model, source, [ids])[0, :, EOS:].argmax(-1) + EOS
        assert best.tolist() == [*ids, EOS]


@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_padding_and_the_start_symbol_are_never_chosen(method):
    model = biased(make_doubtful(0), {PAD: 30.0, BOS: 20.0})
    found = search(model, make_sources(11, 2, 3, 5), method)
    assert any(h.ids for h in found)
    assert not {PAD, BOS, EOS} & {token for h in found for token in h.ids}


@pytest.mark.parametrize("method", ["greedy", "beam"])
@pytest.mark.parametrize("use_cache", [True, False])
def test_a_translation_is_at_most_so_much_longer_than_its_source(method, use_cache):
    model, sources = biased(make_doubtful(0), {EOS: -60.0}), make_sources(11, 2, 3, 7)
    found = search(model, sources, method, max_extra=5, use_cache=use_cache)
    assert [len(h.ids) for h in found] == [7, 8, 12]
    for source, (ids, log_probability, score) in zip(sources, found, strict=True):
        assert log_probability == pytest.approx(log_prob(model, source, ids), abs=1e-4)
        assert score == pytest.approx(log_probability / (length_penalty(len(ids), 0.6) if method == "beam" else 1))
    most = search(model, make_sources(11, 2, 11), method, use_cache=use_cache)
    assert [len(h.ids) for h in most] == [52, 59]  # fifty more, and max_length is 59


def patient_search(model: Transformer, source: list[int], beam: int, alpha: float, limit: int) -> list[Hypothesis]:
    """Search with a beam, one sentence at a time, without a cache, and never stop before the limit."""
    alive, ended = [([], 0.0)], []
    for length in range(1, limit + 1):
        continuations = []
        steps = token_log_probs(model, source, [ids for ids, _ in alive])[:, -1].tolist()
        for (ids, total), row in zip(alive, steps, strict=True):
            for token, step in enumerate(row):
                if token not in (PAD, BOS):
                    continuations.append(([*ids, token], total + step))
        continuations.sort(key=lambda pair: -pair[1])
        penalty = ((5 + length) / 6) ** alpha
        ended += [Hypothesis(ids[:-1], total, total / penalty) for ids, total in continuations[:beam] if ids[-1] == EOS]
        alive = [(ids, total) for ids, total in continuations if ids[-1] != EOS][:beam]
    ids, total = alive[0]
    return sorted(ended, key=lambda h: -h.score) or [Hypothesis(ids, total, total / penalty)]


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_beam_4_finds_the_optimum_of_all_sequences(alpha):
    lengths, greedy_misses = set(), 0
    for seed in range(4):
        model, sources = make_doubtful(seed, vocab=8, longest=3), make_sources(8, 2, 3)
        found = search(model, sources, "beam", alpha=alpha, max_extra=2)
        expected = [patient_search(model, source, 10**6, alpha, len(source) + 2)[0] for source in sources]
        assert_same(found, expected)  # no beginning was dropped
        lengths |= {len(h.ids) for h in found}
        greedy = search(model, sources, "greedy", max_extra=2)
        greedy_misses += sum(a.ids != b.ids for a, b in zip(greedy, expected, strict=True))
    assert len(lengths) > 2 and greedy_misses > 0


@pytest.mark.parametrize(("beam", "alpha"), [(1, 0.0), (2, 0.6), (5, 0.0), (5, 2.0)])
@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_stopping_early_loses_nothing(alpha, beam, use_cache, seed):
    model, sources = make_doubtful(seed), make_sources(11, 2, 5)
    expected = [patient_search(model, source, beam, alpha, len(source) + 5) for source in sources]
    found = search(model, sources, "beam", beam=beam, alpha=alpha, max_extra=5, use_cache=use_cache)
    assert_same(found, [best for best, *_ in expected])
    for room in (decoding, fast):
        for found, others in zip(room.n_best(model, pad(sources), beam, alpha, min(beam, 2), 5), expected, strict=True):
            assert_same(found, others[: min(beam, 2)])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("method", ["greedy", "beam"])
def test_a_translation_does_not_depend_on_its_batch(method, seed):
    model, sources = make_doubtful(seed), make_sources(11, 5, 2, 7, 3, 2)
    alone = [search(model, [source], method)[0] for source in sources]
    assert_same(search(model, sources[::-1], method), alone[::-1])
    assert_same(search(model, [*make_sources(11, 13), *sources], method)[1:], alone)  # with more padding


@pytest.mark.parametrize("method", ["greedy", "beam", "fast"])
@pytest.mark.parametrize("training", [True, False])
def test_decoding_switches_dropout_off_and_no_model_s_mode_whoever_else_uses_it(method, training):
    model, sources = copy.deepcopy(make_doubtful(0)), make_sources(11, 2, 5)
    expected, modes = search(model, sources, method), []
    model.train(training)
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(lambda _: search(model, sources, method), range(12)):
            assert_same(found, expected)
            modes += [module.training for module in model.modules()]  # while others search
    assert {*modes} == {training}


@pytest.mark.filterwarnings("ignore:.torch.jit")  # what torch.compile imports
def test_a_compiled_part_and_a_method_of_its_own_are_in_eval_mode_too():
    model, sources = copy.deepcopy(make_doubtful(0)).train(), make_sources(11, 2, 5)
    model.encoder.layers[1].compile(backend="eager")
    layer = model.decoder.layers[0]
    layer.forward = MethodType(type(layer).forward, layer)
    with record_attention(model) as recorded:
        assert_same(search(model, sources, "beam"), search(make_doubtful(0), sources, "beam"))
    assert all(recorded.values())  # hooks and recorders are the model's own
