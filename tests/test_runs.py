"""The whole loop with its files: saving, resuming, averaging."""

import io
import json
import math
import re
from dataclasses import replace

import pytest
import torch
import tqdm.auto
from safetensors.torch import load_file

from annotated.config import EOS, PAD, TransformerConfig
from annotated.fast.training import update
from annotated.training import noam_rate
from annotated.transformer import Transformer
from annotated_workbench import run_folder, runs, tasks, training_options
from annotated_workbench.checkpoint import load_checkpoint, load_tensors, save_tensors
from annotated_workbench.data import Pairs
from annotated_workbench.files import locked
from annotated_workbench.run_folder import Progress
from annotated_workbench.runs import _rate, linear_rate, train
from annotated_workbench.training_options import TrainingOptions, length_of
from annotated_workbench.translation import translate
from annotated_workbench.vocabulary import SPECIALS, Vocabulary, WordTokenizer, load_tokenizer

VOCAB = 13
SIZES = dict(d_model=8, heads=2, d_k=3, d_v=5, d_ff=11, layers=1, max_length=17)


NUMBERS = {"eins": "one", "zwei": "two", "drei": "three", "vier": "four", "sieben": "seven"}
OPTIONS = TrainingOptions(epochs=3, batch_tokens=40, accumulate=2, warmup=11, average=2)


def make_pairs(count: int) -> Pairs:
    """Make rows of German numbers and the same in English."""
    rows = [[list(NUMBERS)[i] for i in torch.randint(len(NUMBERS), (2 + n % 4,)).tolist()] for n in range(count)]
    return Pairs([" ".join(row) for row in rows], [" ".join(NUMBERS[word] for word in row) for row in rows])


