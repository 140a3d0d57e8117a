"""The whole loop with its files: saving, resuming, averaging, what is counted and what the clock says."""

import math
import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import DEFAULT, Mock

import pytest
import torch
from safetensors.torch import load_file, save

from annotated.config import EOS, PAD, TransformerConfig
from annotated.training import noam_rate
from annotated.transformer import Transformer
from annotated_workbench import run_folder, runs, tasks
from annotated_workbench.checkpoint import load_checkpoint, load_tensors
from annotated_workbench.data import Pairs, make_batches
from annotated_workbench.files import UNFINISHED
from annotated_workbench.run_folder import Progress
from annotated_workbench.runs import _rate, linear_rate, mixed_seed, train
from annotated_workbench.training_options import TrainingOptions, length_of
from annotated_workbench.translation import translate
from annotated_workbench.vocabulary import SPECIALS, Vocabulary, WordTokenizer, load_tokenizer
from tests.runs import contents, read_metrics

NUMBERS = {"eins": "one", "zwei": "two", "drei": "three", "vier": "four", "sieben": "seven"}
WORDS = [*SPECIALS, *NUMBERS, *NUMBERS.values()]
TOKENIZER = WordTokenizer(Vocabulary(WORDS), ("de", "en"))
SIZES = dict(d_model=8, heads=2, d_k=3, d_v=5, d_ff=11, layers=1, max_length=17)
OPTIONS = TrainingOptions(epochs=3, batch_tokens=40, accumulate=2, warmup=11, rate=1.0, average=2)
TIMES = re.compile(r"(\S+) tokens/s  (\S+) min done, (\S+) min left")
SEEDED = torch.Generator().manual_seed(0)
DRAWN = [torch.randint(len(NUMBERS), (2 + n % 4,), generator=SEEDED).tolist() for n in range(31)]
PAIRS = Pairs(*([" ".join(side[i] for i in row) for row in DRAWN] for side in map(list, (NUMBERS, NUMBERS.values()))))
# For the clock. Three pairs, one in a batch: three updates an epoch, of (2 + 3) + (3 + 4) + (4 + 5) = 21 tokens.
THREE = Pairs(["eins", "eins zwei", "eins zwei drei"], ["one", "one two", "one two three"])
CLOCKED = TrainingOptions(epochs=4, batch_tokens=5, warmup=5, rate=1.0, average=1)


@pytest.fixture(scope="module", autouse=True)
def no_search():
    """Take each validation sentence for its own translation: the search would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "translate", lambda model, tokenizer, texts, *args, **options: list(texts))
        yield


def new_model(**changes) -> Transformer:
    torch.manual_seed(5)
    return Transformer(TransformerConfig(14, **(SIZES | dict(dropout=0.1) | changes)))


def run(out: Path, options: TrainingOptions = OPTIONS, pairs: Pairs = PAIRS, resume: bool = False, **changes):
    model = new_model(**changes)
    val = Pairs(*(side[:5] for side in pairs))
    return model, train(model, TOKENIZER, pairs, val, out, options=options, resume=resume)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of three epochs, nothing in its way: its folder, its model and its metrics."""
    out = tmp_path_factory.mktemp("finished") / "runs" / "de-en"
    return out, *run(out)


def assert_same_run(out: Path, other: Path) -> None:
    """Compare all weights of two runs bit for bit, their moments and random state, and their metrics except times."""
    assert contents(out).keys() == contents(other).keys()
    for name in contents(out):
        if name.endswith(".safetensors"):
            torch.testing.assert_close(load_file(out / name), load_file(other / name), rtol=0, atol=0, msg=name)
    for line, expected in zip(read_metrics(out), read_metrics(other), strict=True):
        assert all(line[k] == expected[k] for k in expected if k not in ("minutes", "tokens_per_second"))


