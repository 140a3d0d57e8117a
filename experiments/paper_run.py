"""What the paper's training takes, counted on our own models: weights, operations, the share of their GPUs' peak.

    python -m experiments.paper_run [--length 30] [--batch-tokens 25000]

The figures stand in docs/PAPER_RUN.md. Models hold no numbers here, so the command takes seconds.
"""

import argparse

import torch
from torch.utils.flop_counter import FlopCounterMode

from annotated.config import TransformerConfig
from annotated.transformer import Transformer

VOCABULARY = 37_000  # §5.1
PAPER = {"base": (100_000, 0.4, 3.3e18), "big": (300_000, 1.0, 2.3e19)}  # updates, seconds of each (§5.2), Table 2
GPUS, P100 = 8, 9.5e12  # the authors' GPUs, and the operations a second that §6.1 takes one to sustain


def main() -> None:
    """Print a line for each of the paper's models."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--length", type=int, default=30, help="tokens of a sentence")
    parser.add_argument("--batch-tokens", type=int, default=25_000, help="of an update, a side, padding included")
    args = parser.parse_args()
    print("model   weights  TFLOP an update  EFLOP in all (Table 2)  of the P100s' 9.5 TFLOP/s")
    for name, (updates, seconds, table_2) in PAPER.items():
        weights, operations = weights_and_operations(getattr(TransformerConfig, name)(VOCABULARY), args.length)
        work = operations * args.batch_tokens
        print(
            f"{name:5} {weights / 1e6:7.1f} M {work / 1e12:14.1f} {updates * work / 1e18:14.2f} "
            f"({table_2 / 1e18:4.1f}) {work / seconds / GPUS / P100:25.0%}"
        )


def weights_and_operations(config: TransformerConfig, length: int) -> tuple[int, float]:
    """Count a model's weights, and the operations of an update for each position of a source and of its target.

    An operation is a product or a sum, counted in the forward and the backward pass.
    """
    with torch.device("meta"):
        model = Transformer(config)
        ids = torch.ones(1, length + 1, dtype=torch.int64)
        with FlopCounterMode(display=False) as counter:
            model(ids[:, 1:], ids[:, :-1]).sum().backward()
    return sum(parameter.numel() for parameter in model.parameters()), counter.get_total_flops() / length


if __name__ == "__main__":
    main()
