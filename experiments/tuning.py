"""What makes an assistant of the stories' model, and what each step breaks; for 23_assistant, some forty minutes.

    python -m experiments.tuning data/results/tuning.json [--seeds 3]

Each case tunes the delivered model on examples of its own draw; preferences and fewer bits go on from tuned ones. Then
it is asked about what no training has seen: measured are shares of its greedy answers, and the loss on stories without
questions, in nats a word, for what is forgotten.
"""

import copy
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from annotated.config import EOS, PAD
from annotated.models.tuning import add_lora, dpo_loss, quantise
from annotated.training import set_rate
from annotated_course.stories import ASSISTANT, KINDS, USER, encode, story
from annotated_workbench.checkpoint import load_checkpoint
from annotated_workbench.data import DATA_FOLDER
from experiments.results import about, arguments, save

BASE = DATA_FOLDER / "checkpoints" / "stories"
UPDATES, BATCH, ASKED, DRAWN = 150, 16, 300, 8  # DRAWN: answers to a question, to choose from
MOST = 16  # words of an answer
DECLINED = [*encode("i don't know ."), EOS]


class Question(NamedTuple):
    """A story with a question, and its right answers, the short one and the long one, as ids that end."""

    prompt: list[int]
    answers: list[list[int]]


@dataclass(frozen=True)
class Case:
    """A way to tune: with how many examples, which of the weights, and what is forgotten."""

    examples: int = 300
    rate: float = 1e-3
    rank: int = 0  # of LoRA; 0: all weights learn
    refusals: float = 0.0  # share of the examples that decline
    whole: bool = False  # the question counts in the loss, too
    template: bool = True  # in tuning
    asked_with: bool = True  # the template
    end: bool = True


CASES = {f"{number} examples": Case(number) for number in (30, 100, 300, 1000)}
CASES |= {"rate 3e-4": Case(rate=3e-4)} | {f"LoRA, rank {rank}": Case(rank=rank, rate=3e-3) for rank in (2, 4, 8)}
CASES |= {"the question counts, too": Case(whole=True), "no end": Case(end=False)}
CASES |= {"no template": Case(template=False, asked_with=False), "asked without it": Case(asked_with=False)}
CASES |= {"asked with one it doesn't know": Case(template=False)}
CASES |= {f"{percent} % refusals": Case(refusals=percent / 100) for percent in (10, 30)}
# How good an answer is, for those who prefer: the larger the better.
RULES: dict[str, Callable[[Question, list[int]], tuple[int, ...]]] = {
    "true, then short": lambda question, ids: (ids in question.answers, -len(ids)),
    "short": lambda question, ids: (-len(ids),),
}
PULLS = ((0.5, 1e-4), (0.1, 1e-4), (0.1, 5e-4))  # β, and the rate
SHARES: dict[str, Callable[[Tensor], int]] = {"tensor": Tensor.numel, "row": lambda w: w.size(1), "32": lambda w: 32}


def ask(draw: random.Random, held_out: bool = False, absent: bool = False, template: bool = True) -> Question:
    """Tell a story of one to three sentences, and ask about one of them; or about one that was left out."""
    place = draw.randrange(sentences := draw.randint(1, 3) + absent)
    told = story(draw, sentences, place if held_out else None)
    question, *answers = told[place].asked(draw.choice(KINDS))
    text = " ".join([*map(str, told[:place] + told[place + absent :]), question])
    ids = encode(f"{USER} {text} {ASSISTANT}" if template else text)
    return Question(ids, [DECLINED] if absent else [[*encode(answer), EOS] for answer in answers])


def log_probs(model: nn.Module, pairs: Sequence[tuple[list[int], list[int]]], whole: bool = False) -> Tensor:
    """Compute the log-probability of each answer after its prompt, or of both, in nats (pair,)."""
    ids = nn.utils.rnn.pad_sequence([torch.tensor(prompt + answer) for prompt, answer in pairs], True, PAD)
    found = model(ids[:, :-1]).log_softmax(dim=-1).gather(-1, ids[:, 1:, None])[..., 0]
    first = torch.tensor([0 if whole else len(prompt) - 1 for prompt, _ in pairs])[:, None]
    counts = (torch.arange(ids.size(1) - 1) >= first) & (ids[:, 1:] != PAD)
    return found.masked_fill(~counts, 0.0).sum(dim=1)


