"""How well reviews are sorted: the classifier of the command line over seeds, with counted words beside it.

    python -m experiments.classification data/results/reviews.json [--corpus rt_polarity] [--seeds 3]

Each seed trains as `python -m annotated train --corpus rt_polarity --seed …` does. The baselines count the words, and
the pairs of neighbours, of the same training split. The file says of each method which test texts it gets right, a
digit a text, so that two methods can be compared text by text.
"""

import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO

from annotated.__main__ import main as annotated
from annotated_workbench.checkpoint import load_run
from annotated_workbench.classification import classify
from annotated_workbench.reviews import REVIEWS, load_reviews
from experiments.results import about, arguments, save


def main() -> None:
    """Train, score, print the shares, save the answers."""
    parser = arguments(__doc__, seeds=3)
    parser.add_argument("--corpus", choices=REVIEWS, default="rt_polarity")
    args = parser.parse_args()
    labels = load_reviews(args.corpus, "test").labels
    answers = baselines(args.corpus)
    answers |= {f"Transformer, seed {seed}": transformer(args.corpus, seed) for seed in range(args.seeds)}
    right = {name: [int(a == b) for a, b in zip(found, labels, strict=True)] for name, found in answers.items()}
    for name, ones in right.items():
        print(f"{name:40}{sum(ones) / len(labels):8.1%}", flush=True)
    save(args.results, about() | {"right": {name: "".join(map(str, ones)) for name, ones in right.items()}})


def baselines(corpus: str) -> dict[str, Sequence[str]]:
    """Sort the test texts by naive Bayes and logistic regression on which words, and which neighbours, a text has."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    train, test = (load_reviews(corpus, split) for split in ("train", "test"))
    found = {}
    for words, longest in (("words", 1), ("words and pairs", 2)):
        methods = {"naive Bayes": MultinomialNB(), "logistic regression": LogisticRegression(max_iter=1000)}
        for name, method in methods.items():
            pipeline = make_pipeline(CountVectorizer(ngram_range=(1, longest), binary=True), method)
            found[f"{name}, {words}"] = pipeline.fit(*train).predict(test.texts)
    return found


def transformer(corpus: str, seed: int) -> list[str]:
    """Train one model as the command line does; sort the test texts by it."""
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/run"
        with redirect_stdout(StringIO()):
            if annotated(["train", "--corpus", corpus, "--seed", str(seed), "--out", out]) != 0:
                raise RuntimeError(f"training with seed {seed} failed.")
        model, tokenizer, info = load_run(out)
        probabilities = classify(model, tokenizer, load_reviews(corpus, "test").texts, info["language"])
    return [info["labels"][best] for best in probabilities.argmax(dim=1).tolist()]


if __name__ == "__main__":
    main()
