"""Who chases whom? The reader's own model, trained from several seeds, and the photographs' models are asked.

    python -m experiments.riddle data/results/riddle.json [--seeds 6]

Each training is that of chapter 07. Kept are its minutes and BLEU, what each model writes, with the paper's search, and
how many of the sentences that each was trained on begin with the object's article. From two seeds it is trained again
without those sentences, and asked chapter 09's 512 pairs. Twenty minutes.
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from annotated_course.own_model import TRAINING
from annotated_workbench import command_line
from annotated_workbench.checkpoint import load_checkpoint
from annotated_workbench.data import DATA_FOLDER, load_corpus
from annotated_workbench.metrics import bleu
from annotated_workbench.translation import translate
from annotated_workbench.vocabulary import load_tokenizer
from experiments.results import about, arguments, names_of_lesson, save

# German, and what is right; in the last two, the relative clause says who chases.
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
OBJECT_FIRST = ("Den ", "Einen ")


def main() -> None:
    """Train from each seed, ask all models, count the beginnings, and write the results."""
    args = arguments(__doc__, seeds=6).parse_args()
    test, trained = load_corpus("grammar", "test"), []
    for seed in range(args.seeds):
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            train(run, seed)
            score, signature = bleu(ask(run, test.source), test.target)
            minutes = json.loads((run / "metrics.jsonl").read_text("utf-8").splitlines()[-1])["minutes"]
            trained.append({"seed": seed, "minutes": round(minutes, 1), "bleu": round(score, 1), "answers": ask(run)})
            print(trained[-1], flush=True)
    content: dict[str, Any] = {"about": about(), "signature": signature, "riddle": RIDDLE, "trained": trained}
    content["without them"] = [without_them(seed) for seed in range(min(2, args.seeds))]
    content["photographs"] = {name: ask(DATA_FOLDER / "checkpoints" / name) for name in ("de-en", "de-en-best")}
    pairs = {name: load_corpus(corpus, "train").source for name, corpus in CORPORA.items()}
    begun = {name: sum(text.startswith(OBJECT_FIRST) for text in texts) for name, texts in pairs.items()}
    content["sentences"] = {name: len(texts) for name, texts in pairs.items()}
    save(args.results, content | {"begin with Den or Einen": begun})


def train(run: Path, seed: int, corpus: Sequence[str] = ("--corpus", "grammar")) -> None:
    """Train as chapter 07 does, on its corpus or another."""
    options = TRAINING.replace("--corpus grammar", "").split()
    command_line.main([*options, *corpus, "--seed", str(seed), "--out", str(run)])


def without_them(seed: int) -> dict[str, int]:
    """Train without the sentences that begin with an object's article; count which of chapter 09's come out right."""
    lesson = names_of_lesson("09_whole_transformer.ipynb", "pairs")
    with tempfile.TemporaryDirectory() as name:
        folder, corpus = Path(name), list[str]()
        for split, option in (("train", ""), ("val", "val-")):
            pairs = load_corpus("grammar", split)
            kept = [pair for pair in zip(*pairs, strict=True) if not pair[0].startswith(OBJECT_FIRST)]
            for side, texts in zip(("source", "target"), zip(*kept, strict=True), strict=True):
                (folder / f"{split}.{side}").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
                corpus += [f"--{option}{side}", f"{folder / split}.{side}"]
        train(folder / "run", seed, corpus)
        counts = {}
        for article, order in (("Der", 1), ("Den", -1)):
            rights = [(lesson["men"][man], lesson["women"][woman])[::order] for man, woman, _ in lesson["who"]]
            words = [text.rstrip(".").split() for text in ask(folder / "run", lesson["asked"][article], beam=0)]
            counts[article] = sum((*text[1:2], *text[-1:]) == right for text, right in zip(words, rights, strict=True))
    print("without", seed, counts, flush=True)
    return counts


def ask(folder: Path, texts: list[str] | None = None, **options: Any) -> list[str]:
    """Translate the riddle, or other texts, with the model of a folder."""
    return translate(load_checkpoint(folder)[0], load_tokenizer(folder), texts or [*RIDDLE], "de", **options)


if __name__ == "__main__":
    main()
