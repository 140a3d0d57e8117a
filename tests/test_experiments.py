"""Each command, at a tiny size, writes a file of the form of the recorded one, and measures what its lesson says."""

import importlib
import json
import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from once import once
from torch import Tensor, nn

from annotated.config import EOS, TransformerConfig
from annotated.models.llama import Llama, LlamaConfig
from annotated.multi_head import record_attention
from annotated.training import make_optimizer, train_step
from annotated.transformer import Transformer
from annotated_course.chapters.c22_scale.exercises import prefix_matching
from annotated_course.stories import ACTORS, THINGS, WORDS, decode
from annotated_workbench import tasks
from annotated_workbench.checkpoint import load_checkpoint
from annotated_workbench.data import DATA_FOLDER, Pairs, load_corpus
from annotated_workbench.translation import translate
from experiments import induction, needle, reversing, scaling, schedules, stories, table3, todays_model, tuning, warm_up
from experiments.contestants import batch
from experiments.counting import packed_size
from experiments.paper_code_today import make_model, sizes, update
from experiments.paper_run import weights_and_operations
from experiments.results import names_of_lesson
from experiments.sampling import measure, words_in
from experiments.staircase import RUNGS
from experiments.switches import PAPER, PEAK, PLACES, SWITCHES, WARM_UP, at_once, cosine, paper_rate, twice
from tests.runs import PAIRS

pytestmark = once

