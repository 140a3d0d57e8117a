"""The command behind 20_paper_code_today switches what it says, and writes what it prints."""

import json
import math

import pytest
import torch
from torch import nn

from annotated.config import TransformerConfig
from annotated.encoder import LayerNorm
from annotated.models.alike import differs
from annotated.training import make_optimizer, noam_rate, train_step
from annotated.transformer import Transformer
from annotated_workbench.data import Pairs, encode_pairs
from annotated_workbench.vocabulary import SubwordTokenizer
from experiments import paper_code_today
from experiments.paper_code_today import (
    PAPER,
    PEAK,
    PLACES,
    SWITCHES,
    WARM_UP,
    Switch,
    Task,
    at_once,
    cosine,
    example,
    main,
    make_model,
    paper_rate,
    sizes,
    train,
    twice,
    update,
)

VOCABULARY = 31


def logits(name: str, training: bool = False) -> torch.Tensor:
    torch.manual_seed(0)
    model = make_model(SWITCHES[name], VOCABULARY).double().train(training)
    src, tgt = example(VOCABULARY)
    torch.manual_seed(1)
    return model(src, tgt[:, :-1])


def test_the_paper_is_the_papers_model_and_its_update() -> None:
    sizes_of_it = dict(d_model=64, d_ff=128, heads=4, layers=2, max_length=128)
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(make_model(SWITCHES[PAPER], VOCABULARY))
    assert differs(models[0], Transformer(TransformerConfig(VOCABULARY, **sizes_of_it))) is None
    losses = []
    for model, step in zip(models, (update, train_step), strict=True):
        torch.manual_seed(2)
        rest = (SWITCHES[PAPER],) if step is update else ()
        losses.append(step(model, *example(VOCABULARY), make_optimizer(model), *rest))
    assert losses[0] == losses[1]
    torch.testing.assert_close(dict(models[0].named_parameters()), dict(models[1].named_parameters()))


@pytest.mark.parametrize("name", [name for name in SWITCHES if name != PAPER])
def test_every_switch_changes_something(name: str) -> None:
    """Another function, other sizes, or another way to train."""
    switch, paper = SWITCHES[name], SWITCHES[PAPER]
    if switch.config == switch.parts == {} and switch.change is paper.change:
        assert (switch.rate, switch.plan, switch.optimizer, switch.smoothing, switch.clip) != (
            paper.rate,
            paper.plan,
            paper.optimizer,
            paper.smoothing,
            paper.clip,
        )
    elif name in ("norm after, and one more at the end", "no biases in the feed-forward"):  # the same at the start
        torch.testing.assert_close(logits(name), logits(PAPER), atol=1e-4, rtol=1e-4)
    else:
        assert not torch.allclose(logits(name, training=True), logits(PAPER, training=True), atol=1e-3)


def test_norms_stand_where_their_names_say() -> None:
    def count(name: str) -> int:
        return sum(isinstance(part, LayerNorm) for part in make_model(SWITCHES[name], VOCABULARY).modules())

    in_layers = 2 * 2 + 2 * 3
    assert count(PAPER) == count("norm first, none at the end") == in_layers
    assert count("norm first, and one at the end") == count("norm after, and one more at the end") == in_layers + 2
    assert count("norm before and after") == 2 * in_layers + 2
    assert count("norm on the branch alone") == in_layers + 2


def test_dropout_in_four_places_is_only_there_in_training() -> None:
    torch.testing.assert_close(logits("dropout in four places"), logits(PAPER))


def test_sines_come_first_and_the_slowest_wave_is_exactly_10000() -> None:
    table = make_model(SWITCHES["sines, then cosines"], VOCABULARY).positions.table
    torch.testing.assert_close(
        table[1, [0, 31, 32, 63]],
        torch.tensor([1.0, 1e-4, 0, 0]).sin() + torch.tensor([0, 0, math.cos(1), math.cos(1e-4)]),
    )


def test_the_factor_is_undone() -> None:
    model = make_model(SWITCHES["N(0, 0.02²), no √d_model"], VOCABULARY)
    ids = torch.tensor([[4, 5]])
    model.dropout.p = 0.0
    found = model._embed(model.src_embedding, ids) - model.positions.positions.table[:2]
    torch.testing.assert_close(found, model.src_embedding(ids))


def test_one_matrix_has_the_bound_of_its_own_shape() -> None:
    torch.manual_seed(0)
    layer = make_model(SWITCHES["Q, K, V drawn as one matrix"], VOCABULARY).decoder.layers[0]
    largest = [part.weight.abs().max().item() for part in (layer.self_attention.W_q, layer.cross_attention.W_k)]
    assert largest == pytest.approx([math.sqrt(6 / (4 * 64)), math.sqrt(6 / (3 * 64))], rel=0.01)