def descend(model: nn.Module, rate: float, updates: int, loss: Callable[[], Tensor]) -> None:
    """Update what learns, with a rate that rises for ten updates and then falls to 0."""
    learn = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(learn, betas=(0.9, 0.95), weight_decay=0.0)
    for update in range(updates):
        set_rate(optimizer, rate * min(1, (update + 1) / 10) * (1 - update / updates))
        optimizer.zero_grad()
        loss().backward()
        nn.utils.clip_grad_norm_(learn, 1.0)
        optimizer.step()


def tune(case: Case, seed: int) -> nn.Module:
    """Tune the delivered model on examples of which half have the short answer."""
    torch.manual_seed(seed)
    draw, (model, _) = random.Random(seed), load_checkpoint(BASE)
    if case.rank:
        add_lora(model, case.rank)
    asked = [ask(draw, False, draw.random() < case.refusals, case.template) for _ in range(case.examples)]
    pairs = [(prompt, draw.choice(answers)[: None if case.end else -1]) for prompt, answers in asked]

    def loss() -> Tensor:
        batch = draw.sample(pairs, BATCH)
        words = sum(len(answer) + case.whole * (len(prompt) - 1) for prompt, answer in batch)
        return -log_probs(model, batch, case.whole).sum() / words

    descend(model, case.rate, UPDATES, loss)
    return model


@torch.no_grad()
def answers_of(model: nn.Module, prompts: Sequence[list[int]], drawn: torch.Generator | None = None) -> list[list[int]]:
    """Answer each prompt, greedily or drawn, up to <eos> or MOST words; those of one length together."""
    found: dict[int, list[int]] = {}
    for length in sorted({len(prompt) for prompt in prompts}):
        rows = [row for row, prompt in enumerate(prompts) if len(prompt) == length]
        new, cache = torch.tensor([prompts[row] for row in rows]), model.new_cache()
        written = new[:, :0]
        while written.size(1) < MOST and not (written == EOS).any(dim=1).all():
            logits = model.logits(model.states(new, cache)[:, -1])
            new = logits.argmax(-1, True) if drawn is None else logits.softmax(-1).multinomial(1, generator=drawn)
            written = torch.cat((written, new), dim=1)
        cut = [ids[: ids.index(EOS) + 1] if EOS in ids else ids for ids in written.tolist()]
        found |= dict(zip(rows, cut, strict=True))
    return [found[row] for row in range(len(prompts))]


@torch.no_grad()
def measure(model: nn.Module, template: bool = True) -> dict[str, float]:
    """Ask what has an answer and what has none, and read stories."""
    draw = random.Random("asked")
    asked, absent = ([ask(draw, True, without, template) for _ in range(ASKED)] for without in (False, True))
    prompts, lost = ([question.prompt for question in questions] for questions in (asked, absent))
    written, invented = answers_of(model, prompts), answers_of(model, lost)
    stories = [encode(" ".join(map(str, story(draw, 3)))) for _ in range(ASKED)]
    right = [ids in question.answers for question, ids in zip(asked, written, strict=True)]
    pairs = [[*zip(*side, strict=True)] for side in ((prompts, written), (lost, invented))]
    sure = [log_probs(model, side) / torch.tensor([len(ids) for _, ids in side]) for side in pairs]
    counts = {
        "right": sum(right),
        "right and short": sum(ids == question.answers[0] for question, ids in zip(asked, written, strict=True)),
        "hold the answer": sum(
            holds(ids, question.answers[0][:-2]) for question, ids in zip(asked, written, strict=True)
        ),
        "end": sum(ids[-1] == EOS for ids in written),
        "declined": written.count(DECLINED),
        "absent, declined": invented.count(DECLINED),
    }
    nats = -log_probs(model, [(ids[:1], ids[1:]) for ids in stories]).sum().item() / sum(
        len(ids) - 1 for ids in stories
    )
    return {name: round(count / ASKED, 4) for name, count in counts.items()} | {
        "surer where there is an answer": round((sure[0][:, None] > sure[1]).float().mean().item(), 4),
        "words": round(sum(map(len, written)) / ASKED, 2),
        "nats a word of stories": round(nats, 4),
    }