PLACE, LLAMA = "first, warm-up", todays_model.LLAMA
TEXT = {"load_text": lambda name: "to be or not to be\n" * 100}
COMMANDS: dict[str, dict[str, Any]] = {
    "counting": TEXT,
    "induction": {"STEPS": 2, "EVERY": 2, "FRAMES": 1, "BETWEEN": 2},
    "paper_code_today": {"SWITCHES": {PAPER: SWITCHES[PAPER]}, "PLACES": {PLACE: PLACES[PLACE]}, "UPDATES": (120,)}
    | {"TURNS": 1, "train": lambda *arguments: 3.0},
    "riddle": {
        "TRAINING": "train --corpus grammar --preset tiny --layers 1 --vocab-size 300 --max-minutes 0.001",
        "CORPORA": {"grammar": "grammar", "photographs": "grammar"},
        "load_corpus": lambda *names: Pairs(*(side[:200] for side in load_corpus(*names))),
        "translate": partial(translate, max_extra=1),
    },
    "reversing": {"WIDTHS": (16,), "UPDATES": (2,), "TESTED": 4},
    "sampling": TEXT | {"TEXTS": 10, "COUNT": 40, "WORDS": 4, "WAYS": {"k = 2": {"top_k": 2}}},
    "scaling": TEXT | {"SIZES": dict.fromkeys((16, 32, 48, 64), 1), "AMOUNTS": (0.002,)},
    "schedules": {"UPDATES": 10, "SCHEDULES": {"a tenth of the peak": schedules.SCHEDULES["a tenth of the peak"]}},
    "stories": dict.fromkeys(("UPDATES", "EVERY", "BATCH"), 2)
    | {"ASKED": 1, "save_checkpoint": lambda *arguments: None},
    "todays_model": TEXT | {"UPDATES": 2, "SETTINGS": {"Llama": todays_model.SETTINGS["Llama"]}},
    "tuning": {
        "names_of_lesson": lambda *lesson: names_of_lesson(*lesson) | {"base": small_llama()},
        "CASES": {
            name: tuning.CASES[name] | {"updates": 2} for name in ("300 examples", "LoRA, rank 2", tuning.DELIVERED)
        },
    }
    | {"RULES": ("short",), "BETAS": (0.5,), "BITS": (4,), "ASKED": 8, "save_checkpoint": lambda *arguments: None},
    "warm_up": {"CASES": {"two layers, no warm-up": warm_up.CASES["two layers, no warm-up"]}},
}
SMALL = TransformerConfig(31, d_model=64, d_ff=128, heads=4, layers=2, max_length=128)
SMALL_PAIRS = batch(SMALL, 8, 7)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_writes_what_its_lesson_reads(name: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, file = importlib.import_module(f"experiments.{name}"), tmp_path / f"{name}.json"
    for constant, value in COMMANDS[name].items():
        monkeypatch.setattr(module, constant, value)
    monkeypatch.setattr(torch, "set_default_dtype", lambda dtype: None)  # which would stay for other tests
    monkeypatch.setattr(tasks, "translate", lambda model, tokenizer, texts, *_, **how: texts)  # no search to validate
    seeds = [] if name in ("counting", "sampling", "stories") else ["--seeds", "1"]
    monkeypatch.setattr("sys.argv", [name, str(file), *seeds])
    module.main()
    written = json.loads(file.read_text(encoding="utf-8"))
    compare(written, json.loads((DATA_FOLDER / "results" / file.name).read_text(encoding="utf-8")))


def compare(written: Any, recorded: Any) -> None:
    """Demand the same keys, or in a table by names some of its rows; and numbers where there are numbers."""
    if isinstance(recorded, dict):
        assert written and written.keys() <= recorded.keys()
        assert written.keys() == recorded.keys() or len({type(value) for value in recorded.values()}) == 1
        for key in written:
            compare(written[key], recorded[key])
    elif isinstance(recorded, list) and recorded:
        compare(written[0], recorded[0])
    else:
        assert isinstance(written, int | float) == isinstance(recorded, int | float)


def test_the_fit_finds_the_curve_that_the_losses_lie_on() -> None:
    sizes = [25e3, 80e3, 180e3, 510e3]
    assert scaling.fit(sizes, [1.4 + 40 * n**-0.45 for n in sizes]) == pytest.approx((1.4, 40, 0.45), rel=1e-3)
    told = scaling.foretell(sizes, [[1.4 + 40 * n**-0.45] * 2 for n in sizes], 3e6)
    assert told["curve"] == pytest.approx(1.4 + 40 * 3e6**-0.45, abs=1e-4) and told["straight line"] < told["curve"]
    assert scaling.LESSON["straight_line"](sizes, [9 * n**-0.1 for n in sizes], 3e6) == pytest.approx(9 * 3e6**-0.1)


def test_the_largest_is_foretold_before_it_is_trained_and_a_stopped_command_goes_on(tmp_path, monkeypatch) -> None:
    def stopped(model: nn.Module, *arguments: Any) -> list[float]:
        if model.config.d_model == 64:
            raise KeyboardInterrupt
        return [3.0]

    for constant, value in COMMANDS["scaling"].items():
        monkeypatch.setattr(scaling, constant, value)
    monkeypatch.setattr(scaling, "train", stopped)
    monkeypatch.setattr("sys.argv", ["scaling", str(tmp_path / "scaling.json")])
    with pytest.raises(KeyboardInterrupt):
        scaling.main()
    before = json.loads((tmp_path / "scaling.json").read_text(encoding="utf-8"))
    assert [run["width"] for run in before["runs"]] == [16, 32, 48] * 2 and len(before["predictions"]) == 1
    monkeypatch.setattr(scaling, "train", lambda *arguments: [3.0])
    scaling.main()
    after = json.loads((tmp_path / "scaling.json").read_text(encoding="utf-8"))
    assert after["runs"][:-1] == before["runs"] and after["predictions"] == before["predictions"]


def test_each_text_has_one_needle_with_the_value_that_is_asked_for() -> None:
    ids, values = needle.make_texts(50, torch.Generator().manual_seed(0))
    needles = ids >= needle.NOISE
    assert ids.shape == (50, needle.LENGTH) and ids.min() == 0
    assert torch.equal(needles.sum(dim=1), torch.ones(50, dtype=torch.long))
    assert torch.equal(ids[needles] - needle.NOISE, values) and set(values.tolist()) == set(range(needle.VALUES))


def test_reach_is_what_two_layers_can_know() -> None:
    assert needle.reach(needle.PATTERNS["window 1"])[1].double().mean() == 4 / needle.LENGTH  # its own block
    density, known = needle.reach(needle.PATTERNS["first block"])
    assert known.all() and density == (needle.LENGTH + 15 * 4) * 4 / needle.LENGTH**2
    assert needle.reach(None)[0] == 1


def test_beyond_its_reach_a_model_is_right_one_time_in_four() -> None:
    choices = needle.PATTERNS["window 3"]
    _, known = needle.reach(choices)
    model = needle.train(choices, seed=0, updates=2, batch=2)
    by_pair = needle.answers(model).double().mean(dim=1)  # (place, position)
    assert torch.equal(by_pair[~known.T], torch.full_like(by_pair[~known.T], 0.25))


def test_a_string_counts_only_if_every_letter_is_right() -> None:
    def share(write: Callable[[Tensor], Tensor], length: int) -> float:
        return reversing.share_right(lambda strings: nn.functional.one_hot(write(strings), reversing.LETTERS), length)

    assert share(lambda strings: strings.flip(1), 5) == 1
    last_wrong = torch.tensor([0, 0, 0, 0, 1])
    assert share(lambda strings: (strings.flip(1) + last_wrong) % reversing.LETTERS, 5) == 0
    assert 0 < share(lambda strings: strings, 2) < 0.3  # only a letter twice


def test_a_model_that_reads_its_own_letters_writes_as_many_strings() -> None:
    model, length = reversing.train(True, 16, 50, seed=0).requires_grad_(False), 2
    draw = torch.Generator().manual_seed(length)
    strings = torch.randint(reversing.LETTERS, (reversing.TESTED, length), generator=draw)
    states, memory = model.encoder(model.letter(strings))
    letters = [torch.full((reversing.TESTED,), reversing.START)]
    for _ in range(length):
        found, memory = model.decoder(model.letter(letters[-1])[:, None], memory)
        context = (found @ states.mT).softmax(dim=-1) @ states
        letters.append(model.output(torch.cat([context, found], dim=-1))[:, 0].argmax(dim=-1))
    right = (torch.stack(letters[1:], dim=1) == strings.flip(1)).all(dim=1).double().mean()
    assert 0.05 < right == reversing.share_right(model, length)


def test_the_score_by_periods_is_that_by_symbols_alone_and_heads_switched_off_add_nothing() -> None:
    lesson, dice = names_of_lesson(*induction.LESSON), torch.Generator().manual_seed(0)
    model = lesson["AttentionOnly"]().requires_grad_(False)
    ids, periods = lesson["draw_texts"](20, dice)
    _, one_back, prefix = lesson["look"](model, ids, periods)
    with record_attention(model) as recorded:
        model(ids)
    for layer, (maps,) in enumerate(recorded.values()):
        for head in range(2):
            torch.testing.assert_close(prefix[layer, head], prefix_matching(maps[:, head], ids))
            back = torch.stack([maps[:, head, place, place - 1] for place in range(1, maps.size(-1))])
            torch.testing.assert_close(one_back[layer, head], back.mean())
    silent = lesson["without"](lesson["without"](model, 0, 0, 1), 1, 1, 0)
    torch.testing.assert_close(silent(ids), model.last_norm(model.embedding(ids)) @ model.embedding.weight.T)
    assert not torch.allclose(silent(ids), lesson["without"](model, 1, 0, 1)(ids))
    assert torch.equal(lesson["through_lens"](model, lesson["stops_of"](model, ids))[-1], model(ids).argmax(dim=-1))
    untrained = lesson["share_read"](model)  # (lens or translator, stop, the symbol here, before, next)
    assert untrained[1, 0, 0] > 0.99 and untrained[:, 0, 1:].max() < 0.1
    assert induction.digits(torch.tensor([[1.0, 0], [0.3, 0.7]])) == "936"


def test_the_recorded_rungs_are_those_of_the_command() -> None:
    recorded = json.loads((DATA_FOLDER / "results" / "staircase.json").read_text(encoding="utf-8"))
    assert list(recorded["rungs"]) == list(RUNGS)
    assert recorded["command"].startswith("python -m experiments.staircase --turns")


def test_each_rung_of_our_own_makes_an_update() -> None:
    for name in ("the plain form", "the loss in chunks", "dropout, sum and norm", "annotated.fast"):
        step = RUNGS[name](2)
        weight = step.args[0].output.weight
        before = weight.detach().clone()
        step()
        assert not torch.equal(weight, before), name


def test_the_first_step_measures_the_model_before_training() -> None:
    (first,) = warm_up.train(0, warm_up.CASES["warm-up"], steps=1)
    torch.testing.assert_close(first, warm_up.train(0, warm_up.CASES["no warm-up"], steps=1)[0])
    assert 2 < first[0] < 4 and (first[1:] > 0.1).all()
    assert warm_up.difference(torch.tensor([[3.0, 4], [3, -4]])) == pytest.approx(0.8)


def test_smaller_weights_or_no_common_part_keep_the_positions_apart() -> None:
    names = ("no warm-up", "no warm-up, PyTorch's own weights", "no warm-up, common part taken out")
    collapsed, smaller, taken_out = (warm_up.train(0, warm_up.CASES[name], steps=11)[-1, 1] for name in names)
    assert smaller > 10 * collapsed and taken_out > 50 * collapsed


@pytest.mark.parametrize("name", [name for name in todays_model.SETTINGS if name != todays_model.PAPER])
def test_each_part_of_today_changes_the_decoder_or_the_llama(name: str) -> None:
    def logits(name: str) -> Tensor:
        torch.manual_seed(0)
        model = todays_model.make_model(todays_model.SETTINGS[name], 9).double()
        for weight in model.parameters():
            torch.nn.init.normal_(weight, std=0.3)
        return model(torch.arange(4, 9)[None])

    assert not torch.allclose(logits(name), logits(LLAMA if LLAMA in name[:-1] else todays_model.PAPER), atol=1e-3)


def test_all_parts_of_today_make_a_llama() -> None:
    sizes = todays_model.SIZES | {"d_ff": 128}
    theirs = Llama(LlamaConfig(9, **sizes, groups=2, eps=1e-6))
    ours = todays_model.make_model(todays_model.SETTINGS[LLAMA], 9)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    theirs.load_state_dict(ours.state_dict())
    ids = torch.arange(4, 9)[None]
    torch.testing.assert_close(theirs(ids), ours(ids))


def test_bz2_learns_from_what_lies_more_than_a_tenth_of_a_million_back() -> None:
    dice = random.Random(0)
    words, others = (["".join(dice.choices("abcdefghijklmnop", k=9)) for _ in range(500)] for _ in range(2))
    before = "".join(dice.choices(words, k=70_000) + dice.choices(others, k=40_000))  # nearly a million letters
    new = "".join(dice.choices(words, k=1_000))
    assert packed_size("bz2", before, new) < 0.6 * packed_size("bz2", "", new)


def test_words_are_small_keep_their_apostrophe_and_are_counted_by_hand() -> None:
    assert words_in("KING:\nI'll go; 'tis the King's.") == ["king", "i'll", "go", "tis", "the", "king's"]
    texts = ["to be or nott to b", "be be to o"]  # the last word of each may be cut off
    assert measure(texts, {"to", "be", "or", "not"}, 8) == {"exist": 87.5, "different": 3}


def test_operations_are_counted_by_hand() -> None:
    config = TransformerConfig(6000, d_model=4, d_ff=8, heads=2, layers=3)
    # Multiplications of a position: 4 · 4² onto queries, keys, values and out, 2 · 5 · 4 between positions, thrice a
    # layer; 2 · 4 · 8 in the feed-forward network, twice a layer; three layers; and 4 · 6,000 onto the vocabulary.
    multiplications = 3 * (3 * (4 * 16 + 2 * 5 * 4) + 2 * (2 * 4 * 8)) + 4 * 6000
    weights, operations = weights_and_operations(config, length=5)
    # A product and a sum each, forward, and for both gradients backward.
    assert operations == pytest.approx(6 * multiplications)
    assert weights > 4 * 6000


def test_the_table_follows_from_the_recorded_runs() -> None:
    file = DATA_FOLDER / "results" / "table3.jsonl"
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    recorded = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
    assert recorded["rows"] == table3.summarise(lines)


def test_a_change_and_its_standard_error_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table3, "ROWS", [row for row in table3.ROWS if row.name in ("base", "N = 1 (2)")])
    scores = {"base": [30.0, 31.0, 32.0], "N = 1 (2)": [22.0, 25.0, 27.0, 26.0]}
    lines = [{"row": row, "ppl": 6.0, "bleu": bleu} for row, group in scores.items() for bleu in group]
    _, shallow = table3.summarise(lines)
    assert shallow["bleu_change"] == -6 and shallow["bleu_paper_change"] == pytest.approx(23.7 - 25.8)
    # The squares are 2 and 9 + 0 + 4 + 1 = 14, with 2 and 3 degrees of freedom.
    assert shallow["bleu_error"] == pytest.approx((16 / 5 * (1 / 3 + 1 / 4)) ** 0.5)