def test_a_run_leaves_all_that_is_needed_and_metrics_have_a_line_for_each_epoch(finished):
    out, model, metrics = finished
    steps = [line["step"] for line in metrics]
    assert contents(out).keys() == {
        *("config.json", "metrics.jsonl", "model.safetensors", "state.safetensors", "tokenizer.json"),
        *(f"checkpoints/{step:07}.safetensors" for step in steps[-2:]),
        *(f"best/{name}" for name in ("config.json", "model.safetensors", "tokenizer.json")),
    }
    loaded, info = load_checkpoint(out)
    assert (info["src"], info["tgt"]) == ("de", "en")
    assert len(translate(loaded, load_tokenizer(out), ["eins zwei", "drei"], info["src"])) == 2
    older, newer = (load_file(path) for path in sorted((out / "checkpoints").iterdir()))
    assert any(not torch.equal(older[name], newer[name]) for name in older)
    for name, weight in dict(model.named_parameters()).items():
        torch.testing.assert_close(weight.data, (older[name] + newer[name]) / 2)
    assert read_metrics(out) == metrics
    assert [(line["epoch"], line["step"]) for line in metrics] == [(1, 3), (2, 6), (3, 9)]
    assert [line["rate"] for line in metrics] == [noam_rate(step, 8, OPTIONS.warmup) for step in (3, 6, 9)]
    assert metrics[-1]["loss"] < metrics[0]["loss"] < math.log(14) + 1
    assert all(0 <= line["val_bleu"] <= 100 and line["tokens_per_second"] > 0 for line in metrics)


def test_the_best_model_is_kept_and_ends_a_run_whose_patience_is_over(tmp_path, monkeypatch, capsys):
    scores = iter([1.0, 3.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0])
    monkeypatch.setattr(tasks, "bleu", lambda *_: (next(scores), ""))
    options = replace(OPTIONS, epochs=9, average=9, patience=2)
    for resume, patience, epochs, best in ((False, 2, 4, "0000006"), (True, 3, 8, "0000015")):
        _, metrics = run(tmp_path, replace(options, patience=patience), resume=resume)
        assert len(metrics) == epochs
        files = (tmp_path / name for name in ("best/model.safetensors", f"checkpoints/{best}.safetensors"))
        torch.testing.assert_close(*map(load_file, files), rtol=0, atol=0)
        load_checkpoint(tmp_path / "best")
        said = f"Validation was best after epoch {int(best) / 3:.2f}: that .*\nEnded by --patience: it goes on with "
        assert re.search(said, capsys.readouterr().out)
        with pytest.raises(ValueError, match=f"the run has done {epochs} epochs .*: give more --patience\\.$"):
            run(tmp_path, replace(options, patience=patience), resume=True)


def test_the_loss_of_an_epoch_is_per_token(tmp_path, monkeypatch):
    answers = iter([(1.0, 10), (2.0, 30), (4.0, 10)])
    monkeypatch.setattr(runs, "update", lambda *_: next(answers))
    _, metrics = run(tmp_path, replace(OPTIONS, epochs=1))
    assert metrics[0]["loss"] == pytest.approx((1 * 10 + 2 * 30 + 4 * 10) / 50)


def test_every_epoch_sees_every_pair_in_an_order_of_its_own(tmp_path, monkeypatch):
    seen = []

    def record(run, batches):
        assert run.model.training
        seen.append([row for src, _ in batches for row in src.tolist()])
        return 0.0, 1

    monkeypatch.setattr(runs, "update", record)
    run(tmp_path)
    rows = [[[token for token in row if token != PAD] for group in seen[i : i + 3] for row in group] for i in (0, 3, 6)]
    assert rows[0] != rows[1] != rows[2] != rows[0]
    expected = sorted([*TOKENIZER.encode(text, "de"), EOS] for text in PAIRS.source)
    assert sorted(rows[0]) == sorted(rows[1]) == sorted(rows[2]) == expected


def test_no_two_runs_share_the_order_of_an_epoch():
    seeds = [mixed_seed(seed, epoch) for seed in (0, 1, 2, 11, 12) for epoch in (0, 1, 2, 1000, 1001, 2000, 21, 121)]
    assert len(set(seeds)) == len(seeds)
    row = [[5, EOS]] * 99
    assert all(len(make_batches(row, row, 2, seed=seed)) == 99 for seed in seeds)  # a generator takes each


