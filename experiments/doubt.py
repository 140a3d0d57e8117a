"""Of which sentences the delivered models are rightly unsure, by several rules; and what else can warn a visitor.

    python -m experiments.doubt data/results/doubt.json

Caught: sentences of data/unlike_captions.tsv. False: captions of test_2016_flickr, of the first 200 and of all 1,000.
Bad: captions whose translation has chrF below 35. Of the page's model also: two captions at once or one by one (chrF);
and captions, German and English, of whose words a quarter hold a foreign piece, one that stands in the German captions
to learn from fewer than five times. Bit n of "foreign", in base 64, is piece n. Two minutes on one core.
"""

import base64
import re
from collections import Counter
from itertools import product

import numpy as np
from sacrebleu.metrics import CHRF

from annotated_workbench.checkpoint import load_translator
from annotated_workbench.data import DATA_FOLDER, load_corpus
from annotated_workbench.metrics import chrf
from annotated_workbench.translation import GUESS, is_unsure, translate, words_written
from experiments.results import about, arguments, save

FIRST, BAD, MET, QUARTER = 200, 35, 5, 0.25
SHARES = {"a guess": 1e-9, "a fifth guesses": 0.2, "a quarter guesses": 0.25}  # of the words: other rules


def main() -> None:
    """Translate, apply each rule, count pieces, and save."""
    args = arguments(__doc__).parse_args()
    lines = (DATA_FOLDER / "unlike_captions.tsv").read_text("utf-8").splitlines()
    kinds, unlike = zip(*(line.split("\t") for line in lines), strict=True)
    test, rows = load_corpus("multi30k", "test_2016_flickr"), {}
    for name, (search, beam) in product(("de-en", "de-en-best"), (("greedy", 0), ("beam", 4))):
        model, tokenizer, _ = load_translator([DATA_FOLDER / "checkpoints" / name])
        texts = [*unlike, *test.source]
        found = translate(model, tokenizer, texts, "de", beam=beam)
        words = [words_written(model, tokenizer, *pair, "de", "en") for pair in zip(texts, found, strict=True)]
        pairs = zip(found[len(unlike) :], test.target, strict=True)
        bad = np.array([CHRF().sentence_score(ours, [right]).score < BAD for ours, right in pairs])
        share = np.array([np.mean([word.probability < GUESS for word in each] or [1.0]) for each in words])
        doubts = {rule: share >= part for rule, part in SHARES.items()}
        for rule, doubt in (("the rule", [*map(is_unsure, words)]), *doubts.items()):
            caught, alarms = np.split(doubt, [len(unlike)])
            row = {"caught": caught.sum(), "false of 200": alarms[:FIRST].sum(), "false of 1,000": alarms.sum()}
            row |= {"bad": bad.sum(), "bad caught": (alarms & bad).sum()}
            missed = Counter(kind for kind, is_caught in zip(kinds, caught, strict=True) if not is_caught)
            rows[f"{name}, {search}, {rule}"] = {key: int(value) for key, value in row.items()} | {"missed": missed}

    train = load_corpus("multi30k", "train").source
    met = Counter(piece for row in tokenizer.encode_batch(train, "de") for piece in row)
    is_foreign = np.array([met[piece] < MET for piece in range(len(tokenizer))])

    def is_other_language(text: str) -> bool:
        pieces = [tokenizer.encode(word, "de") for word in re.findall(r"[^\W\d_]+", text)]
        return bool(np.mean([is_foreign[word].any() for word in pieces] or [0]) >= QUARTER)

    twos = [[" ".join(side[i : i + 2]) for i in range(0, FIRST, 2)] for side in (*test, found[len(unlike) :])]
    together = translate(model, tokenizer, twos[0], "de")
    facts = {
        "rows": rows,
        "two captions, chrF": {"at once": chrf(together, twos[1])[0], "one by one": chrf(twos[2], twos[1])[0]},
        "of another language": [sum(map(is_other_language, side)) for side in test],
        "foreign": base64.b64encode(np.packbits(is_foreign, bitorder="little").tobytes()).decode(),
    }
    save(args.results, about() | facts)


if __name__ == "__main__":
    main()