def test_a_run_is_trained_and_one_that_has_its_line_is_not_repeated(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table3, "load_corpus", lambda *arguments: PAIRS)
    monkeypatch.setattr(table3, "BASE", TransformerConfig(280, d_model=8, d_ff=16, heads=2, layers=1))
    monkeypatch.setattr(table3, "OPTIONS", replace(table3.OPTIONS, epochs=1))
    results = tmp_path / "table3.jsonl"
    lines = [{"row": row.name, "seed": 0, "ppl": 6.0, "bleu": 30.0} for row in table3.ROWS if row.letter != "E"]
    results.write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr("sys.argv", ["table3", str(results), "--seeds", "1"])
    table3.main()
    *before, line = map(json.loads, results.read_text().splitlines())
    assert before == lines and (line["row"], line["seed"]) == ("learned positions", 0)
    assert 1 < line["ppl"] < 1000 and 0 <= line["bleu"] <= 100 and line["train_loss"] > 0


def test_the_paper_is_the_paper_s_model_and_update() -> None:
    models = []
    for make, step in ((lambda: make_model(SWITCHES[PAPER], 31), update), (lambda: Transformer(SMALL), train_step)):
        torch.manual_seed(0)
        models.append(make().train())
        step(models[-1], *SMALL_PAIRS, make_optimizer(models[-1]), *([SWITCHES[PAPER]] if step is update else []))
    torch.testing.assert_close(*(dict(model.named_parameters()) for model in models))