def test_clipping_bounds_the_gradient() -> None:
    model, before = nn.Linear(1, VOCABULARY), SWITCHES["gradients clipped at 1"]
    call = type("Model", (nn.Module,), {"forward": lambda self, src, tgt: 1e3 * model(torch.ones(*tgt.shape, 1))})()
    call.inner = model
    update(call, *example(VOCABULARY), torch.optim.SGD(model.parameters(), lr=1.0), before)
    norm = math.sqrt(sum(float(parameter.grad.square().sum()) for parameter in model.parameters()))
    assert norm == pytest.approx(1, rel=1e-3)


def test_schedules() -> None:
    assert paper_rate(WARM_UP) == pytest.approx(PEAK) and paper_rate(7) / paper_rate(1) == pytest.approx(7)
    assert paper_rate(100) / paper_rate(50) == pytest.approx(noam_rate(100, 64, 40) / noam_rate(50, 64, 40))
    assert at_once(1) == paper_rate(WARM_UP) and at_once(90) == paper_rate(90)
    assert twice(3) / paper_rate(3) == pytest.approx(2 / 2**1.5) and twice(100) / paper_rate(100) == pytest.approx(2)
    for updates in (120, 600):
        highest, last = cosine(updates // 10, updates), cosine(updates, updates)
        assert (highest, last) == (pytest.approx(PEAK), pytest.approx(PEAK / 10))


def test_groups_keep_less() -> None:
    kept = [
        sizes(SWITCHES[n], VOCABULARY)["bytes kept"] for n in (PAPER, "2 groups for 4 heads", "1 group for 4 heads")
    ]
    assert kept == [2 * 2 * 64 * 4, 2 * 2 * 32 * 4, 2 * 2 * 16 * 4]


FEW = Pairs(["ein Hund", "zwei Hunde", "ein Mann"], ["a dog", "two dogs", "a man"])


def few() -> Task:
    tokenizer = SubwordTokenizer.train(FEW, vocab_size=260)
    return Task(encode_pairs(FEW, tokenizer, "de", "en", max_length=64), FEW, tokenizer)


def test_a_run_is_measured_on_its_way() -> None:
    """The loss after two updates is that of a run that goes on to three, and that of a run that ends there."""
    switch = SWITCHES[PAPER]
    assert train(switch, 0, (2, 3), few()) == [train(switch, 0, (number,), few())[0] for number in (2, 3)]


def test_a_plan_gets_a_run_for_each_number_of_updates() -> None:
    asked = []
    switch = Switch(plan=lambda step, updates: asked.append((step, updates)) or 0.0)
    assert len(train(switch, 0, (1, 3), few())) == 2
    assert asked == [(1, 1), (1, 3), (2, 3), (3, 3)]


def test_the_command_writes_what_it_prints_and_makes_no_run_again(
    tmp_path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(*updates: str) -> tuple[dict, list[list[str]]]:
        where = tmp_path / "it.json"
        monkeypatch.setattr("sys.argv", ["paper_code_today", str(where), "--seeds", "1", "--updates", *updates])
        main()
        printed = [line.split()[-len(updates) :] for line in capsys.readouterr().out.splitlines()]
        return json.loads(where.read_text(encoding="utf-8")), printed

    monkeypatch.setattr(paper_code_today, "load_task", few)
    monkeypatch.setattr(paper_code_today, "SWITCHES", {name: SWITCHES[name] for name in (PAPER, "RMSNorm")})
    monkeypatch.setattr(paper_code_today, "PLACES", {"first": PLACES["first"]})
    short, printed = command("1")
    assert len(printed) == 6
    full, printed = command("1", "2")
    switches, places = full["switches"], full["places"]
    runs = [switches[PAPER]["losses"], places["first, warm-up"], places["first, no warm-up"]]
    runs.append(switches["RMSNorm"]["losses"])
    written = [seed for run in runs for seed in zip(run["1"], run["2"], strict=True)]
    assert printed == [[f"{loss:.3f}" for loss in losses] for losses in written]
    assert len(switches[PAPER]["losses"]["2"]) == 3 and switches[PAPER]["time"] == 1.0
    assert switches[PAPER]["losses"]["1"] == short["switches"][PAPER]["losses"]["1"]
    assert switches["RMSNorm"]["time"] == short["switches"]["RMSNorm"]["time"]
    assert command("1", "2") == (full, [])


@pytest.mark.parametrize("arguments", [("--seeds", "0"), ("--updates", "0")])
def test_a_run_that_measures_nothing_is_refused(arguments, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["paper_code_today", "nowhere.json", *arguments])
    with pytest.raises(SystemExit):
        main()
    assert "at least one" in capsys.readouterr().err
