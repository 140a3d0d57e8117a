"""Who chases whom? The reader's own model, trained from several seeds, and the photographs' models are asked.

    python -m experiments.riddle data/results/riddle.json [--seeds 6]

Each training is that of chapter 07. Kept are its minutes and BLEU, what each model writes, with the paper's search, and
how many of the sentences that each was trained on begin with the object's article. A quarter of an hour.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from annotated_course.own_model import TRAINING
from annotated_workbench import command_line
from annotated_workbench.checkpoint import load_checkpoint
from annotated_workbench.data import DATA_FOLDER, load_corpus
from annotated_workbench.metrics import bleu
from annotated_workbench.translation import translate
from annotated_workbench.vocabulary import load_tokenizer
from experiments.results import about, arguments, save

# German, and what is right; of the last two, whose dog is it that barks?
RIDDLE = {
    "Der Hund jagt die Katze.": "The dog is chasing the cat.",
    "Den Hund jagt die Katze.": "The cat is chasing the dog.",
    "Der Mann sieht den Hund.": "The man sees the dog.",
    "Den Hund sieht der Mann.": "The man sees the dog.",
    "Der Vater sucht die Schwestern.": "The father is looking for the sisters.",
    "Die Schwestern sucht der Vater.": "The father is looking for the sisters.",
    "Der Hund, der die Katze jagt, bellt.": "The dog that is chasing the cat is barking.",
    "Der Hund, den die Katze jagt, bellt.": "The dog that the cat is chasing is barking.",
}
CORPORA = {"grammar": "grammar", "photographs": "multi30k"}


def main() -> None:
    """Train from each seed, ask all models, count the beginnings, and write the results."""
    args = arguments(__doc__, seeds=6).parse_args()
    test, trained = load_corpus("grammar", "test"), []
    for seed in range(args.seeds):
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            command_line.main([*TRAINING.split(), "--seed", str(seed), "--out", str(run)])
            score, signature = bleu(ask(run, test.source), test.target)
            minutes = json.loads((run / "metrics.jsonl").read_text("utf-8").splitlines()[-1])["minutes"]
            trained.append({"seed": seed, "minutes": round(minutes, 1), "bleu": round(score, 1), "answers": ask(run)})
            print(trained[-1], flush=True)
    content: dict[str, Any] = {"about": about(), "signature": signature, "riddle": RIDDLE, "trained": trained}
    content["photographs"] = {name: ask(DATA_FOLDER / "checkpoints" / name) for name in ("de-en", "de-en-best")}
    pairs = {name: load_corpus(corpus, "train").source for name, corpus in CORPORA.items()}
    begun = {name: sum(text.startswith(("Den ", "Einen ")) for text in texts) for name, texts in pairs.items()}
    content["sentences"] = {name: len(texts) for name, texts in pairs.items()}
    save(args.results, content | {"begin with Den or Einen": begun})


def ask(folder: Path, texts: list[str] | None = None) -> list[str]:
    """Translate the riddle, or other texts, with the model of a folder."""
    return translate(load_checkpoint(folder)[0], load_tokenizer(folder), texts or [*RIDDLE], "de")


if __name__ == "__main__":
    main()