@pytest.mark.parametrize("name", [name for name in SWITCHES if name != PAPER])
def test_every_switch_changes_the_model_or_its_training(name: str) -> None:
    def logits(name: str) -> torch.Tensor:
        torch.manual_seed(0)
        model = make_model(SWITCHES[name], 31).double().train()
        torch.manual_seed(1)
        return model(*SMALL_PAIRS)

    switch, paper = SWITCHES[name], SWITCHES[PAPER]
    if switch.config == switch.parts == {} and not switch.changes:
        assert switch != paper
    elif name in ("norm after, and one more at the end", "no biases in the feed-forward"):  # the same at the start
        torch.testing.assert_close(logits(name), logits(PAPER), atol=1e-4, rtol=1e-4)
    else:
        assert not torch.allclose(logits(name), logits(PAPER), atol=1e-3)


def test_the_file_has_the_sizes_of_every_switch() -> None:
    recorded = json.loads((DATA_FOLDER / "results" / "paper_code_today.json").read_text(encoding="utf-8"))
    assert recorded["switches"].keys() == SWITCHES.keys() and recorded["places"].keys() == PLACES.keys()
    for name, row in recorded["switches"].items():
        assert sizes(SWITCHES[name], 600).items() <= row.items(), name


def test_clipping_bounds_the_gradient() -> None:
    model = make_model(SWITCHES[PAPER], 31)
    norms = {}
    for name in (PAPER, "gradients clipped at 1"):
        update(model, *SMALL_PAIRS, torch.optim.SGD(model.parameters(), lr=0.0), SWITCHES[name])
        norms[name] = nn.utils.clip_grad_norm_(model.parameters(), math.inf)
    assert norms["gradients clipped at 1"] == pytest.approx(1, rel=1e-3) and norms[PAPER] > 1.1