@pytest.mark.parametrize(
    ("place", "name", "calls"),
    [
        *((runs, "update", calls) for calls in (0, 2, 3, 5)),  # of three an epoch
        *((run_folder, name, 1) for name in ("write_whole", "average_checkpoints", "save_checkpoint", "_steps")),
        *((run_folder, "save_tensors", calls) for calls in (1, 3, 4)),  # a checkpoint, another, a state
        (runs, "_report", 0),
    ],
)
def test_a_run_killed_anywhere_goes_on_and_what_is_not_ours_stays(finished, tmp_path, monkeypatch, place, name, calls):
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        effects = [DEFAULT] * calls + [KeyboardInterrupt]
        patch.setattr(place, name, Mock(wraps=getattr(place, name), side_effect=effects))
        run(tmp_path)
    (tmp_path / "checkpoints").mkdir(exist_ok=True)
    others = [tmp_path / f"mine{UNFINISHED}", *(tmp_path / f"checkpoints/{name}.safetensors" for name in ("mine", 5))]
    for path in (*others, tmp_path / f".0123456789abcdef{UNFINISHED}"):
        path.write_bytes(b"half of what was being written, or another's")
    torch.manual_seed(123)
    model, _ = run(tmp_path, resume=True)
    for other in others:
        other.unlink()
    assert_same_run(tmp_path, finished[0])
    torch.testing.assert_close(list(model.parameters()), list(finished[1].parameters()), rtol=0, atol=0)


def test_a_run_out_of_time_leaves_a_model_and_goes_on_where_it_was(finished, tmp_path):
    brief = replace(OPTIONS, max_minutes=1e-9)
    _, metrics = run(tmp_path, brief)
    assert [(line["step"], line["epoch"]) for line in metrics] == [(1, pytest.approx(1 / 3))]
    load_checkpoint(tmp_path)
    with pytest.raises(ValueError, match=r"the run has done 0 epochs .*: give more --max-minutes\.$"):
        run(tmp_path, brief, resume=True)
    _, metrics = run(tmp_path, resume=True)
    assert [line["step"] for line in metrics] == [1, 3, 6, 9]
    for name in ("state.safetensors", "model.safetensors"):  # the checkpoint within an epoch is not averaged
        torch.testing.assert_close(load_file(tmp_path / name), load_file(finished[0] / name), rtol=0, atol=0)


@pytest.mark.parametrize("damaged", [b"", b"cut", save({"output.weight": torch.zeros(3)})])
def test_a_damaged_checkpoint_costs_no_epoch(tmp_path, capsys, damaged):
    run(tmp_path, replace(OPTIONS, epochs=1))
    (tmp_path / "checkpoints" / "0000003.safetensors").write_bytes(damaged)
    run(tmp_path, replace(OPTIONS, epochs=2), resume=True)
    assert f"Careful: left out of the average, {tmp_path}/checkpoints/0000003.safetensors" in capsys.readouterr().out


def test_what_the_position_is_not_counted_in_can_change_and_what_the_run_chose_stays(tmp_path):
    options = replace(OPTIONS, epochs=1, warmup=None, rate=None)
    run(tmp_path, options)
    chosen = length_of(options, 3)
    changed = replace(options, epochs=2, schedule="linear", smoothing=0.0, average=1)
    run(tmp_path, changed, resume=True, dropout=0.3)
    assert load_tensors(tmp_path / "state.safetensors")[1]["derived"] == chosen._replace(epochs=2)._asdict()
    for given, rate in ((dict(epochs=3, warmup=7), pytest.approx(0.007**0.5)), (dict(epochs=4, rate=0.5), 0.5)):
        run(tmp_path, replace(changed, **given), resume=True)
        derived = load_tensors(tmp_path / "state.safetensors")[1]["derived"]
        assert tuple(derived.values()) == (given["epochs"], 7, rate)  # a new warm-up alone: no higher


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "metrics.jsonl", "checkpoints"])
def test_a_new_run_touches_no_model_that_lies_there(tmp_path, name):
    (tmp_path / name).write_bytes(b"the only copy")
    with pytest.raises(FileExistsError, match=rf"already holds a run or a model \({name}\).*--resume"):
        run(tmp_path)
    assert contents(tmp_path) == {name: b"the only copy"}