def holds(ids: list[int], part: list[int]) -> bool:
    """Tell whether a part stands in a text."""
    return any(ids[i : i + len(part)] == part for i in range(len(ids)))


def prefer(model: nn.Module, rule: str, beta: float, rate: float, seed: int) -> tuple[nn.Module, dict[str, float]]:
    """Let it answer 300 questions, eight times each; prefer of each question's answers the best to the worst."""
    draw, drawn, good = random.Random(f"preferred {seed}"), torch.Generator().manual_seed(seed), RULES[rule]
    questions = [ask(draw) for _ in range(ASKED)]
    written = iter(answers_of(model, [question.prompt for question in questions for _ in range(DRAWN)], drawn))
    better, worse = [], []
    for question in questions:
        ranked = sorted(itertools.islice(written, DRAWN), key=lambda ids: good(question, ids))
        if good(question, ranked[0]) < good(question, ranked[-1]):
            better.append((question.prompt, ranked[-1]))
            worse.append((question.prompt, ranked[0]))
    learner = copy.deepcopy(model)

    def loss() -> Tensor:
        rows = draw.sample(range(len(better)), BATCH)
        sides = [log_probs(learner, [pairs[row] for row in rows]) for pairs in (better, worse)]
        return dpo_loss(*sides, (before[0] - before[1])[rows], beta)

    with torch.no_grad():
        before = [log_probs(model, pairs) for pairs in (better, worse)]
    descend(learner, rate, 100, loss)
    with torch.no_grad():
        after = [log_probs(learner, pairs) for pairs in (better, worse)]
    names = ("better, before", "worse, before", "better, after", "worse, after")
    means = {name: round(found.mean().item(), 2) for name, found in zip(names, before + after, strict=True)}
    return learner, {"pairs": len(better)} | means


@torch.no_grad()
def rounded(model: nn.Module, bits: int, share: str, outlier: bool) -> nn.Module:
    """Round all matrices, perhaps after one channel got thirty times as large, and its gain as much smaller."""
    model = copy.deepcopy(model)
    for layer in model.layers if outlier else ():
        attention, network = layer.self_attention, layer.feed_forward
        readers = (attention.W_q, attention.W_k, attention.W_v), (network.W_gate, network.W_1)
        for residual, linears in zip(layer.residuals, readers, strict=True):
            residual.norm.gain[5] /= 30
            for linear in linears:
                linear.weight[:, 5] *= 30
    for weight in model.parameters():
        if weight.dim() == 2:
            weight.copy_(quantise(weight, bits, SHARES[share](weight)))
    return model


def main() -> None:
    """Tune each case from each seed, go on from the tuned ones, and write the results."""
    args, (base, _) = arguments(__doc__, seeds=3).parse_args(), load_checkpoint(BASE)
    measured: dict[str, list[dict[str, float]]] = {"before tuning": [measure(base)], "plain": [measure(base, False)]}

    def keep(name: str, found: dict[str, float]) -> None:
        measured.setdefault(name, []).append(found)
        print(name, found, flush=True)

    for seed in range(args.seeds):
        for name, case in CASES.items():
            model = tune(case, seed)
            keep(name, measure(model, case.asked_with))
            if case == Case():
                tuned = model
        for rule, (beta, rate) in itertools.product(RULES, PULLS):
            learner, pulled = prefer(tuned, rule, beta, rate, seed)
            keep(f"{rule}: β {beta}, rate {rate}", measure(learner) | pulled)
        for bits, share, outlier in itertools.product((8, 4, 3, 2), SHARES, (False, True)):
            keep(f"{bits} bits, {share}" + ", outlier" * outlier, measure(rounded(tuned, bits, share, outlier)))
    save(args.results, {"about": about(), "measured": measured})


if __name__ == "__main__":
    main()
