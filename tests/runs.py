"""A small corpus in files, and how a small run is started: for the tests of the command line."""

from pathlib import Path

ANIMALS = {"Hund": "dog", "Vogel": "bird", "Bär": "bear", "Käfer": "beetle", "Wolf": "wolf"}
VERBS = {"läuft": "runs", "schläft": "sleeps", "spielt": "plays", "wartet": "waits"}
PLACES = {"hier": "here", "dort": "there", "draußen": "outside"}
SENTENCES = [
    (f"Ein {animal} {verb} {place}.", f"A {ANIMALS[animal]} {VERBS[verb]} {PLACES[place]}.")
    for animal in ANIMALS
    for verb in VERBS
    for place in PLACES
]
SMALL = ["--preset", "tiny", "--vocab-size", "280", "--warmup", "7", "--rate", "1", "--batch-tokens", "300"]
SMALL += ["--precision", "fp32"]


def write_corpus(folder: Path) -> None:
    """Write sixty pairs in my.de and my.en."""
    for side, language in enumerate(("de", "en")):
        (folder / f"my.{language}").write_text("".join(f"{pair[side]}\n" for pair in SENTENCES), encoding="utf-8")


def train_arguments(folder: Path, out: Path | str, *more: str) -> list[str]:
    """Give the arguments that train on what `write_corpus` wrote into a folder."""
    files = ["--source", str(folder / "my.de"), "--target", str(folder / "my.en")]
    return ["train", *files, "--out", str(out), *SMALL, *more]