def test_weights_that_are_no_numbers_end_a_run_and_its_last_good_state_stays(finished, tmp_path, monkeypatch):
    run(tmp_path, replace(OPTIONS, epochs=1))
    before = contents(tmp_path)

    def update_to_nan(run, batches):
        next(run.model.parameters()).data[0, 0] = math.nan
        return 1.0, 1

    with monkeypatch.context() as patch, pytest.raises(ValueError, match=r"weights are not finite.*lower --rate"):
        patch.setattr(runs, "update", update_to_nan)
        run(tmp_path, resume=True)
    assert contents(tmp_path) == before
    with monkeypatch.context() as patch, pytest.raises(ValueError, match=r"^update 4: the loss is nan.*--resume goes"):
        patch.setattr(tasks, "summed_loss", lambda model, *rest, **how: math.nan * model.output.weight.sum())
        run(tmp_path, resume=True)
    run(tmp_path, resume=True)
    assert_same_run(tmp_path, finished[0])


def test_what_could_not_be_read_back_is_refused_before_anything_is_written(tmp_path):
    model = new_model()
    model.output.register_forward_hook(lambda module, args, result: 2 * result)
    with pytest.raises(ValueError, match="another one would be read back"):
        train(model, TOKENIZER, PAIRS, PAIRS, tmp_path / "run", options=OPTIONS)
    assert not (tmp_path / "run").exists()


def test_too_long_pairs_are_left_out_and_counted(tmp_path, capsys, monkeypatch):
    asked = []
    monkeypatch.setattr(tasks, "translate", lambda model, tokenizer, texts, *_, **how: asked.append(texts) or texts)
    longer = Pairs([*PAIRS.source, "eins " * 20], [*PAIRS.target, "one"])
    val = Pairs(["eins", "eins " * 20, "zwei", "drei"], ["one", "one", "two", "three " * 17])
    train(new_model(), TOKENIZER, longer, val, tmp_path, options=replace(OPTIONS, epochs=1))
    out = capsys.readouterr().out
    for left_out in ("1 of 32 training", "2 of 4 validation"):
        assert f"{left_out} pairs are longer than 17 tokens and left out" in out
    assert asked == [["eins", "zwei"]]


def test_a_run_that_will_end_within_its_warm_up_says_so_and_each_way_out_leads_out_and_no_higher(tmp_path, capsys):
    options = replace(OPTIONS, epochs=1)
    run(tmp_path / "few", options)
    advice = "a warm-up of 11: .* shorter --warmup and no --rate .*, more --epochs or smaller --batch-tokens"
    assert re.search(f"Careful: 3 updates in all, and {advice}", capsys.readouterr().out)
    for change in (dict(warmup=2, rate=None), dict(epochs=4), dict(batch_tokens=9)):
        _, metrics = run(tmp_path / str(change), replace(options, **change))
        assert "Careful" not in capsys.readouterr().out
        assert max(line["rate"] for line in metrics) <= (8 * 11) ** -0.5


