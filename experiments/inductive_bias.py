"""What each kind of network takes for granted, as accuracies: four networks, four small tasks, few examples.

    python -m experiments.inductive_bias data/results/inductive_bias.json [--seeds 10]

Each task is a yes or no about twelve letters, and was made to fit one network: which of two fixed places holds the
earlier letter (MLP), a motif anywhere (convolution), a light switched on and off (recurrence), the value of the key
that is asked for (attention). All have some 20,000 weights and train alike. Of three rates each network takes, for each
task, the one that is best on validation texts of three draws; other draws are then scored. What attention learns last,
two places, it also learns from ten times as many texts.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from annotated.config import TransformerConfig
from annotated.encoder import Encoder
from annotated.positional_encoding import LearnedEncoding
from annotated_course.bench import processor
from annotated_workbench.files import write_whole

LENGTH, LETTERS = 12, 24
EXAMPLES, VALIDATED, TESTED = 300, 500, 2000  # texts of one draw
MORE_EXAMPLES = 3000
UPDATES, BATCH = 600, 100
RATES = (1e-3, 3e-3, 1e-2)


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


LEARNED_LAST = "two places", "attention"


def accuracies(task: str, network: str, rate: float, seed: int, examples: int = EXAMPLES) -> tuple[float, float]:
    """Train on one draw of a task; return the shares of validation and test texts that it gets right."""
    generator = torch.Generator().manual_seed(seed)
    ids, labels = TASKS[task](examples + VALIDATED + TESTED, generator)
    torch.manual_seed(seed)
    model = NETWORKS[network]()
    optimizer = torch.optim.Adam(model.parameters(), rate)
    for update in range(UPDATES):
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 - update / UPDATES)
        batch = torch.randint(examples, (BATCH,), generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(model(ids[batch]), labels[batch]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        right = (model(ids).argmax(dim=1) == labels).float()
    return right[examples:-TESTED].mean().item(), right[-TESTED:].mean().item()


def score(task: str, network: str, seeds: int, examples: int = EXAMPLES) -> tuple[float, list[float]]:
    """Choose the rate on validation texts; return it, and the shares of test texts right on other draws."""
    tried = {
        rate: statistics.mean(accuracies(task, network, rate, 1000 + seed, examples)[0] for seed in range(3))
        for rate in RATES
    }
    best = max(tried, key=tried.__getitem__)
    return best, [round(accuracies(task, network, best, seed, examples)[1], 4) for seed in range(seeds)]


def mean_and_spread(shares: list[float]) -> str:
    """Write the mean and the standard deviation of some shares, in percent."""
    return f"{100 * statistics.mean(shares):.1f} ± {100 * statistics.stdev(shares):.1f}"


def main() -> None:
    """Choose the rates, train, write the results, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path, help="the JSON file to write")
    parser.add_argument("--seeds", type=int, default=10, help="draws and initialisations to score")
    args = parser.parse_args()
    if args.seeds < 2:
        parser.error(f"--seeds {args.seeds}: at least 2 are wanted, to see a spread.")
    shares: dict[str, dict[str, list[float]]] = {task: {} for task in TASKS}
    rates: dict[str, dict[str, float]] = {task: {} for task in TASKS}
    for task, network in tqdm([(task, network) for task in TASKS for network in NETWORKS]):
        rates[task][network], shares[task][network] = score(task, network, args.seeds)
    rate, found = score(*LEARNED_LAST, args.seeds, MORE_EXAMPLES)
    more = {"task and network": LEARNED_LAST, "examples": MORE_EXAMPLES, "rate": rate, "accuracies": found}
    weights = {name: sum(p.numel() for p in make().parameters()) for name, make in NETWORKS.items()}
    about = {"torch": torch.__version__, "processor": processor(), "date": time.strftime("%Y-%m-%d")}
    content = {"about": about, "examples": EXAMPLES, "weights": weights, "rates": rates, "accuracies": shares}
    content["more texts"] = more
    write_whole(args.results, (json.dumps(content, indent=1) + "\n").encode())
    print(f"{'% right':<12}" + "".join(f"{network:>16}" for network in NETWORKS))
    for task, row in shares.items():
        print(f"{task:<12}" + "".join(f"{mean_and_spread(row[network]):>16}" for network in NETWORKS))
    print(f"{', '.join(LEARNED_LAST)}, {MORE_EXAMPLES:,} texts: {mean_and_spread(found)}")


if __name__ == "__main__":
    main()
