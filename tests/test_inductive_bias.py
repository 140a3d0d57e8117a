"""The tasks of experiments.inductive_bias ask what they say, and the networks are as large as it says."""

import json

import pytest
import torch
from once import once

from experiments.four_tasks import LENGTH, LETTERS, NETWORKS, TASKS
from experiments.inductive_bias import EXAMPLES, TESTED, VALIDATED, accuracies, main


def has_motif(letters: list[int]) -> bool:
    return any(letters[i : i + 3] == [0, 1, 2] for i in range(LENGTH))


def light(letters: list[int]) -> bool:
    on = False
    for letter in letters:
        on = {0: True, 1: False, 2: not on}.get(letter, on)
    return on


def value_of(letters: list[int]) -> bool:
    asked = letters[-1] - 16
    (pair,) = {letter for letter in letters[:-1] if letter // 2 == asked}  # it has one value, wherever it stands
    return bool(pair % 2)


@pytest.mark.parametrize(
    ("task", "rule"),
    [
        ("two places", lambda letters: letters[3] < letters[9]),
        ("motif", has_motif),
        ("on or off", light),
        ("lookup", value_of),
    ],
)
def test_labels_follow_the_rule_and_halve_the_texts(task: str, rule) -> None:
    ids, labels = TASKS[task](2000, torch.Generator().manual_seed(3))
    assert ids.shape == (2000, LENGTH) and ids.min() >= 0 and ids.max() < LETTERS
    assert labels.tolist() == [int(rule(letters)) for letters in ids.tolist()]
    assert labels.float().mean().item() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_has_some_20_000_weights_and_answers_each_text_by_itself(network: str) -> None:
    torch.manual_seed(0)
    model = NETWORKS[network]()
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(20_000, rel=0.05)
    ids = torch.randint(LETTERS, (5, LENGTH), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(ids)[1:3], model(ids[1:3]))


@pytest.mark.thorough
def test_a_network_is_scored_on_texts_that_it_has_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.inductive_bias.UPDATES", 150)
    count = EXAMPLES + VALIDATED + TESTED
    ids, labels = TASKS["motif"](count, torch.Generator().manual_seed(0))
    labels[-TESTED:] = 1 - labels[-TESTED:]  # a rule of their own: what was learned is wrong there
    monkeypatch.setitem(TASKS, "turned", lambda count, generator: (ids, labels))
    validated, tested = accuracies("turned", "convolution", 3e-3, 0)
    assert validated > 0.9 and tested < 0.1


@once
def test_the_command_writes_what_it_prints(tmp_path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, count in (("UPDATES", 2), ("VALIDATED", 50), ("TESTED", 100), ("MORE_EXAMPLES", 400)):
        monkeypatch.setattr(f"experiments.inductive_bias.{name}", count)
    monkeypatch.setattr("experiments.inductive_bias.TASKS", {task: TASKS[task] for task in ("two places", "motif")})
    monkeypatch.setattr("sys.argv", ["inductive_bias", str(tmp_path / "bias.json"), "--seeds", "2"])
    main()
    found = json.loads((tmp_path / "bias.json").read_text(encoding="utf-8"))
    assert found["accuracies"]["motif"].keys() == NETWORKS.keys() and found["examples"] == EXAMPLES
    mean = sum(found["accuracies"]["motif"]["attention"]) / 2
    assert f"attention {mean:.1%}" in " ".join(capsys.readouterr().out.split())
    assert found["more texts"]["examples"] == 400
