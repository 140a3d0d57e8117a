"""What the loss curves of chapter 19 show of its bugs: train its patients from several starts.

    python -m experiments.debugging data/results/debugging.json [--starts 5]

The recipes, `fit` and `by_heart` are the lesson's own: the cells that define them are run. Of each run the file holds
the mean loss of every five updates, and then, on words that were not trained on, the loss and how many are written to
the letter. Then, of every recipe, what the lesson's start makes of eight words that it learns by heart.
"""

import argparse
import ast
import json
import time
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from annotated_workbench.files import write_whole
from experiments.speed import processor
from tools.sync import ROOT

LESSON = ROOT / "notebooks" / "19_debugging.ipynb"
NEEDED = {
    "Transformer",
    "TRAIN",
    "Recipe",
    "with_part",
    "FIVE",
    "AlwaysOn",
    "Infinite",
    "NoWarmUp",
    "NoShift",
    "unseen",
}
NEEDED |= {"BATCH", "by_heart"}
TOGETHER = 5  # updates whose losses make one number


def main() -> None:
    """Train every recipe from every start, write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path, help="the JSON file to write")
    parser.add_argument("--starts", type=int, default=5, help="seeds of the weights and of the words drawn")
    args = parser.parse_args()
    lesson = names_of_lesson()
    recipes = {"healthy": lesson["healthy"], **lesson["FIVE"], "no warm-up": lesson["NoWarmUp"](), **lesson["unseen"]}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in recipes}
    for name, seed in tqdm([(name, seed) for name in recipes for seed in range(args.starts)]):
        found[name].append(trained(lesson, recipes[name], seed))
    everyone = lesson["PATIENTS"] | lesson["unseen"]
    learned = {name: learned_by_heart(lesson, recipe) for name, recipe in tqdm(everyone.items())}
    about = {"torch": torch.__version__, "processor": processor(), "date": time.strftime("%Y-%m-%d")}
    content = {
        "about": about,
        "new words": len(lesson["TEST"]),
        "together": TOGETHER,
        "runs": found,
        "by heart": learned,
    }
    write_whole(args.results, json.dumps(content, ensure_ascii=False, indent=1).encode() + b"\n")
    for name, runs in found.items():
        print(f"{name:18}", *(f"{run['written']:4} ({run['loss on new words']:.2f})" for run in runs))


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
    found = set()
    for node in ast.parse(code).body:
        if isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return found


def trained(lesson: dict[str, Any], recipe: Any, seed: int, **options: int) -> dict[str, Any]:
    """Train a recipe from one start; options are those of the lesson's `fit`."""
    model, losses = lesson["fit"](recipe, seed=seed, **options)
    rows = torch.tensor(losses).view(-1, TOGETHER).mean(dim=1)
    with torch.no_grad():
        new = recipe.loss(model.eval(), *lesson["pairs"](lesson["TEST"])).item()
    written = lesson["written"](recipe, model, lesson["TEST"])
    losses = [round(loss, 3) for loss in rows.tolist()]
    return {"losses": losses, "loss on new words": round(new, 3), "written": written}


def learned_by_heart(lesson: dict[str, Any], recipe: Any) -> dict[str, Any]:
    """Let a recipe learn the lesson's eight words; return the loss at the end, and how many it then writes."""
    model, loss = lesson["by_heart"](recipe)
    return {"loss": round(loss, 3), "written": lesson["written"](recipe, model, lesson["EIGHT"])}


if __name__ == "__main__":
    main()
