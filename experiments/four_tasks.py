"""Four small tasks, each made to fit one network, and the four networks: for `experiments.inductive_bias`."""

from collections.abc import Callable
from itertools import pairwise

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


class MLP(nn.Module):
    """Weights of its own for each place."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(LETTERS, 16)
        widths = (LENGTH * 16, 84, 36)
        layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
        self.layers = nn.Sequential(*layers, nn.Linear(36, 2))

    def forward(self, ids: Tensor) -> Tensor:
        """Give the logits of no and yes."""
        return self.layers(self.embedding(ids).flatten(1))


class Convolution(nn.Module):
    """Two windows of three letters, the same at every place, and the largest of what they find."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(LETTERS, 32)
        self.first, self.second = nn.Conv1d(32, 64, 3, padding=1), nn.Conv1d(64, 64, 3, padding=1)
        self.output = nn.Linear(64, 2)

    def forward(self, ids: Tensor) -> Tensor:
        """Give the logits of no and yes."""
        x = self.embedding(ids).transpose(1, 2)
        return self.output(self.second(self.first(x).relu()).relu().amax(dim=2))


class Recurrence(nn.Module):
    """An LSTM, and its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(LETTERS, 32)
        self.lstm = nn.LSTM(32, 54, batch_first=True)
        self.output = nn.Linear(54, 2)

    def forward(self, ids: Tensor) -> Tensor:
        """Give the logits of no and yes."""
        return self.output(self.lstm(self.embedding(ids))[0][:, -1])


class Attention(nn.Module):
    """Two encoder layers with learned positions, and the last state."""

    def __init__(self) -> None:
        super().__init__()
        config = TransformerConfig(LETTERS, d_model=32, d_ff=84, heads=2, layers=2, dropout=0.0, norm_first=True)
        self.embedding = nn.Embedding(LETTERS, 32)
        self.positions = LearnedEncoding(32, LENGTH)
        self.encoder = Encoder(config)
        self.output = nn.Linear(32, 2)

    def forward(self, ids: Tensor) -> Tensor:
        """Give the logits of no and yes."""
        return self.output(self.encoder(self.positions(self.embedding(ids)))[:, -1])


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "MLP": MLP,
    "convolution": Convolution,
    "recurrence": Recurrence,
    "attention": Attention,
}
