"""What the loss curves of chapter 19 show of its bugs: train its patients from several starts.

    python -m experiments.debugging data/results/debugging.json [--starts 5]

The recipes, `fit` and `by_heart` are the lesson's own: the cells that define them are run. Of each run the file holds
the mean loss of every five updates, and then, on words that were not trained on, the loss and how many are written to
the letter, all in one batch and each alone. Then, of some recipes, how they learn the doctor's eight words by heart.
"""

import ast
import json
from typing import Any

import torch
from tqdm import tqdm

from annotated_course.doctor.recipe import EIGHT
from experiments.results import about, arguments, save
from tools.sync import ROOT

LESSON = ROOT / "notebooks" / "19_debugging.ipynb"
NEEDED = {"Transformer", "TRAIN", "greedy", "Spelling", "Stuck", "with_part", "SeesTheFuture", "UpsideDown"}
NEEDED |= {"SoftmaxTwice", "PATIENTS", "OverTheHeads", "unseen"}
TRAINED = [
    "healthy",
    "future visible",
    "mask upside down",
    "no √d_k",
    "encoder cut off",
    "no warm-up",
    "over the heads",
]
LEARNING = ("healthy", "softmax twice", "gradients kept", "other optimizer", "no shift")
TOGETHER = 5  # updates whose losses make one number


def main() -> None:
    """Train every recipe from every start, write the results."""
    parser = arguments(__doc__)
    parser.add_argument("--starts", type=int, default=5, help="seeds of the weights and of the words drawn")
    args = parser.parse_args()
    lesson = names_of_lesson()
    recipes = {name: (lesson["PATIENTS"] | lesson["unseen"])[name] for name in TRAINED}
    starts = range(args.starts)
    runs = {name: [trained(lesson, recipe, seed) for seed in starts] for name, recipe in tqdm(recipes.items())}
    learned = {name: learned_by_heart(lesson, lesson["PATIENTS"][name]) for name in tqdm(LEARNING)}
    content = {"about": about(), "new words": len(lesson["TEST"]), "together": TOGETHER}
    save(args.results, content | {"runs": runs, "by heart": learned})


def names_of_lesson() -> dict[str, Any]:
    """Run the cells of the lesson that define what is needed; return all names that they define."""
    names: dict[str, Any] = {}
    for cell in json.loads(LESSON.read_text(encoding="utf-8"))["cells"]:
        code = "".join(line for line in cell["source"] if not line.startswith("%"))
        if cell["cell_type"] == "code" and "proof" not in cell["metadata"].get("tags", []) and NEEDED & defined(code):
            exec(code, names)
    return names


def defined(code: str) -> set[str]:
    """List the names that the code imports, assigns or defines at its outermost level."""
    names = set()
    for node in ast.parse(code).body:
        if isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return names


def trained(lesson: dict[str, Any], recipe: Any, seed: int, **options: int) -> dict[str, Any]:
    """Train a recipe from one start; options are those of the lesson's `fit`."""
    model, losses = lesson["fit"](recipe, seed=seed, **options)
    rows = torch.tensor(losses).view(-1, TOGETHER).mean(dim=1)
    with torch.no_grad():
        new = recipe.loss(model.eval(), *recipe.batch(lesson["TEST"])).item()
    losses = [round(loss, 3) for loss in rows.tolist()]
    return {
        "losses": losses,
        "loss on new words": round(new, 3),
        "written": lesson["written"](recipe, model, lesson["TEST"]),
        "written alone": sum(lesson["written"](recipe, model, [word]) for word in lesson["TEST"]),
    }


def learned_by_heart(lesson: dict[str, Any], recipe: Any) -> dict[str, Any]:
    """Let a recipe learn the doctor's eight words; return the loss at some updates, and how many it then writes."""
    model, losses = lesson["by_heart"](recipe)
    updates = [step for step in range(1, len(losses) + 1) if step % 10 == 0 or step in (1, len(losses))]
    written = lesson["written"](recipe, model, list(EIGHT))
    return {"updates": updates, "losses": [round(losses[step - 1], 3) for step in updates], "written": written}


if __name__ == "__main__":
    main()
