"""The command behind section 2 of 10_why_attention measures what it says."""

from collections.abc import Callable

import torch
from once import once
from torch import Tensor, nn

from experiments.reversing import LETTERS, START, TESTED, share_right, train

pytestmark = once


def test_a_string_counts_only_if_every_letter_is_right() -> None:
    def share(write: Callable[[Tensor], Tensor], length: int) -> float:
        return share_right(lambda strings: nn.functional.one_hot(write(strings), LETTERS), length)

    assert share(lambda strings: strings.flip(1), 5) == 1
    last_wrong = torch.tensor([0, 0, 0, 0, 1])
    assert share(lambda strings: (strings.flip(1) + last_wrong) % LETTERS, 5) == 0
    assert 0 < share(lambda strings: strings, 2) < 0.3  # only a letter twice


def test_a_model_that_reads_its_own_letters_writes_as_many_strings() -> None:
    model, length = train(True, 16, 50, seed=0).requires_grad_(False), 2
    strings = torch.randint(LETTERS, (TESTED, length), generator=torch.Generator().manual_seed(length))
    states, memory = model.encoder(model.letter(strings))
    letters = [torch.full((TESTED,), START)]
    for _ in range(length):
        found, memory = model.decoder(model.letter(letters[-1])[:, None], memory)
        context = (found @ states.mT).softmax(dim=-1) @ states
        letters.append(model.output(torch.cat([context, found], dim=-1))[:, 0].argmax(dim=-1))
    right = (torch.stack(letters[1:], dim=1) == strings.flip(1)).all(dim=1).double().mean()
    assert 0.05 < right == share_right(model, length)
