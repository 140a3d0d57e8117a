"""How well reviews are sorted: the classifier of the command line over seeds, with counted words beside it.

    python -m experiments.classification rt_polarity [--seeds 0 1 2]

Each seed trains as `python -m annotated train --corpus rt_polarity --seed …` does. The baselines count the words, and
the pairs of neighbours, of the same training split.
"""

import argparse
import statistics
import tempfile
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from annotated.__main__ import main as annotated
from annotated_workbench.checkpoint import load_run
from annotated_workbench.classification import classify
from annotated_workbench.metrics import accuracy
from annotated_workbench.reviews import REVIEWS, load_reviews


def main() -> None:
    """Train, score, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpus", choices=REVIEWS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args()
    for name, share in baselines(args.corpus).items():
        print(f"{name:40}{share:8.1%}", flush=True)
    found = []
    for seed in args.seeds:
        found.append(score(args.corpus, seed))
        print(f"{f'Transformer, seed {seed}':40}{found[-1]:8.1%}", flush=True)
    spread = f" ± {statistics.stdev(found):.1%}" if len(found) > 1 else ""
    print(f"{'Transformer, mean':40}{statistics.mean(found):8.1%}{spread}")


def baselines(corpus: str) -> dict[str, float]:
    """Score naive Bayes and logistic regression on which words, and which neighbours, a text has."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    train, test = (load_reviews(corpus, split) for split in ("train", "test"))
    found = {}
    for words, longest in (("words", 1), ("words and pairs", 2)):
        methods: dict[str, Any] = {
            "naive Bayes": MultinomialNB(),
            "logistic regression": LogisticRegression(max_iter=1000),
        }
        for name, method in methods.items():
            pipeline = make_pipeline(CountVectorizer(ngram_range=(1, longest), binary=True), method)
            found[f"{name}, {words}"] = pipeline.fit(*train).score(*test)
    return found


def score(corpus: str, seed: int) -> float:
    """Train one model as the command line does; return its accuracy on the test split."""
    test = load_reviews(corpus, "test")
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/run"
        with redirect_stdout(StringIO()):
            if annotated(["train", "--corpus", corpus, "--seed", str(seed), "--out", out]) != 0:
                raise RuntimeError(f"training with seed {seed} failed.")
        model, tokenizer, info = load_run(out)
        return accuracy(classify(model, tokenizer, test.texts, info["language"]), test.labels, info["labels"])


if __name__ == "__main__":
    main()
