"""The model of 23_assistant: a small Llama reads stories and questions until it looks the answers up.

    python -m experiments.stories data/results/stories.json

It reads running text, as `annotated_course.stories` writes it. At first a fifth of the world's words is used, and each
story is told twice; later come all words, a fourth kind of question, and most stories once. Kept are, along the way,
the loss and the share of right greedy answers for each kind of question and each length of story, about combinations
that it has never read, of words in use so far. The weights go to data/checkpoints/stories, in 16 bits. Nineteen
minutes of one core.
"""

import math
import random
import time
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from annotated.models.language_model import generate
from annotated.models.llama import Llama, LlamaConfig
from annotated.training import set_rate
from annotated_course.stories import KINDS, WORDS, document, encode, story
from annotated_workbench.checkpoint import load_checkpoint, save_checkpoint
from annotated_workbench.data import DATA_FOLDER
from experiments.results import about, arguments, save

FOLDER = DATA_FOLDER / "checkpoints" / "stories"
UPDATES, BATCH, LENGTH, RATE = 8000, 16, 96, 3e-3  # BATCH: rows; LENGTH: words of a row
EVERY, ASKED, SENTENCES, QUESTIONS = 500, 100, (1, 2, 3), 4
LONGEST = 10  # words of an answer


def make_model() -> Llama:
    """Make the Llama, its embeddings times √d_model (§3.4), so that the layers don't drown what a word is."""
    model = Llama(LlamaConfig(len(WORDS), groups=4, tie_embeddings=True))
    with torch.no_grad():
        model.embedding.weight *= math.sqrt(model.config.d_model)
        model.norm.gain /= math.sqrt(model.config.d_model)  # the logits stay as small as they were
    return model


def share_in_use(done: float) -> float:
    """Say which share of the world's words is in use after this part of the training: all of them from 0.4 on."""
    return min(1.0, max(0.2, 3.3 * done - 0.32))


def draw_row(draw: random.Random, done: float) -> list[int]:
    """Fill a row with documents, as they are after this part of the training."""
    again, kinds = max(0.2, 1 - 2 * done), KINDS[: 3 if done < 0.4 else 4]
    ids: list[int] = []
    while len(ids) <= LENGTH:
        ids += encode(document(draw, draw.choice(SENTENCES), QUESTIONS, share_in_use(done), again, kinds))
    return ids[: LENGTH + 1]


def share_right(model: nn.Module, kind: str, sentences: int, share: float = 1.0) -> float:
    """Ask about held-out combinations of a share of the world; count the greedy answers that are right."""
    draw, right = random.Random(f"{kind} {sentences}"), 0
    for _ in range(ASKED):
        told = story(draw, sentences, place := draw.randrange(sentences), share)
        question, *answers = told[place].asked(kind)
        prompt = torch.tensor([encode(" ".join([*map(str, told), question]))])
        ids = generate(model, prompt, LONGEST, temperature=0.0)[0, prompt.size(1) :].tolist()
        right += any(ids[: len(answer)] == answer for answer in map(encode, answers))  # it ends with its full stop
    return right / ASKED


def measure(model: nn.Module, share: float = 1.0) -> dict[str, list[float]]:
    """Measure each kind of question, after one sentence, two, three, in a share of the world."""
    return {kind: [share_right(model, kind, sentences, share) for sentences in SENTENCES] for kind in KINDS}


def main() -> None:
    """Train, with a look every now and then, save the model, and measure what was saved."""
    parser = arguments(__doc__)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    draw, model, looks, started = random.Random(args.seed), make_model(), list[dict[str, Any]](), time.process_time()
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.05)
    for update in range(1, UPDATES + 1):
        done = update / UPDATES
        set_rate(optimizer, RATE * min(1, update / 100, 2.5 * (1 - done)))
        ids = torch.tensor([draw_row(draw, done) for _ in range(BATCH)])
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if update % EVERY == 0:
            right = measure(model, share_in_use(done))
            looks.append({"words": update * BATCH * LENGTH, "loss": round(loss.item(), 3), "right": right})
            print(looks[-1], round(time.process_time() - started), "s", flush=True)
    save_checkpoint(FOLDER, model.half())  # 16 bits
    found = {"about": about(), "seed": args.seed, "minutes": round((time.process_time() - started) / 60, 1)}
    save(args.results, found | {"looks": looks, "saved": measure(load_checkpoint(FOLDER)[0])})


if __name__ == "__main__":
    main()
