"""What each kind of network takes for granted, as accuracies: four networks, four small tasks, few examples.

    python -m experiments.inductive_bias data/results/inductive_bias.json [--seeds 10]

Each task is a yes or no about twelve letters, and was made to fit one network: which of two fixed places holds the
earlier letter (MLP), a motif anywhere (convolution), a light switched on and off (recurrence), the value of the key
that is asked for (attention). All have some 20,000 weights and train alike. Of three rates each network takes, for each
task, the one that is best on validation texts of three draws; other draws are then scored. What attention learns last,
two places, it also learns from ten times as many texts.
"""

import statistics

import torch
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm

from experiments.four_tasks import NETWORKS, TASKS
from experiments.results import about, arguments, save

EXAMPLES, VALIDATED, TESTED = 300, 500, 2000  # texts of one draw
MORE_EXAMPLES = 3000
UPDATES, BATCH = 600, 100
RATES = (1e-3, 3e-3, 1e-2)
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


def main() -> None:
    """Choose the rates, train, and write the results."""
    args = arguments(__doc__, seeds=10).parse_args()
    shares: dict[str, dict[str, list[float]]] = {task: {} for task in TASKS}
    rates: dict[str, dict[str, float]] = {task: {} for task in TASKS}
    for task, network in tqdm([(task, network) for task in TASKS for network in NETWORKS]):
        rates[task][network], shares[task][network] = score(task, network, args.seeds)
    rate, accuracy = score(*LEARNED_LAST, args.seeds, MORE_EXAMPLES)
    more = {"task and network": LEARNED_LAST, "examples": MORE_EXAMPLES, "rate": rate, "accuracies": accuracy}
    weights = {name: sum(p.numel() for p in make().parameters()) for name, make in NETWORKS.items()}
    content = {"about": about(), "examples": EXAMPLES, "weights": weights, "rates": rates, "accuracies": shares}
    save(args.results, content | {"more texts": more})


if __name__ == "__main__":
    main()
