"""The tasks of experiments.inductive_bias ask what they say, and the networks are as large as it says."""

import pytest
import torch
from once import once

from experiments.four_tasks import LENGTH, LETTERS, NETWORKS, TASKS
from experiments.inductive_bias import EXAMPLES, TESTED, VALIDATED, accuracies

pytestmark = once


def light(letters: list[int]) -> bool:
    on = False
    for letter in letters:
        on = {0: True, 1: False, 2: not on}.get(letter, on)
    return on


def value_of(letters: list[int]) -> bool:
    (pair,) = {letter for letter in letters[:-1] if letter // 2 == letters[-1] - 16}  # one value, wherever it stands
    return bool(pair % 2)


RULES = {
    "two places": lambda letters: letters[3] < letters[9],
    "motif": lambda letters: any(letters[i : i + 3] == [0, 1, 2] for i in range(LENGTH)),
    "on or off": light,
    "lookup": value_of,
}


@pytest.mark.parametrize("task", TASKS)
def test_labels_follow_the_rule_and_halve_the_texts(task: str) -> None:
    ids, labels = TASKS[task](2000, torch.Generator().manual_seed(3))
    assert ids.shape == (2000, LENGTH) and ids.min() >= 0 and ids.max() < LETTERS
    assert labels.tolist() == [int(RULES[task](letters)) for letters in ids.tolist()]
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
    ids, labels = TASKS["motif"](EXAMPLES + VALIDATED + TESTED, torch.Generator().manual_seed(0))
    labels[-TESTED:] = 1 - labels[-TESTED:]  # a rule of their own: what was learned is wrong there
    monkeypatch.setitem(TASKS, "turned", lambda count, generator: (ids, labels))
    validated, tested = accuracies("turned", "convolution", 3e-3, 0)
    assert validated > 0.9 and tested < 0.1