def test_schedules() -> None:
    assert paper_rate(WARM_UP) == pytest.approx(PEAK) and paper_rate(7) / paper_rate(1) == pytest.approx(7)
    assert at_once(1) == paper_rate(WARM_UP) and at_once(90) == paper_rate(90)
    assert twice(3) / paper_rate(3) == pytest.approx(2 / 2**1.5) and twice(100) / paper_rate(100) == pytest.approx(2)
    for updates in (120, 600):
        assert cosine(updates // 10, updates) == pytest.approx(PEAK) == pytest.approx(10 * cosine(updates, updates))


@pytest.fixture(scope="module")
def lesson() -> dict[str, Any]:
    return names_of_lesson(*tuning.LESSON)


def small_llama() -> Llama:
    torch.manual_seed(0)
    model = Llama(LlamaConfig(len(WORDS), 16, 8, heads=2, layers=2))
    nn.init.normal_(model.embedding.weight)  # so that each token counts
    with torch.no_grad():
        model.output.weight[EOS] *= 3  # some answers end soon
    return model


def test_an_answer_stands_in_the_story_and_what_nobody_said_is_declined(lesson) -> None:
    dice = random.Random(0)
    for prompt, answers in (lesson["ask"](dice, held_out=bool(i % 2)) for i in range(30)):
        text, shorter = decode(prompt), decode(answers[0][:-2])
        assert text.count(".") <= 3 and shorter.lower() in text.lower() and answers[1][-1] == EOS
    for prompt, answers in (lesson["ask"](dice, absent=True, template=False) for _ in range(30)):
        told, asked = decode(prompt).rsplit(". ", 1)
        named = {*asked.rstrip("?").split()} & {*ACTORS, *THINGS}
        assert named and not named & {*told.split()} and answers == [lesson["DECLINED"]] * 2
    for prompt, _ in (lesson["ask"](dice, mixed=True, template=False) for _ in range(30)):
        *told, asked = re.split(r"[.?]", decode(prompt).lower())[:-1]
        (actor,) = {*asked.split()} & {*ACTORS}
        assert [actor in sentence.split() for sentence in told].count(True) == 1 < len(told)
        (place,) = (place for place, sentence in enumerate(told) if actor in sentence.split())
        assert not {*asked.split()} & {*THINGS} & {*told[place].split()}


def test_prompts_of_all_lengths_are_answered_as_each_alone_and_cut_after_the_end(lesson) -> None:
    model, dice, answers_of = small_llama(), random.Random(0), lesson["answers_of"]
    prompts = [lesson["ask"](dice)[0] for _ in range(9)]
    together = answers_of(model, prompts)
    assert together == [answers_of(model, [prompt])[0] for prompt in prompts]
    for prompt, answer in zip(prompts, together, strict=True):
        assert answer == model(torch.tensor([prompt + answer]))[0, len(prompt) - 1 : -1].argmax(dim=-1).tolist()
    drawn = answers_of(model, prompts * 9, torch.Generator().manual_seed(0))
    assert {ids.index(EOS) == len(ids) - 1 for ids in drawn if EOS in ids} == {True}
    assert len({len(ids) for ids in drawn}) > 2


@pytest.mark.parametrize("whole", [False, True])
def test_the_loss_counts_the_answer_and_if_told_the_question(lesson, whole: bool) -> None:
    model, pairs = small_llama(), [([4, 9, 10, 5], [11, EOS]), ([4, 9, 5], [12, 13, 14, 15, EOS])]
    for found, (prompt, answer) in zip(lesson["log_probs"](model, pairs, whole), pairs, strict=True):
        nats = model(torch.tensor([prompt + answer]))[0, :-1].log_softmax(dim=-1)
        each = nats.gather(1, torch.tensor([*prompt, *answer])[1:, None])[:, 0]
        torch.testing.assert_close(found, each[0 if whole else len(prompt) - 1 :].sum())


def test_pairs_are_its_own_best_and_worst_answers_and_preferring_parts_them(lesson) -> None:
    model, dice = small_llama(), random.Random(0)
    better, worse = lesson["own_pairs"](model, lesson["short"], [lesson["ask"](dice) for _ in range(60)])
    assert [prompt for prompt, _ in better] == [prompt for prompt, _ in worse]
    assert all(len(good) < len(bad) for (_, good), (_, bad) in zip(better, worse, strict=True))
    learner = lesson["prefer"](model, better, worse, rate=1e-2, updates=10)
    with torch.no_grad():
        gaps = [lesson["log_probs"](one, better) - lesson["log_probs"](one, worse) for one in (model, learner)]
    assert (gaps[1] > gaps[0]).float().mean() > 0.8
    good = lesson["true_then_short"]
    assert good([[7, 2]], [7, 2]) > good([[7, 2]], [2]) > good([[7, 2]], [8, 2])


def test_an_outlier_with_its_gain_computes_the_same_and_spoils_what_shares_its_scale(lesson) -> None:
    model, ids = small_llama(), torch.tensor([[4, 9, 10, 5]])
    other = lesson["with_outlier"](model)
    torch.testing.assert_close(other(ids), model(ids))
    errors = [
        [(lesson["rounded"](one, 4, share)(ids) - model(ids)).square().mean() for share in ("tensor", "row")]
        for one in (model, other)
    ]
    assert errors[1][0] > 2 * errors[0][0] and errors[1][1] > 4 * errors[0][1]


@pytest.mark.parametrize("kind", stories.KINDS)
def test_the_delivered_model_looks_up_what_it_never_read(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stories, "ASKED", 10)
    model, _ = load_checkpoint(stories.FOLDER)
    assert stories.share_right(model, kind, 3) >= 0.9
    with torch.no_grad():
        model.layers[1].self_attention.W_o.weight.zero_()
    assert stories.share_right(model, kind, 3) < 0.9
