"""Four small tasks, each made to fit one network, and the four networks: for `experiments.inductive_bias`."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from annotated.config import TransformerConfig
from annotated.encoder import Encoder
from annotated.positional_encoding import LearnedEncoding

LENGTH, LETTERS = 12, 24


def motif(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Does 0 1 2 stand somewhere, in this order and without a gap? In a text that says no, 0, 1 and 2 stand apart."""
    ids = torch.randint(3, LETTERS, (count, LENGTH), generator=generator)
    labels = torch.arange(count) % 2
    for row, label in zip(ids, labels.tolist(), strict=True):
        if label:
            start = int(torch.randint(LENGTH - 2, (), generator=generator))
            row[start : start + 3] = torch.arange(3)
        else:
            while True:
                places = torch.randperm(LENGTH, generator=generator)[:3]
                if places.diff().tolist() != [1, 1]:
                    break
            row[places] = torch.arange(3)
    return ids, labels


def on_or_off(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Is the light on at the end? 0 turns it on, 1 turns it off, 2 changes it, and half of the letters do nothing."""
    ids = torch.randint(3, LETTERS, (count, LENGTH), generator=generator)
    acts = torch.rand(count, LENGTH, generator=generator) < 0.5
    ids[acts] = torch.randint(3, (int(acts.sum()),), generator=generator)
    labels = torch.zeros(count, dtype=torch.long)
    for letter in ids.unbind(dim=1):
        labels = torch.where(letter == 2, 1 - labels, torch.where(letter < 2, 1 - letter, labels))
    return ids, labels


def two_places(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Is the letter at place 3 earlier in the alphabet than the one at place 9?"""
    ids = torch.randint(LETTERS, (count, LENGTH), generator=generator)
    ids[:, 9] = (ids[:, 3] + torch.randint(1, LETTERS, (count,), generator=generator)) % LETTERS
    return ids, (ids[:, 3] < ids[:, 9]).long()


def lookup(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Seven of eight keys stand in the text, each with a value, 0 or 1; the last letter asks for one key's value."""
    keys = torch.rand(count, 8, generator=generator).argsort(dim=1)[:, :7]
    pairs = 2 * keys + torch.randint(2, (count, 7), generator=generator)
    places = torch.cat([torch.arange(7).expand(count, 7), torch.randint(7, (count, 4), generator=generator)], dim=1)
    places = places.gather(1, torch.rand(count, 11, generator=generator).argsort(dim=1))  # four stand twice
    asked = pairs.gather(1, torch.randint(7, (count, 1), generator=generator))
    return torch.cat([pairs.gather(1, places), 16 + asked // 2], dim=1), asked[:, 0] % 2


TASKS = {"two places": two_places, "motif": motif, "on or off": on_or_off, "lookup": lookup}


class Apply(nn.Module):
    """A function without weights, as a layer."""

    def __init__(self, function: Callable[..., Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Tensor:
        """Apply the function."""
        return self.function(x)


def mlp() -> nn.Module:
    """Make a network with weights of its own for each place."""
    embedded = [nn.Embedding(LETTERS, 16), nn.Flatten()]
    layers = [nn.Linear(LENGTH * 16, 84), nn.ReLU(), nn.Linear(84, 36), nn.ReLU(), nn.Linear(36, 2)]
    return nn.Sequential(*embedded, *layers)


def convolution() -> nn.Module:
    """Make two windows of three letters, the same at every place; what counts is the largest of what they find."""
    embedding = nn.Sequential(nn.Embedding(LETTERS, 32), Apply(lambda x: x.transpose(1, 2)))
    windows = [nn.Conv1d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv1d(64, 64, 3, padding=1), nn.ReLU()]
    return nn.Sequential(embedding, *windows, Apply(lambda x: x.amax(dim=2)), nn.Linear(64, 2))


def recurrence() -> nn.Module:
    """Make an LSTM whose last state counts."""
    lstm = [nn.Embedding(LETTERS, 32), nn.LSTM(32, 54, batch_first=True)]
    return nn.Sequential(*lstm, Apply(lambda states: states[0][:, -1]), nn.Linear(54, 2))


def attention() -> nn.Module:
    """Make two encoder layers with learned positions; the last state counts."""
    config = TransformerConfig(LETTERS, d_model=32, d_ff=84, heads=2, layers=2, dropout=0.0, norm_first=True)
    layers = [nn.Embedding(LETTERS, 32), LearnedEncoding(32, LENGTH), Encoder(config)]
    return nn.Sequential(*layers, Apply(lambda x: x[:, -1]), nn.Linear(32, 2))


NETWORKS = {"MLP": mlp, "convolution": convolution, "recurrence": recurrence, "attention": attention}
