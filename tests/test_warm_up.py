"""The command behind section 8 of 04_encoder measures what it says, and writes what it prints."""

import json

import pytest
import torch
from once import once

from experiments.warm_up import CASES, OPTIONS, difference, main, train


def test_the_first_step_measures_the_model_before_training() -> None:
    config, rates = CASES["warm-up"]
    first = train(config, rates[:1], seed=0)[0]
    torch.testing.assert_close(first, train(config, 5 * rates[:1], seed=0)[0])
    assert 2 < first[0] < 4 and (first[1:] > 0.1).all()
    assert difference(torch.tensor([[3.0, 4], [3, -4]])) == pytest.approx(0.8)


def test_pytorchs_own_weights_keep_the_positions_apart() -> None:
    config, rates = CASES["no warm-up, PyTorch's own weights"]
    options = OPTIONS["no warm-up, PyTorch's own weights"]
    assert train(config, rates[:11], 0, **options)[-1, 1] > 10 * train(config, rates[:11], 0)[-1, 1]


def test_without_the_common_part_the_positions_stay_apart() -> None:
    config, rates = CASES["no warm-up, common part taken out"]
    assert train(config, rates[:11], 0, take_out_common=True)[-1, 1] > 50 * train(config, rates[:11], 0)[-1, 1]


@once
def test_the_command_writes_what_it_prints(tmp_path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    shortened = {name: (config, rates[:20]) for name, (config, rates) in CASES.items() if name.startswith("two")}
    monkeypatch.setattr("experiments.warm_up.CASES", shortened)
    monkeypatch.setattr("sys.argv", ["warm_up", str(tmp_path / "warm_up.json"), "--seeds", "2"])
    main()
    (case,) = json.loads((tmp_path / "warm_up.json").read_text(encoding="utf-8"))["cases"].values()
    tens = torch.tensor(case["means of ten steps"])
    assert tens.shape == (2, 2, 3) and torch.tensor(case["after ten steps"]).shape == (2, 3)
    assert capsys.readouterr().out.endswith(f"{tens[:, -1, 0].mean():.3f}\n")
