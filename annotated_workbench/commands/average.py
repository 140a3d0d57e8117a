"""average: checkpoints in, one model out (§6.1)."""

import os
import shlex
from argparse import Namespace
from pathlib import Path

from annotated_workbench.architectures import ARCHITECTURES, USES, architecture_of, config_of
from annotated_workbench.checkpoint import WEIGHTS, average_checkpoints, load_run, load_weights, save_checkpoint
from annotated_workbench.commands.options import PROGRAM, Command, run_folder
from annotated_workbench.run_folder import CHECKPOINTS, require_new
from annotated_workbench.vocabulary import load_tokenizer


def run(args: Namespace) -> None:
    """Average weights, and write a folder that the other commands read."""
    require_new(args.out)
    paths = [path / WEIGHTS if path.is_dir() else path for path in map(Path, args.checkpoints)]
    weights = average_checkpoints(paths)
    runs = [path.parents[path.parent.name == CHECKPOINTS] for path in map(Path, map(os.path.abspath, paths))]
    model, tokenizer, info = load_run(runs[0])
    began: list[set[object]] = []  # by run: what its weights may have in common with another's
    for folder in dict.fromkeys(runs):
        if load_tokenizer(folder).content() != tokenizer.content():
            raise ValueError(f"{folder} has other tokens than {runs[0]}: average what was trained from one beginning.")
        settings = load_run(folder)[2].get("settings", {})
        init, seed = map(settings.get, ("init", "seed"))
        began.append({folder.resolve(), Path(init).resolve() if init else seed})
        if not began[0] & began[-1]:
            print(f"Careful: {folder} has another --seed or --init than {runs[0]}: averaged, they may know nothing.")
    load_weights(model, weights)
    save_checkpoint(args.out, model, **info | {"averaged": list(map(str, paths))})
    tokenizer.save(args.out)
    use = USES[ARCHITECTURES[architecture_of(config_of(model))].task]
    print(f"{len(paths)} averaged. Try it: {PROGRAM} {use} {shlex.quote(args.out)}")


COMMAND = Command(
    "average checkpoints of one training, or of trainings that began with one model (--init)",
    run,
    ("runs/mine/checkpoints/0003000.safetensors runs/mine/best --out runs/averaged",),
    {"checkpoints": dict(nargs="+", type=run_folder, help="files of weights, or folders of runs")},
    "out",
)
