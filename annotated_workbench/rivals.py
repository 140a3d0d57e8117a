"""What predicts a text without a network: counts of what followed the last characters."""

from array import array

import torch
from jaxtyping import Float64, Int32
from torch import Tensor


def count_runs(text: str, longest: int, end: int) -> Int32[Tensor, "2 runs length"]:
    """Count, for each character, how often it has followed the last 0, 1, … `longest` before it, and how often any did.

    Counted is what lies before its place, and before `end`. So the text up to `end` is predicted as one reads on, and
    what comes after it from all that was read.
    """
    followed: dict[str, int] = {}
    seen: dict[str, int] = {}
    counts = [[array("i") for _ in range(longest + 1)] for _ in range(2)]
    for i in range(len(text)):
        for n in range(longest + 1):
            run = text[i - n : i + 1] if n <= i else ""  # none, at the beginning
            times, any_time = followed.get(run, 0), seen.get(run[:-1], 0)
            counts[0][n].append(times)
            counts[1][n].append(any_time if run else 0)
            if run and i < end:
                followed[run], seen[run[:-1]] = times + 1, any_time + 1
    return torch.stack([torch.stack([torch.frombuffer(row, dtype=torch.int32) for row in side]) for side in counts])


def counted_bits(
    counts: Int32[Tensor, "2 runs length"], weight: float, characters: int
) -> Float64[Tensor, "runs length"]:
    """Predict each character by its counts, where longer runs lean on shorter ones, and give -log2 of its probability.

    p_n = (times it followed + w p_(n-1)) / (times the run was seen + w), and p_(-1) = 1 / characters, of the counts by
    `count_runs`; the weight w says for how many occurrences the next shorter run's prediction counts.
    """
    p, bits = torch.full(counts.shape[2:], 1 / characters, dtype=torch.float64), []
    for times, any_time in zip(*counts, strict=True):
        p = (times + weight * p) / (any_time + weight)
        bits.append(-p.log2())
    return torch.stack(bits)
