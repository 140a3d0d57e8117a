"""What a warm-up can be for, from many seeds: the runs of *Deeper* in 04_encoder, some seven minutes.

    python -m experiments.warm_up data/results/warm_up.json [--seeds 12]

Of each run: the loss, and at the top of the encoder the difference between the positions and that between the
sentences, at the first step, after ten, and as means of each ten steps.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from annotated.config import TransformerConfig
from annotated.encoder import Encoder
from experiments.results import about, arguments, save

SMALL = TransformerConfig(vocab_size=1, d_model=32, d_ff=128, heads=4, dropout=0.0)
DONE = torch.arange(1, 121) / 120  # share of the training done at each update
NO_WARM_UP = 0.008 * (2 - 2 * DONE).clamp(max=1)
WARM_UP = torch.minimum(NO_WARM_UP, 0.008 * 2 * DONE)


@dataclass(frozen=True)
class Case:
    """A way to train: the rate of each step, that of weights inside the sub-layers, the model, two changes of it."""

    rates: Tensor = NO_WARM_UP
    rates_inside: Tensor = NO_WARM_UP  # for attention and feed-forward networks
    config: TransformerConfig = SMALL
    take_out_common: bool = False  # subtract from each sub-layer's output its mean over all words of the batch
    xavier: bool = True  # else the weights stay as `nn.Linear` draws them, smaller


LARGEST_FIRST = WARM_UP.sort(descending=True).values
BOTH, PARTS = {"warm-up": WARM_UP, "no warm-up": NO_WARM_UP}, {"⅓": 3, "⅒": 10}
CASES = {
    "warm-up": Case(WARM_UP, WARM_UP),
    "no warm-up": Case(),
    "the warm-up's rates, largest first": Case(LARGEST_FIRST, LARGEST_FIRST),
    "pre-norm, no warm-up": Case(config=replace(SMALL, norm_first=True)),
    "two layers, no warm-up": Case(config=replace(SMALL, layers=2)),
    "warm-up in the sub-layers alone": Case(rates_inside=WARM_UP),
    "no warm-up, common part taken out": Case(take_out_common=True),
    "no warm-up, PyTorch's own weights": Case(xavier=False),
} | {f"{name}, rates × {part}": Case(r / n, r / n) for name, r in BOTH.items() for part, n in PARTS.items()}


def difference(x: Tensor) -> float:
    """Compare the rows with their mean: how long is what is left, as a share of all (0: they are equal)?"""
    return ((x - x.mean(dim=-2, keepdim=True)).norm() / x.norm()).item()


class Reverser(nn.Module):
    """Read five digits; score, at each place, which digit stands there in reverse order."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.digit, self.place = nn.Embedding(10, 32), nn.Embedding(5, 32)
        self.encoder = Encoder(config)
        self.read_out = nn.Linear(32, 10)

    def forward(self, digits: Tensor) -> tuple[Tensor, float, float]:
        """Return the scores, and the differences between the positions and between the sentences at the top."""
        memory = self.encoder(self.digit(digits) + self.place.weight)
        return self.read_out(memory), difference(memory), difference(memory.mean(dim=1))


def train(seed: int, case: Case, steps: int = 120) -> Tensor:
    """Train in float64; return, step by step, the loss and the two differences (step, 3)."""
    torch.manual_seed(seed)
    model = Reverser(case.config)
    for part in model.modules():
        if case.xavier and isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
    model.double()
    sublayers = [part for layer in model.encoder.layers for part in (layer.self_attention, layer.feed_forward)]
    inside = {parameter for part in sublayers for parameter in part.parameters()}
    groups = [[each for each in model.parameters() if (each in inside) == is_in] for is_in in (False, True)]
    for part in sublayers if case.take_out_common else ():
        part.register_forward_hook(lambda _, inputs, output: output - output.mean(dim=(0, 1), keepdim=True))
    optimizer = torch.optim.Adam([{"params": group} for group in groups], lr=0.0, betas=(0.9, 0.98), eps=1e-9)
    drawn, history = torch.Generator().manual_seed(seed), []
    for rates in torch.stack((case.rates, case.rates_inside), dim=1)[:steps].tolist():
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        digits = torch.randint(10, (32, 5), generator=drawn)
        scores, positions, sentences = model(digits)
        loss = F.cross_entropy(scores.flatten(0, 1), digits.flip(1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append((loss.item(), positions, sentences))
    return torch.tensor(history)


def main() -> None:
    """Train every case from every seed, and write the results."""
    args = arguments(__doc__, seeds=12).parse_args()
    measured = {}
    for name, case in tqdm(CASES.items()):
        runs = [train(seed, case) for seed in range(args.seeds)]
        measured[name] = {
            "first step": [rounded(run[0]) for run in runs],
            "after ten steps": [rounded(run[10]) for run in runs],
            "means of ten steps": [[rounded(ten.mean(dim=0)) for ten in run.split(10)] for run in runs],
            "least difference between the positions": [rounded(run[:, 1].min()) for run in runs],
        }
    content = {"about": about(), "measured": ["loss", "between positions", "between sentences"], "cases": measured}
    save(args.results, content, indent=None)


def rounded(numbers: Tensor) -> list[float] | float:
    """Keep four digits of each number."""
    return numbers.double().apply_(lambda number: float(f"{number:.4g}")).tolist()


if __name__ == "__main__":
    main()
