"""What makes an assistant of the stories' model, and what each step breaks: the cases of 23_assistant, three seeds.

    python -m experiments.tuning data/results/tuning.json [--seeds 3]

Examples, tuning, preferences and rounding are the lesson's own. Each case tunes the delivered model on examples of its
own draw; preferences and fewer bits go on from 300 examples. Then the model is asked about what no training has seen:
kept are shares of its greedy answers, what it says to the lesson's questions, and the loss on stories without
questions, in nats a word, for what is forgotten. An assistant that declines goes to data/checkpoints/assistant, in 16
bits. Half an hour of one core.
"""

import copy
import itertools
import random
from typing import Any

import torch
from torch import nn

from annotated.config import EOS
from annotated.models.tuning import add_lora
from annotated_course.stories import ASSISTANT, USER, decode, encode, story
from annotated_workbench.checkpoint import save_checkpoint
from annotated_workbench.data import DATA_FOLDER
from experiments.results import about, arguments, names_of_lesson, save

LESSON = "23_assistant.ipynb", "tuning"
ASKED = 300
# What is not said is as in the lesson: 300 examples, all weights at 1e-3 for 150 updates, no answer that declines.
CASES: dict[str, dict[str, Any]] = {f"{count} examples": {"count": count} for count in (3, 10, 30, 100, 300, 1000)}
CASES |= {"rate 3e-4": {"rate": 3e-4}} | {f"LoRA, rank {rank}": {"rank": rank, "rate": 3e-3} for rank in (2, 4, 8)}
CASES |= {"the question counts, too": {"whole": True}, "no end": {"end": False}}
CASES |= {"asked without the template": {"asked_with": False}, "asked with a new template": {"template": False}}
CASES |= {f"{share:.0%} refusals": {"refusals": share} for share in (0.1, 0.3)}
DELIVERED, FOLDER = "30% refusals, 1000 examples", DATA_FOLDER / "checkpoints" / "assistant"
CASES |= {DELIVERED: {"count": 1000, "refusals": 0.3, "updates": 500}}
CASES |= {f"{DELIVERED}, mixed too": CASES[DELIVERED] | {"mixed": True}, "LoRA, rank 8, rate 1e-3": {"rank": 8}}
OF_EXAMPLES, OF_TUNING = ("count", "refusals", "template", "end", "mixed"), ("rate", "updates", "whole")
RULES, BETAS, RATE = ("true_then_short", "short"), (0.5, 0.1), 3e-4
BITS = 8, 4, 3, 2


def tune(lesson: dict[str, Any], seed: int, case: dict[str, Any]) -> nn.Module:
    """Tune a copy of the delivered model: all its weights, or, if there's a rank, a correction."""
    torch.manual_seed(seed)
    model = copy.deepcopy(lesson["base"])
    model = add_lora(model, case["rank"]) if "rank" in case else model
    drawn, how = ({name: case[name] for name in names if name in case} for names in (OF_EXAMPLES, OF_TUNING))
    return lesson["tune"](model, lesson["draw_examples"](**{"count": 300, "seed": seed} | drawn), seed=seed, **how)


@torch.no_grad()
def measure(lesson: dict[str, Any], model: nn.Module, template: bool = True) -> dict[str, Any]:
    """Ask what has an answer and what has none, in two ways, and read stories."""
    dice, ask, answers_of = random.Random("asked"), lesson["ask"], lesson["answers_of"]
    kinds = {"right": {"held_out": True}, "absent": {"absent": True}, "mixed": {"mixed": True}}
    asked = {kind: [ask(dice, template=template, **how) for _ in range(ASKED)] for kind, how in kinds.items()}
    written = {kind: answers_of(model, [prompt for prompt, _ in questions]) for kind, questions in asked.items()}
    sure = {
        kind: lesson["log_probs"](model, [(prompt, ids) for (prompt, _), ids in zip(asked[kind], found, strict=True)])
        for kind, found in written.items()
    }
    pairs = [(ids, answers) for ids, (_, answers) in zip(written["right"], asked["right"], strict=True)]
    counts = {
        "right": sum(ids in answers for ids, answers in pairs),
        "right and short": sum(ids == answers[0] for ids, answers in pairs),
        "hold the answer": sum(holds(ids, answers[0][:-2]) for ids, answers in pairs),
        "end": sum(EOS in ids for ids, _ in pairs),
    } | {f"{kind}, declined": sum(map(lesson["declines"], found)) for kind, found in written.items()}
    read = [encode(" ".join(map(str, story(dice, 3)))) for _ in range(ASKED)]
    nats = -lesson["log_probs"](model, [(ids[:1], ids[1:]) for ids in read]).sum().item()
    tales = [f"{lesson['tale']} {question}" for question in lesson["asked"]]
    prompts = [encode(f"{USER} {tale} {ASSISTANT}" if template else tale) for tale in tales]
    return {name: round(count / ASKED, 4) for name, count in counts.items()} | {
        "surer where there is an answer": round((sure["right"][:, None] > sure["absent"]).float().mean().item(), 3),
        "words": round(sum(map(len, written["right"])) / ASKED, 2),
        "nats a word of stories": round(nats / sum(len(ids) - 1 for ids in read), 3),
        "said": [decode(ids) for ids in answers_of(model, prompts)],
    }


def holds(ids: list[int], part: list[int]) -> bool:
    """Tell whether a part stands in a text."""
    return any(ids[i : i + len(part)] == part for i in range(len(ids)))


def main() -> None:
    """Tune each case from each seed, go on from the tuned ones, and write the results."""
    args, lesson = arguments(__doc__, seeds=3).parse_args(), names_of_lesson(*LESSON)
    base, log_probs = lesson["base"], lesson["log_probs"]
    measured: dict[str, list[dict[str, Any]]] = {"before": [measure(lesson, base)]}
    measured["before, without the template"] = [measure(lesson, base, template=False)]

    def keep(name: str, found: dict[str, Any]) -> None:
        measured.setdefault(name, []).append(found)
        print(name, found, flush=True)

    for seed in range(args.seeds):
        for name, case in CASES.items():
            model = tune(lesson, seed, case)
            keep(name, measure(lesson, model, case.get("asked_with", True)))
            if name == "300 examples":
                tuned = model
            elif name == DELIVERED and seed == 0:
                save_checkpoint(FOLDER, copy.deepcopy(model).half())  # 16 bits
        dice = random.Random(f"preferred {seed}")
        questions = [lesson["ask"](dice) for _ in range(ASKED)]
        for rule, beta in itertools.product(RULES, BETAS):
            sides = lesson["own_pairs"](tuned, lesson[rule], questions, seed=seed)
            learner = lesson["prefer"](tuned, *sides, beta, RATE, seed=seed)
            with torch.no_grad():
                means = [[round(log_probs(one, side).mean().item(), 2) for side in sides] for one in (tuned, learner)]
            pulled = {"pairs": len(sides[0]), "better, worse": dict(zip(("before", "after"), means, strict=True))}
            keep(f"{rule}, β {beta}", measure(lesson, learner) | pulled)
        for model, end in ((tuned, ""), (lesson["with_outlier"](tuned), ", outlier")):
            for bits, share in itertools.product(BITS, lesson["SHARES"]):
                keep(f"{bits} bits, {share}{end}", measure(lesson, lesson["rounded"](model, bits, share)))
    save(args.results, {"about": about(), "measured": measured})


if __name__ == "__main__":
    main()
