"""Do strings come out backwards, every letter right? An LSTM that hands on its last state, with and without attention.

    python -m experiments.reversing data/results/reversing.json [--seeds 5]

Chapter 10 shows the models and the training. Strings of two to eight letters, ten to choose from; each share is
that of 500 strings of one length that come out right as a whole, one per seed.
"""

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiments.results import about, arguments, save

LETTERS, START = 10, 10  # START stands for "nothing written yet"
LENGTHS, BATCH, TESTED = range(2, 9), 64, 500
WIDTHS, UPDATES = (32, 16), (300, 1200)


class Reverser(nn.Module):
    """Read a string, then write it backwards; with attention, look back at every state of the encoder."""

    def __init__(self, attends: bool, width: int = 32) -> None:
        super().__init__()
        self.attends = attends
        self.letter = nn.Embedding(LETTERS + 1, width)  # a vector for each letter, and for START
        self.encoder = nn.LSTM(width, width, batch_first=True)
        self.decoder = nn.LSTM(width, width, batch_first=True)
        self.output = nn.Linear(2 * width if attends else width, LETTERS)

    def forward(self, strings: Tensor, return_weights: bool = False) -> Tensor:
        """Give the logits of each letter to be written, given those that should stand before it; or the weights."""
        states, last = self.encoder(self.letter(strings))  # h after each letter; last: the final h and c
        written = F.pad(strings.flip(1)[:, :-1], (1, 0), value=START)  # what stands before each letter to be written
        s, _ = self.decoder(self.letter(written), last)  # the decoder's state at each step
        if not self.attends:
            return self.output(s)
        weights = (s @ states.mT).softmax(dim=-1)  # (batch, written, read)
        context = weights @ states
        return weights if return_weights else self.output(torch.cat([context, s], dim=-1))


def train(attends: bool, width: int = 32, updates: int = 300, seed: int = 0) -> Reverser:
    """Train a model on strings that are drawn as it goes."""
    torch.manual_seed(seed)
    model, drawn = Reverser(attends, width), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters())
    for update in range(updates):
        optimizer.param_groups[0]["lr"] = 0.015 * min(1, 2 - 2 * update / updates)  # constant, then down to 0
        length = int(torch.randint(LENGTHS.start, LENGTHS.stop, (), generator=drawn))
        strings = torch.randint(LETTERS, (BATCH, length), generator=drawn)
        loss = F.cross_entropy(model(strings).flatten(0, 1), strings.flip(1).flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model


@torch.no_grad()
def share_right(model: nn.Module, length: int) -> float:
    """Say which share of `TESTED` strings comes out right as a whole.

    It makes no difference that the model is shown the right letters so far: up to its first error it wrote the same.
    """
    strings = torch.randint(LETTERS, (TESTED, length), generator=torch.Generator().manual_seed(length))
    return (model(strings).argmax(dim=-1) == strings.flip(1)).all(dim=1).double().mean().item()


def main() -> None:
    """Train them all, and write each share."""
    args = arguments(__doc__, seeds=5).parse_args()
    torch.set_default_dtype(torch.float64)  # as in the chapter
    torch.set_num_threads(1)
    results = []
    for width, updates, attends in itertools.product(WIDTHS, UPDATES, (False, True)):
        models = [train(attends, width, updates, seed) for seed in range(args.seeds)]
        shares = [[share_right(model, length) for length in LENGTHS] for model in models]
        results.append({"width": width, "updates": updates, "attends": attends, "shares": shares})
        print(results[-1], flush=True)
    save(args.results, {"lengths": list(LENGTHS), "results": results, **about()})


if __name__ == "__main__":
    main()