@pytest.fixture(scope="module", autouse=True)
def no_search():
    """Take each validation sentence for its own translation: the search would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "translate", lambda model, tokenizer, texts, *args, **options: list(texts))
        yield


@pytest.fixture
def search(monkeypatch):
    """Search for translations all the same."""
    monkeypatch.setattr(tasks, "translate", translate)


@pytest.fixture(scope="module")
def tokenizer() -> WordTokenizer:
    return WordTokenizer(Vocabulary([*SPECIALS, *NUMBERS, *NUMBERS.values()]), ("de", "en"))


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    torch.manual_seed(0)
    return make_pairs(31)


def new_model(**changes) -> Transformer:
    torch.manual_seed(5)
    return Transformer(TransformerConfig(14, **(SIZES | dict(dropout=0.1) | changes)))


def run(tokenizer, pairs, out, options=OPTIONS, resume=False, **changes):
    model = new_model(**changes)
    metrics = train(model, tokenizer, pairs, Pairs(*(side[:5] for side in pairs)), out, options=options, resume=resume)
    return model, metrics


@pytest.fixture(scope="module")
def finished(tmp_path_factory, tokenizer, pairs):
    """A run of three epochs, nothing in its way: its folder, its model and its metrics."""
    out = tmp_path_factory.mktemp("finished") / "runs" / "de-en"
    return out, *run(tokenizer, pairs, out)


def without_times(metrics: list[dict]) -> list[dict]:
    return [{k: v for k, v in line.items() if k not in ("minutes", "tokens_per_second")} for line in metrics]


def read_metrics(out) -> list[dict]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def files(out) -> set[str]:
    return {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file() and path.name != ".lock"}


def assert_same_run(out, other) -> None:
    """Compare all weights of two runs bit for bit, their moments and random state, and their metrics but times."""
    assert files(out) == files(other)
    for name in files(out):
        if name.endswith(".safetensors"):
            torch.testing.assert_close(load_file(out / name), load_file(other / name), rtol=0, atol=0, msg=name)
    assert without_times(read_metrics(out)) == without_times(read_metrics(other))


def test_a_run_leaves_all_that_is_needed(finished, tokenizer):
    out, _, metrics = finished
    steps = [line["step"] for line in metrics]
    assert files(out) == {
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
        "state.safetensors",
        "state-before.safetensors",
        "tokenizer.json",
        *(f"checkpoints/{step:07}.safetensors" for step in steps[-3:]),  # one more than averaged, for the state before
    }
    loaded, info = load_checkpoint(out)
    assert (info["src"], info["tgt"]) == ("de", "en")
    texts = ["eins zwei", "drei"]
    assert len(translate(loaded, load_tokenizer(out), texts, info["src"])) == 2
    assert load_tokenizer(out).vocabulary.words == tokenizer.vocabulary.words


def test_metrics_have_a_line_for_each_epoch(finished):
    out, _, metrics = finished
    assert read_metrics(out) == metrics
    assert [line["epoch"] for line in metrics] == [1, 2, 3]
    steps = [line["step"] for line in metrics]
    assert steps == [steps[0], 2 * steps[0], 3 * steps[0]]
    assert [line["rate"] for line in metrics] == [noam_rate(step, SIZES["d_model"], OPTIONS.warmup) for step in steps]
    assert metrics[-1]["loss"] < metrics[0]["loss"] < math.log(14) + 1
    assert all(0 <= line["val_bleu"] <= 100 and line["tokens_per_second"] > 0 for line in metrics)
    assert sorted(line["minutes"] for line in metrics) == [line["minutes"] for line in metrics]


@pytest.mark.parametrize(
    ("step", "left", "rate"), [(1, 1.0, 1 / 32), (2, 0.9, 2 / 32), (4, 0.8, 1 / 10), (9, 0.5, 1 / 16), (40, 0.0, 0.0)]
)
def test_the_linear_rate_by_hand(step, left, rate):
    # d_model = 16 and warmup = 4 give a peak of 1/8.
    assert linear_rate(step, 16, 4, left) == pytest.approx(rate)


@pytest.mark.parametrize("left", [-0.1, 1.1])
def test_what_is_left_is_a_share(left):
    with pytest.raises(ValueError, match=f"left={left} must lie in 0 … 1"):
        linear_rate(1, 16, 4, left)


def test_the_linear_rates_steps_count_from_one():
    with pytest.raises(ValueError, match="step=0 must be at least 1"):
        linear_rate(0, 16, 4, 1.0)


def test_the_linear_schedule_ends_with_the_epochs(tokenizer, pairs, tmp_path):
    _, metrics = run(tokenizer, pairs, tmp_path, replace(OPTIONS, schedule="linear", rate=0.5, warmup=2))
    updates = metrics[-1]["step"]
    peak = 0.5 * (2 * SIZES["d_model"]) ** -0.5
    rates = [peak * (1 - (line["step"] - 1) / updates) for line in metrics]
    assert [line["rate"] for line in metrics] == pytest.approx(rates)


def test_the_linear_schedule_ends_with_the_minutes(tokenizer, pairs, tmp_path, monkeypatch):
    # A clock on which a second passes at each look: the minute is over after some tens of updates.
    monkeypatch.setattr(runs.time, "perf_counter", iter(range(10**6)).__next__)
    options = replace(OPTIONS, schedule="linear", epochs=1000, warmup=2, max_minutes=1.0)
    _, metrics = run(tokenizer, pairs, tmp_path, options)
    rates = [line["rate"] for line in metrics]
    assert metrics[-1]["epoch"] < 50
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.1 * rates[0]


@pytest.mark.parametrize(("seconds", "left"), [(0.0, 0.9), (7.5, 0.75), (15.0, 0.5), (30.0, 0.0), (31.0, 0.0)])
def test_the_linear_schedule_falls_with_the_epochs_or_the_minutes_whichever_end_first(seconds, left):
    options = replace(OPTIONS, schedule="linear", epochs=20, warmup=2, rate=0.5, max_minutes=0.5)
    progress = Progress(step=21, seconds=seconds)
    peak = 0.5 * (2 * SIZES["d_model"]) ** -0.5
    assert _rate(progress, 10, options, length_of(options, 10), SIZES["d_model"]) == pytest.approx(left * peak)


def test_the_bar_is_drawn_now_and_then_not_at_every_update(tokenizer, pairs, tmp_path, monkeypatch):
    drawn = []

    class Bar(tqdm.std.tqdm):
        def __init__(self, **options):
            super().__init__(**options | {"disable": False, "file": io.StringIO(), "mininterval": 1000})

        def refresh(self, *args, **options):
            drawn.append(self.n)

    monkeypatch.setattr(tqdm.auto, "tqdm", Bar)
    run(tokenizer, pairs, tmp_path / "run", replace(OPTIONS, epochs=1))
    assert drawn == [0]


def test_the_model_is_the_average_of_the_last_checkpoints(finished):
    out, model, _ = finished
    older, newer = (load_file(path) for path in sorted((out / "checkpoints").iterdir())[-2:])
    assert any(not torch.equal(older[name], newer[name]) for name in older)
    averaged = load_file(out / "model.safetensors")
    for name, weight in averaged.items():
        torch.testing.assert_close(weight, (older[name] + newer[name]) / 2)
    torch.testing.assert_close(dict(model.named_parameters()), averaged, rtol=0, atol=0, check_stride=False)


def test_the_same_run_gives_the_same_bits(finished, tokenizer, pairs, tmp_path):
    run(tokenizer, pairs, tmp_path)
    assert_same_run(tmp_path, finished[0])


def test_every_epoch_sees_every_pair_in_an_order_of_its_own(tokenizer, pairs, tmp_path, monkeypatch):
    seen = []

    def record(model, batches, *args, **kwargs):
        seen.append([row for batch in batches for row in batch[0].tolist()])
        return 0.0

    monkeypatch.setattr(tasks, "update", record)
    _, metrics = run(tokenizer, pairs, tmp_path)
    first, second, third = (seen[line["step"] - metrics[0]["step"] : line["step"]] for line in metrics)
    assert first != second != third != first
    rows = [
        sorted([token for token in row if token != PAD] for group in epoch for row in group)
        for epoch in (first, second, third)
    ]
    assert rows[0] == rows[1] == rows[2] == sorted([*tokenizer.encode(text, "de"), EOS] for text in pairs.source)


def test_a_model_in_eval_mode_is_trained_with_dropout_all_the_same(finished, tokenizer, pairs, tmp_path):
    options = replace(OPTIONS, epochs=1)
    metrics = train(new_model().eval(), tokenizer, pairs, pairs, tmp_path, options=options)
    assert metrics[0]["loss"] == finished[2][0]["loss"]


def test_another_seed_gives_another_run(finished, tokenizer, pairs, tmp_path):
    _, metrics = run(tokenizer, pairs, tmp_path, replace(OPTIONS, seed=1, epochs=1))
    assert metrics[0]["loss"] != finished[2][0]["loss"]


def stop_after(monkeypatch, updates: int) -> None:
    """Interrupt the training after so many updates."""

    def update_then_stop(*args, **kwargs):
        nonlocal updates
        updates -= 1
        if updates < 0:
            raise KeyboardInterrupt
        return update(*args, **kwargs)

    monkeypatch.setattr(tasks, "update", update_then_stop)


def test_a_resumed_run_is_the_uninterrupted_one(finished, tokenizer, pairs, tmp_path):
    run(tokenizer, pairs, tmp_path, replace(OPTIONS, epochs=1))
    torch.manual_seed(123)
    model, metrics = run(tokenizer, pairs, tmp_path, resume=True)
    assert_same_run(tmp_path, finished[0])
    assert without_times(metrics) == without_times(finished[2])
    torch.testing.assert_close(list(model.parameters()), list(finished[1].parameters()), rtol=0, atol=0)


@pytest.mark.parametrize("epochs", [0, 1])
def test_a_run_killed_within_an_epoch_goes_on_from_the_last_whole_one(
    finished, tokenizer, pairs, tmp_path, monkeypatch, epochs
):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        stop_after(patch, epochs * finished[2][0]["step"] + 2)
        run(tokenizer, pairs, tmp_path)
    run(tokenizer, pairs, tmp_path, resume=True)
    assert_same_run(tmp_path, finished[0])


@pytest.mark.parametrize("name", ["save_tensors", "write_whole", "_save_average", "save_state"])
def test_a_run_killed_while_it_saves_goes_on_from_the_last_whole_epoch(
    finished, tokenizer, pairs, tmp_path, monkeypatch, name
):
    run(tokenizer, pairs, tmp_path, replace(OPTIONS, epochs=2))

    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(run_folder, name, stop)
        run(tokenizer, pairs, tmp_path, resume=True)
    run(tokenizer, pairs, tmp_path, resume=True)
    assert_same_run(tmp_path, finished[0])


def test_a_run_out_of_time_leaves_a_model_and_goes_on_where_it_was(finished, tokenizer, pairs, tmp_path):
    brief = replace(OPTIONS, max_minutes=1e-9)
    _, metrics = run(tokenizer, pairs, tmp_path, brief)
    assert [line["step"] for line in metrics] == [1]
    assert metrics[0]["epoch"] == pytest.approx(1 / finished[2][0]["step"])
    loaded, _ = load_checkpoint(tmp_path)
    assert len(translate(loaded, load_tokenizer(tmp_path), ["eins zwei"], "de")) == 1

    with pytest.raises(ValueError, match=r"the run has done 0 epochs .*--max-minutes"):
        run(tokenizer, pairs, tmp_path, brief, resume=True)
    _, metrics = run(tokenizer, pairs, tmp_path, resume=True)
    assert [line["step"] for line in metrics] == [1, *(line["step"] for line in finished[2])]
    for name in ("state.safetensors", "model.safetensors"):
        ours, theirs = load_file(tmp_path / name), load_file(finished[0] / name)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_only_whole_epochs_are_averaged_where_the_clock_stopped_within_one(tokenizer, pairs, tmp_path, monkeypatch):
    options = replace(OPTIONS, average=3)
    run(tokenizer, pairs, tmp_path / "whole", options)
    with monkeypatch.context() as patch:
        patch.setattr(runs.time, "perf_counter", iter(range(10**6)).__next__)
        _, metrics = run(tokenizer, pairs, tmp_path / "run", replace(options, max_minutes=0.2))
    assert 1 < metrics[-1]["epoch"] < 2
    run(tokenizer, pairs, tmp_path / "run", options, resume=True)
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("run", "whole"))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert not (tmp_path / "run" / "checkpoints" / f"{metrics[-1]['step']:07}.safetensors").exists()


def test_a_checkpoint_newer_than_the_state_goes_and_what_is_not_ours_stays(finished, tokenizer, pairs, tmp_path):
    run(tokenizer, pairs, tmp_path, replace(OPTIONS, epochs=1))
    checkpoints = tmp_path / "checkpoints"
    for name in ("0000099.safetensors", "mine.safetensors", "5.safetensors"):
        (checkpoints / name).write_bytes(b"of another model")
    run(tokenizer, pairs, tmp_path, resume=True)
    assert {path.name for path in checkpoints.iterdir()} == {
        "mine.safetensors",
        "5.safetensors",
        *(path.name for path in (finished[0] / "checkpoints").iterdir()),
    }
    for name in ("5.safetensors", "mine.safetensors"):
        (checkpoints / name).unlink()
    assert_same_run(tmp_path, finished[0])


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(path.read_bytes()[:-9]), lambda path: path.unlink()])
def test_after_damage_to_the_last_state_the_one_before_goes_on(finished, tokenizer, pairs, tmp_path, damage, capsys):
    run(tokenizer, pairs, tmp_path, replace(OPTIONS, epochs=2))
    damage(tmp_path / "state.safetensors")
    run(tokenizer, pairs, tmp_path, resume=True)
    step = finished[2][0]["step"]
    assert f"state.safetensors is damaged or missing: going on from the one before it, update {step}" in (
        capsys.readouterr().out
    )
    assert_same_run(tmp_path, finished[0])


def test_two_damaged_states_are_named_and_nothing_changes(tokenizer, pairs, tmp_path):
    run(tokenizer, pairs, tmp_path, replace(OPTIONS, epochs=2))
    for name in ("state.safetensors", "state-before.safetensors"):
        (tmp_path / name).write_bytes(b"not whole")
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    with pytest.raises(ValueError, match=r"state-before\.safetensors is not a whole safetensors file"):
        run(tokenizer, pairs, tmp_path, resume=True)
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == before


def test_what_a_killed_writer_left_goes_when_the_run_goes_on(tokenizer, pairs, tmp_path):
    run(tokenizer, pairs, tmp_path, replace(OPTIONS, epochs=1))
    for folder in (tmp_path, tmp_path / "checkpoints"):
        (folder / ".0123456789abcdef.unfinished").write_bytes(b"half")
    (tmp_path / ".notes.tmp").write_bytes(b"mine")
    run(tokenizer, pairs, tmp_path, replace(OPTIONS, epochs=2), resume=True)
    assert [path.name for path in tmp_path.rglob(".*") if path.name != ".lock"] == [".notes.tmp"]


def test_two_runs_do_not_train_in_one_folder(finished, tokenizer, pairs, tmp_path):
    out = tmp_path / "run"
    with locked(out), pytest.raises(BlockingIOError, match="run is in use by another process"):
        run(tokenizer, pairs, out)
    run(tokenizer, pairs, out, replace(OPTIONS, epochs=1))
    with locked(out), pytest.raises(BlockingIOError, match="run is in use by another process"):
        run(tokenizer, pairs, out, resume=True)
    run(tokenizer, pairs, out, resume=True)
    assert_same_run(out, finished[0])


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        (dict(options=replace(OPTIONS, batch_tokens=50)), "batch_tokens=40, not 50"),
        (dict(options=replace(OPTIONS, accumulate=1)), "accumulate=2, not 1"),
        (dict(options=replace(OPTIONS, seed=1)), "seed=0, not 1"),
        (dict(src="en"), "src=de, not en"),
        (dict(tgt="fr"), "tgt=en, not fr"),
        (dict(d_ff=12), "d_ff=11, not 12"),
        (dict(norm_first=True), "norm_first=False, not True"),
        (dict(last="neun"), "training_pairs="),
        (dict(words=[*SPECIALS, *NUMBERS.values(), *NUMBERS]), "tokens="),
    ],
)
def test_what_gives_the_position_its_meaning_cannot_change(finished, tokenizer, pairs, changes, name):
    out = finished[0]
    before = {name: (out / name).read_bytes() for name in files(out)}
    languages = {side: changes.pop(side, language) for side, language in (("src", "de"), ("tgt", "en"))}
    options = changes.pop("options", OPTIONS)
    pairs = Pairs([*pairs.source[:-1], changes.pop("last", pairs.source[-1])], pairs.target)
    tokenizer = WordTokenizer(Vocabulary(changes.pop("words", tokenizer.vocabulary.words)), ("de", "en", "fr"))
    options = replace(options, epochs=5)
    with pytest.raises(ValueError, match=f"was started with {name}.*where it stands is counted in that"):
        train(new_model(**changes), tokenizer, pairs, pairs, out, **languages, options=options, resume=True)
    assert {name: (out / name).read_bytes() for name in files(out)} == before


def test_what_does_not_can(finished, tokenizer, pairs, tmp_path):
    run(tokenizer, pairs, tmp_path, replace(OPTIONS, epochs=1))
    changed = replace(OPTIONS, epochs=2, schedule="linear", warmup=3, rate=0.5, smoothing=0.0, average=1)
    _, metrics = run(tokenizer, pairs, tmp_path, changed, resume=True, dropout=0.3)
    assert [line["epoch"] for line in metrics] == [1, 2]


def test_weights_that_are_no_numbers_end_a_run_and_its_last_good_state_stays(
    finished, tokenizer, pairs, tmp_path, monkeypatch
):
    run(tokenizer, pairs, tmp_path, replace(OPTIONS, epochs=1))
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}

    def update_to_nan(model, *args, **kwargs):
        next(model.parameters()).data[0, 0] = math.nan
        return 1.0

    with monkeypatch.context() as patch, pytest.raises(ValueError, match=r"weights are not finite.*lower --rate"):
        patch.setattr(tasks, "update", update_to_nan)
        run(tokenizer, pairs, tmp_path, resume=True)
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == before
    run(tokenizer, pairs, tmp_path, resume=True)
    assert_same_run(tmp_path, finished[0])


def test_a_run_that_ends_within_its_warm_up_says_so_before_and_after(tokenizer, pairs, tmp_path, capsys, monkeypatch):
    run(tokenizer, pairs, tmp_path / "few", replace(OPTIONS, epochs=1, warmup=50))
    out = capsys.readouterr().out
    updates = re.search(r"Careful: (\d+) updates in all, and a warm-up of 50: ", out)[1]
    assert (
        f"Careful: the run ended at update {updates}, inside its warm-up of 50. Go on with --resume and more --ep"
        in out
    )
    assert out.index("updates in all") < out.index("epoch  1.00") < out.index("the run ended")
    run(tokenizer, pairs, tmp_path / "enough", replace(OPTIONS, epochs=1, warmup=int(updates) - 1))
    assert "warm-up" not in capsys.readouterr().out


def test_a_model_that_says_the_same_to_everything_says_so(tokenizer, pairs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tasks, "translate", lambda model, tokenizer, texts, *args, **options: [""] * len(texts))
    run(tokenizer, pairs, tmp_path / "same", replace(OPTIONS, epochs=1))
    assert "it translates every validation sentence alike, as ''" in capsys.readouterr().out
    monkeypatch.undo()
    run(tokenizer, pairs, tmp_path / "other", replace(OPTIONS, epochs=1))
    assert "alike" not in capsys.readouterr().out


def test_what_a_run_derived_stays_when_it_goes_on_for_longer(tokenizer, pairs, tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "update", lambda *args, **options: 0.0)
    options = replace(OPTIONS, epochs=2, warmup=None, schedule="linear")
    run(tokenizer, pairs, tmp_path, options)
    run(tokenizer, pairs, tmp_path, replace(options, epochs=10), resume=True)
    derived = load_tensors(tmp_path / "state.safetensors")[1]["derived"]
    chosen = length_of(options, 3)
    assert derived == {"epochs": 10, "warmup": chosen.warmup, "rate": chosen.rate}
    run(tokenizer, pairs, tmp_path, replace(options, epochs=11, warmup=7), resume=True)
    derived = load_tensors(tmp_path / "state.safetensors")[1]["derived"]
    assert derived == {"epochs": 11, "warmup": 7, "rate": chosen.rate}


def test_another_tokenizer_of_the_same_tokens_is_another_run(finished, tokenizer, pairs):
    other = WordTokenizer(Vocabulary(tokenizer.vocabulary.words), ("de", "en", "fr"))
    with pytest.raises(ValueError, match=r"was started with tokenizer=.*where it stands is counted in that"):
        run(other, pairs, finished[0], replace(OPTIONS, epochs=5), resume=True)


def test_a_model_that_could_not_be_read_back_is_refused_before_anything_is_written(tokenizer, pairs, tmp_path):
    model = new_model()
    model.output.register_forward_hook(lambda module, args, result: 2 * result)
    with pytest.raises(ValueError, match="output has a forward hook"):
        train(model, tokenizer, pairs, pairs, tmp_path / "run", options=OPTIONS)
    assert not (tmp_path / "run").exists()


def test_a_finished_run_stays_as_it_is(finished, tokenizer, pairs):
    out = finished[0]
    before = {name: (out / name).read_bytes() for name in files(out)}
    with pytest.raises(ValueError, match=r"the run has done 3 epochs .*--epochs"):
        run(tokenizer, pairs, out, resume=True)
    assert {name: (out / name).read_bytes() for name in files(out)} == before


def test_nothing_is_pickled(finished, tokenizer, pairs, tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("pickled")

    for name in ("save", "load"):
        monkeypatch.setattr(torch, name, refuse)
    for name in ("dump", "dumps", "load", "loads"):
        monkeypatch.setattr(f"pickle.{name}", refuse)
    run(tokenizer, pairs, tmp_path, replace(OPTIONS, epochs=1))
    run(tokenizer, pairs, tmp_path, replace(OPTIONS, epochs=2), resume=True)
    load_checkpoint(tmp_path)
    assert {name.rpartition(".")[2] for name in files(tmp_path)} == {"json", "jsonl", "safetensors"}


def test_a_run_is_never_overwritten(finished, tokenizer, pairs):
    with pytest.raises(FileExistsError, match=r"de-en already holds a run.*--resume"):
        run(tokenizer, pairs, finished[0])


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        "metrics.jsonl",
        "state-before.safetensors",
        "checkpoints/0000005.safetensors",
        "checkpoints/mine.safetensors",
    ],
)
def test_a_new_run_touches_no_model_that_lies_there(tokenizer, pairs, tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"the only copy")
    with pytest.raises(FileExistsError, match=rf"already holds a run or a model \({name.partition('/')[0]}\)"):
        run(tokenizer, pairs, tmp_path)
    assert files(tmp_path) == {name}
    assert path.read_bytes() == b"the only copy"


def test_a_new_run_follows_no_link(tokenizer, pairs, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "0000001.safetensors").write_bytes(b"the only copy")
    (tmp_path / "run" / "checkpoints").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError, match="checkpoints"):
        run(tokenizer, pairs, tmp_path / "run")
    assert files(tmp_path / "elsewhere") == {"0000001.safetensors"}


def test_there_must_be_a_run_to_resume(tokenizer, pairs, tmp_path):
    with pytest.raises(FileNotFoundError, match="no run to resume"):
        run(tokenizer, pairs, tmp_path / "run", resume=True)
    assert not (tmp_path / "run").exists()


def test_a_run_resumes_with_its_own_model_only(finished, tokenizer, pairs):
    with pytest.raises(ValueError, match="was started with d_ff=11, not 12"):
        run(tokenizer, pairs, finished[0], resume=True, d_ff=12)


def test_a_state_of_an_older_version_is_named(finished, tokenizer, pairs, tmp_path):
    save_tensors(tmp_path / "state.safetensors", {"w": torch.ones(2)}, {"progress": {}, "metrics": []})
    with pytest.raises(ValueError, match=r"state\.safetensors is of an older version of the course"):
        run(tokenizer, pairs, tmp_path, resume=True)


def test_too_long_pairs_are_left_out_and_counted(tokenizer, pairs, tmp_path, capsys):
    longer = Pairs([*pairs.source, "eins " * 20], [*pairs.target, "one"])
    val = Pairs(*(side[:5] for side in pairs))
    options = replace(OPTIONS, epochs=1)
    train(new_model(), tokenizer, longer, val, tmp_path, options=options)
    assert "1 of 32 training pairs are longer than 17 tokens and left out" in capsys.readouterr().out


def test_too_long_pairs_for_validation_are_left_out_and_counted(tokenizer, pairs, tmp_path, capsys, monkeypatch):
    asked = []
    monkeypatch.setattr(
        tasks, "translate", lambda model, tokenizer, texts, *args, **options: asked.append(texts) or texts
    )
    val = Pairs(["eins", "eins " * 20, "zwei", "drei"], ["one", "one", "two", "three " * 17])
    train(new_model(), tokenizer, pairs, val, tmp_path, options=replace(OPTIONS, epochs=1))
    assert "2 of 4 validation pairs are longer than 17 tokens and left out" in capsys.readouterr().out
    assert asked == [["eins", "zwei"]]


def test_nothing_fits_is_an_error_before_anything_is_written(tokenizer, pairs, tmp_path):
    val = Pairs(["eins " * 20], ["one"])
    with pytest.raises(ValueError, match="no pair of 1 fits into 17 tokens"):
        train(new_model(), tokenizer, pairs, val, tmp_path / "run", options=OPTIONS)
    assert not (tmp_path / "run").exists()


def test_a_run_learns_to_translate(tokenizer, tmp_path, search):
    options = TrainingOptions(epochs=5, batch_tokens=64, warmup=40, rate=0.2, average=2)
    model = new_model(d_model=32, d_k=16, d_v=16, d_ff=64, layers=1, dropout=0.0)
    metrics = train(model, tokenizer, make_pairs(300), make_pairs(30), tmp_path, options=options)
    assert metrics[0]["val_bleu"] < 10
    assert metrics[-1]["val_bleu"] > 30


@pytest.mark.parametrize(
    ("name", "value", "limits"),
    [
        ("epochs", 0, "at least 1"),
        ("max_minutes", 0.0, "above 0"),
        ("batch_tokens", -1, "at least 1"),
        ("batch_tokens", 10**6 + 1, "at least 1 and at most 1,000,000"),
        ("accumulate", 0, "at least 1"),
        ("warmup", 0, "at least 1"),
        ("average", 0, "at least 1"),
        ("seed", -1, "at least 0"),
        ("smoothing", 1.0, "at least 0 and below 1"),
        *(("rate", value, "above 0 and at most") for value in (-0.5, math.nan, math.inf)),
    ],
)
def test_options_that_make_no_sense_are_named(name, value, limits):
    with pytest.raises(ValueError, match=f"{name}={value} must be {limits}"):
        TrainingOptions(**{name: value})


def test_the_options_are_the_documented_ones():
    assert TrainingOptions() == TrainingOptions(
        epochs=None,
        max_minutes=None,
        batch_tokens=4096,
        accumulate=1,
        schedule="noam",
        warmup=None,
        rate=None,
        smoothing=0.1,
        average=5,
        seed=0,
        bf16=False,
        plain=False,
    )


@pytest.mark.parametrize(
    ("given", "updates", "chosen"),
    [
        (dict(), 127, (30, 1000, 1.0)),  # Multi30k
        (dict(), 21, (181, 1000, 1.0)),
        (dict(), 10**6, (5, 1000, 1.0)),
        (dict(), 1, (3800, 1000, 1.0)),
        (dict(epochs=6), 20, (6, 40, 0.2)),
        (dict(epochs=1), 1, (1, 1, 1000**-0.5)),
        (dict(epochs=6, rate=0.7), 20, (6, 40, 0.7)),
        (dict(epochs=6, warmup=90), 20, (6, 90, 1.0)),
        (dict(warmup=4000), 127, (30, 4000, 1.0)),
    ],
)
def test_the_length_follows_from_the_updates_in_an_epoch(given, updates, chosen):
    assert length_of(TrainingOptions(**given), updates) == (*chosen[:2], pytest.approx(chosen[2]))


def test_a_run_whose_length_is_not_given_has_one(tokenizer, pairs, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(training_options, "UPDATES", 18)
    monkeypatch.setattr(tasks, "update", lambda *args, **options: 0.0)
    _, metrics = run(tokenizer, pairs, tmp_path, replace(OPTIONS, epochs=None, warmup=None))
    assert (metrics[-1]["epoch"], metrics[-1]["step"]) == (6, 18)
    assert "; 6 epochs, 18 updates at most, the learning rate rising for 6" in capsys.readouterr().out
    assert metrics[0]["rate"] == pytest.approx((6 / 1000) ** 0.5 * noam_rate(3, SIZES["d_model"], 6))


# By the paper's own files


def test_a_plain_run_is_the_fast_one_to_rounding(tokenizer, pairs, tmp_path, monkeypatch, search):
    def refuse(*args, **kwargs):
        raise AssertionError("the fast update was asked")

    options = replace(OPTIONS, accumulate=1, epochs=2)
    model, metrics = run(tokenizer, pairs, tmp_path / "fast", options, dropout=0.0)
    monkeypatch.setattr(tasks, "update", refuse)
    monkeypatch.setattr("annotated.fast.decoding.greedy_decode", refuse)
    other, others = run(tokenizer, pairs, tmp_path / "plain", replace(options, plain=True), dropout=0.0)
    assert [line["loss"] for line in others] == pytest.approx([line["loss"] for line in metrics], abs=1e-3)
    for name in ("step", "epoch", "rate"):
        assert [line[name] for line in others] == [line[name] for line in metrics]
    assert translate(other, tokenizer, pairs.source, "de") == translate(model, tokenizer, pairs.source, "de")
    assert files(tmp_path / "plain") == files(tmp_path / "fast")


def test_a_fast_run_asks_for_nothing_plain(tokenizer, pairs, tmp_path, monkeypatch, search):
    def refuse(*args, **kwargs):
        raise AssertionError("the plain update was asked")

    monkeypatch.setattr("annotated.training.train_step", refuse)
    monkeypatch.setattr("annotated.decoding.greedy_decode", refuse)
    run(tokenizer, pairs, tmp_path, replace(OPTIONS, epochs=1))


def test_a_plain_run_is_trained_with_the_options_smoothing_and_dropout(tokenizer, pairs, tmp_path):
    options = replace(OPTIONS, accumulate=1, epochs=1, plain=True)
    losses = [
        run(tokenizer, pairs, tmp_path / str(i), replace(options, smoothing=smoothing), dropout=dropout)[1][0]["loss"]
        for i, (smoothing, dropout) in enumerate([(0.1, 0.0), (0.1, 0.3), (0.0, 0.0)])
    ]
    assert len(set(losses)) == 3


def test_a_plain_run_resumes_as_one_and_may_go_on_fast(tokenizer, pairs, tmp_path):
    options = replace(OPTIONS, accumulate=1, epochs=2, plain=True)
    run(tokenizer, pairs, tmp_path / "whole", options)
    run(tokenizer, pairs, tmp_path / "parts", replace(options, epochs=1))
    run(tokenizer, pairs, tmp_path / "parts", options, resume=True)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")
    run(tokenizer, pairs, tmp_path / "parts", replace(options, epochs=3, plain=False), resume=True)
    assert [line["epoch"] for line in read_metrics(tmp_path / "parts")] == [1, 2, 3]


@pytest.mark.parametrize("other", [dict(bf16=True), dict(accumulate=2)], ids=str)
def test_what_the_plain_update_cannot_do_is_named(other):
    message = "plain training computes in float32, a batch an update: leave --precision bf16 and --accumulate"
    with pytest.raises(ValueError, match=message):
        TrainingOptions(plain=True, **other)
    assert TrainingOptions(plain=True).plain
