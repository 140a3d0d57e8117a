"""The switches behind 20_paper_code_today change what their names say, and have the sizes that the chapter shows."""

import json
import math

import pytest
import torch
from once import once
from torch import nn

from annotated.config import TransformerConfig
from annotated.training import make_optimizer, train_step
from annotated.transformer import Transformer
from annotated_workbench.data import DATA_FOLDER
from experiments.contestants import batch
from experiments.paper_code_today import make_model, sizes, update
from experiments.switches import PAPER, PEAK, PLACES, SWITCHES, WARM_UP, at_once, cosine, paper_rate, twice

pytestmark = once

SMALL = TransformerConfig(31, d_model=64, d_ff=128, heads=4, layers=2, max_length=128)
PAIRS = batch(SMALL, 8, 7)


def test_the_paper_is_the_paper_s_model_and_update() -> None:
    models = []
    for make, step in ((lambda: make_model(SWITCHES[PAPER], 31), update), (lambda: Transformer(SMALL), train_step)):
        torch.manual_seed(0)
        models.append(make().train())
        step(models[-1], *PAIRS, make_optimizer(models[-1]), *([SWITCHES[PAPER]] if step is update else []))
    torch.testing.assert_close(*(dict(model.named_parameters()) for model in models))


@pytest.mark.parametrize("name", [name for name in SWITCHES if name != PAPER])
def test_every_switch_changes_the_model_or_its_training(name: str) -> None:
    def logits(name: str) -> torch.Tensor:
        torch.manual_seed(0)
        model = make_model(SWITCHES[name], 31).double().train()
        torch.manual_seed(1)
        return model(*PAIRS)

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
        update(model, *PAIRS, torch.optim.SGD(model.parameters(), lr=0.0), SWITCHES[name])
        norms[name] = nn.utils.clip_grad_norm_(model.parameters(), math.inf)
    assert norms["gradients clipped at 1"] == pytest.approx(1, rel=1e-3) and norms[PAPER] > 1.1


def test_schedules() -> None:
    assert paper_rate(WARM_UP) == pytest.approx(PEAK) and paper_rate(7) / paper_rate(1) == pytest.approx(7)
    assert at_once(1) == paper_rate(WARM_UP) and at_once(90) == paper_rate(90)
    assert twice(3) / paper_rate(3) == pytest.approx(2 / 2**1.5) and twice(100) / paper_rate(100) == pytest.approx(2)
    for updates in (120, 600):
        assert cosine(updates // 10, updates) == pytest.approx(PEAK) == pytest.approx(10 * cosine(updates, updates))