def test_a_model_that_says_the_same_to_everything_says_so(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(tasks, "translate", lambda model, tokenizer, texts, *args, **options: [""] * len(texts))
    run(tmp_path, replace(OPTIONS, epochs=1))
    assert "it translates every validation sentence alike, as ''" in capsys.readouterr().out


def let_an_update_take_half_a_minute(patch: pytest.MonkeyPatch, began: float, asleep: int | None = None) -> None:
    done = iter(range(10**6))
    now = [began]

    def update(run, batches):
        now[0] += 8 * 3600 if next(done) == asleep else 30
        return 1.0, 1

    patch.setattr(runs, "update", update)
    patch.setattr(runs.time, "perf_counter", lambda: now[0])


@pytest.mark.parametrize(
    ("limit", "epochs", "times"),
    [
        (None, [1, 2, 3, 4], [(1.5, 4.5), (3.0, 3.0), (4.5, 1.5), (6.0, 0.0)]),
        (5.0, [1, 2, 3, 3 + 1 / 3], [(1.5, 3.5), (3.0, 2.0), (4.5, 0.5), (5.0, 0.0)]),
    ],
)
def test_minutes_and_speed_are_those_of_the_clock(tmp_path, monkeypatch, capsys, limit, epochs, times):
    let_an_update_take_half_a_minute(monkeypatch, began=1000.0)
    options = replace(CLOCKED, max_minutes=limit)
    run(tmp_path, replace(options, epochs=2), THREE)
    let_an_update_take_half_a_minute(monkeypatch, began=50.0)  # another day's clock; what was done before counts on
    _, metrics = run(tmp_path, options, THREE, resume=True)
    assert [line["epoch"] for line in metrics] == pytest.approx(epochs)
    assert [line["minutes"] for line in metrics] == [done for done, _ in times]
    assert [line["tokens_per_second"] for line in metrics[:3]] == pytest.approx([21 / 90] * 3)
    printed = [tuple(map(float, found)) for found in TIMES.findall(capsys.readouterr().out)]
    assert [line[1:] for line in printed][2:] == times[2:]


def test_a_machine_that_sleeps_uses_up_five_updates_at_most(tmp_path, monkeypatch):
    let_an_update_take_half_a_minute(monkeypatch, began=1000.0, asleep=3)
    _, metrics = run(tmp_path, replace(CLOCKED, max_minutes=5.0), THREE)
    assert [(line["step"], line["minutes"]) for line in metrics] == [(3, 1.5), (6, 5.0)]


@pytest.mark.parametrize(
    ("step", "left", "rate"), [(1, 1.0, 1 / 32), (2, 0.9, 2 / 32), (4, 0.8, 1 / 10), (9, 0.5, 1 / 16), (40, 0.0, 0.0)]
)
def test_the_linear_rate_by_hand(step, left, rate):
    # d_model = 16 and warmup = 4 give a peak of 1/8.
    assert linear_rate(step, 16, 4, left) == pytest.approx(rate)


@pytest.mark.parametrize(("seconds", "left"), [(0.0, 0.9), (7.5, 0.75), (15.0, 0.5), (30.0, 0.0), (31.0, 0.0)])
def test_the_linear_schedule_falls_with_the_epochs_or_the_minutes_whichever_end_first(seconds, left):
    options = replace(OPTIONS, schedule="linear", epochs=20, warmup=2, rate=0.5, max_minutes=0.5)
    progress = Progress(step=21, seconds=seconds)
    peak = 0.5 * (2 * 8) ** -0.5
    assert _rate(progress, 10, options, length_of(options, 10), 8) == pytest.approx(left * peak)


@pytest.mark.parametrize(
    ("given", "updates", "chosen"),
    [
        (dict(), 127, (30, 1000, 1.0)),  # Multi30k
        (dict(), 10**6, (5, 1000, 1.0)),
        (dict(), 1, (3800, 1000, 1.0)),
        (dict(epochs=6), 20, (6, 40, 0.2)),
        (dict(epochs=1), 1, (1, 1, 1000**-0.5)),
        (dict(epochs=6, rate=0.7), 20, (6, 40, 0.7)),
        (dict(epochs=6, warmup=90), 20, (6, 90, 0.3)),
        (dict(warmup=4000), 20, (190, 4000, 1.0)),  # §5.3
    ],
)
def test_the_length_follows_from_the_updates_in_an_epoch(given, updates, chosen):
    assert length_of(TrainingOptions(**given), updates) == (*chosen[:2], pytest.approx(chosen[2]))
