"""What the loss curves of chapter 19 show of its bugs: train its patients from several starts.

    python -m experiments.debugging data/results/debugging.json [--seeds 5]

The recipes, `fit` and `by_heart` are the lesson's own: its cells with the tag "patients" are run. Of each run the file
holds the mean loss of every five updates, and then, on words that were not trained on, the loss and how many are
written to the letter, all in one batch and each alone. Then, of some recipes, how they learn the doctor's eight words.
"""

from typing import Any

import torch
from tqdm import tqdm

from annotated_course.doctor.recipe import EIGHT
from experiments.results import about, arguments, names_of_lesson, save

LESSON = "19_debugging.ipynb", "patients"
TRAINED = ["healthy", "future visible", "mask upside down", "no √d_k", "encoder cut off", "no warm-up"]
TRAINED += ["over the heads", "one layer, twice", "no activation", "causal cross-attention", "no residual"]
LEARNING = ("healthy", "softmax twice", "gradients kept", "other optimizer", "no shift")
TOGETHER = 5  # updates whose losses make one number


def main() -> None:
    """Train every recipe from every start, write the results."""
    args = arguments(__doc__, seeds=5).parse_args()
    lesson = names_of_lesson(*LESSON)
    recipes = {name: (lesson["PATIENTS"] | lesson["unseen"])[name] for name in TRAINED}
    seeds = range(args.seeds)
    runs = {name: [trained(lesson, recipe, seed) for seed in seeds] for name, recipe in tqdm(recipes.items())}
    learned = {name: learned_by_heart(lesson, lesson["PATIENTS"][name]) for name in tqdm(LEARNING)}
    content = {"about": about(), "new words": len(lesson["TEST"]), "together": TOGETHER}
    save(args.results, content | {"runs": runs, "by heart": learned})


def trained(lesson: dict[str, Any], recipe: Any, seed: int) -> dict[str, Any]:
    """Train a recipe from one start, by the lesson's `fit`."""
    model, losses = lesson["fit"](recipe, seed=seed)
    words = lesson["TEST"]
    with torch.no_grad():
        new = recipe.loss(model.eval(), *recipe.batch(words)).item()
    return {
        "losses": [round(loss, 3) for loss in torch.tensor(losses).view(-1, TOGETHER).mean(dim=1).tolist()],
        "loss on new words": round(new, 3),
        "written": lesson["written"](recipe, model, words),
        "written alone": sum(lesson["written"](recipe, model, [word]) for word in words),
    }


def learned_by_heart(lesson: dict[str, Any], recipe: Any) -> dict[str, Any]:
    """Let a recipe learn the doctor's eight words; return the loss at some updates, and how many it then writes."""
    model, losses = lesson["by_heart"](recipe)
    updates = [step for step in range(1, len(losses) + 1) if step % 10 == 0 or step in (1, len(losses))]
    written = lesson["written"](recipe, model, list(EIGHT))
    return {"updates": updates, "losses": [round(losses[step - 1], 3) for step in updates], "written": written}


if __name__ == "__main__":
    main()
