"""Keep a trained run in half its size: python tools/export_checkpoint.py runs/de-en data/checkpoints/de-en

Weights go from 32 to 16 bits; what goes on with training stays behind. The folder translates like the run's.
"""

import sys
from pathlib import Path

from annotated_workbench.checkpoint import load_checkpoint, save_checkpoint
from annotated_workbench.run_folder import require_new
from annotated_workbench.vocabulary import load_tokenizer

if __name__ == "__main__":
    run, folder = map(Path, sys.argv[1:])
    require_new(folder)
    model, info = load_checkpoint(run)
    save_checkpoint(folder, model.half(), **info)
    load_tokenizer(run).save(folder)
