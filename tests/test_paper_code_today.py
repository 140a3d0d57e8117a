"""The command behind 20_paper_code_today switches what it says, and goes on where it was stopped."""

import json
import math

import pytest
import torch
from torch import nn

from annotated.config import TransformerConfig
from annotated.encoder import LayerNorm
from annotated.training import make_optimizer, train_step
from annotated.transformer import Transformer
from annotated_workbench.data import Pairs, encode_pairs
from annotated_workbench.vocabulary import SubwordTokenizer
from experiments import paper_code_today
from experiments.paper_code_today import Task, example, main, make_model, sizes, update
from experiments.switches import PAPER, PEAK, PLACES, SWITCHES, WARM_UP, at_once, cosine, paper_rate, twice

VOCABULARY = 31


def logits(name: str, training: bool = False) -> torch.Tensor:
    torch.manual_seed(0)
    model = make_model(SWITCHES[name], VOCABULARY).double().train(training)
    src, tgt = example(VOCABULARY)
    torch.manual_seed(1)
    return model(src, tgt[:, :-1])


def test_the_paper_is_the_papers_model_and_its_update() -> None:
    sizes_of_it = dict(d_model=64, d_ff=128, heads=4, layers=2, max_length=128)
    torch.manual_seed(0)
    ours = make_model(SWITCHES[PAPER], VOCABULARY)
    torch.manual_seed(0)
    papers = Transformer(TransformerConfig(VOCABULARY, **sizes_of_it))
    torch.manual_seed(2)
    loss = update(ours, *example(VOCABULARY), make_optimizer(ours), SWITCHES[PAPER])
    torch.manual_seed(2)
    assert loss == train_step(papers, *example(VOCABULARY), make_optimizer(papers))
    torch.testing.assert_close(dict(ours.named_parameters()), dict(papers.named_parameters()))


@pytest.mark.parametrize("name", [name for name in SWITCHES if name != PAPER])
def test_every_switch_changes_something(name: str) -> None:
    """Another function, other sizes, or another way to train."""
    switch, paper = SWITCHES[name], SWITCHES[PAPER]
    if switch.config == switch.parts == {} and switch.change is paper.change:
        assert switch != paper
    elif name in ("norm after, and one more at the end", "no biases in the feed-forward"):  # the same at the start
        torch.testing.assert_close(logits(name), logits(PAPER), atol=1e-4, rtol=1e-4)
    else:
        assert not torch.allclose(logits(name, training=True), logits(PAPER, training=True), atol=1e-3)


@pytest.mark.parametrize(
    ("name", "norms"),
    [
        (PAPER, 10),
        ("norm first, none at the end", 10),
        ("norm first, and one at the end", 12),
        ("norm after, and one more at the end", 12),
        ("norm before and after", 22),
        ("norm on the branch alone", 12),
    ],
)
def test_norms_stand_where_their_names_say(name: str, norms: int) -> None:
    assert sum(isinstance(part, LayerNorm) for part in make_model(SWITCHES[name], VOCABULARY).modules()) == norms


def test_clipping_bounds_the_gradient() -> None:
    torch.manual_seed(0)
    model = make_model(SWITCHES[PAPER], VOCABULARY)
    norms = {}
    for name in (PAPER, "gradients clipped at 1"):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        update(model, *example(VOCABULARY), optimizer, SWITCHES[name])
        norms[name] = nn.utils.clip_grad_norm_(model.parameters(), math.inf)
    assert norms["gradients clipped at 1"] == pytest.approx(1, rel=1e-3) and norms[PAPER] > 1.1


def test_schedules() -> None:
    assert paper_rate(WARM_UP) == pytest.approx(PEAK) and paper_rate(7) / paper_rate(1) == pytest.approx(7)
    assert at_once(1) == paper_rate(WARM_UP) and at_once(90) == paper_rate(90)
    assert twice(3) / paper_rate(3) == pytest.approx(2 / 2**1.5) and twice(100) / paper_rate(100) == pytest.approx(2)
    for updates in (120, 600):
        assert cosine(updates // 10, updates) == pytest.approx(PEAK) == pytest.approx(10 * cosine(updates, updates))


def test_groups_keep_less() -> None:
    names = (PAPER, "2 groups for 4 heads", "1 group for 4 heads")
    assert [sizes(SWITCHES[name], VOCABULARY)["bytes kept"] for name in names] == [1024, 512, 256]


def test_the_command_makes_no_run_twice(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = Pairs(["ein Hund", "zwei Hunde", "ein Mann"], ["a dog", "two dogs", "a man"])
    tokenizer = SubwordTokenizer.train(pairs, vocab_size=260)
    task = Task(encode_pairs(pairs, tokenizer, "de", "en", max_length=64), pairs, tokenizer)
    monkeypatch.setattr(paper_code_today, "load_task", lambda: task)
    monkeypatch.setattr(paper_code_today, "SWITCHES", {name: SWITCHES[name] for name in (PAPER, "cosine schedule")})
    monkeypatch.setattr(paper_code_today, "PLACES", {"first, warm-up": PLACES["first, warm-up"]})
    file = tmp_path / "it.json"
    monkeypatch.setattr("sys.argv", ["paper_code_today", str(file), "--seeds", "1", "--updates", "1", "2"])
    main()
    results = json.loads(file.read_text(encoding="utf-8"))
    assert [len(results["switches"][PAPER]["losses"][updates]) for updates in "12"] == [3, 3]
    assert len(results["places"]["first, warm-up"]["2"]) == 1
    assert len(results["switches"]["cosine schedule"]["losses"]["2"]) == 1
    monkeypatch.setattr(paper_code_today, "train", None)  # would be called for any run that is missing
    main()
    assert json.loads(file.read_text(encoding="utf-8")) == results
