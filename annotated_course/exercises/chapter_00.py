"""The exercises of the tour: hide a word from the trained model, and read where it looks."""

from functools import cache
from typing import Any

import torch

from annotated.config import BOS, EOS
from annotated_course.exercises.exercise import AnyOf, Exercise
from annotated_workbench.checkpoint import load_checkpoint
from annotated_workbench.data import DATA_FOLDER
from annotated_workbench.vocabulary import load_tokenizer

EXERCISES: dict[str, Exercise] = {}
WORDS = ("Ein", "Hund", "jagt", "eine", "Katze", "durch", "den", "Garten")


@cache
@torch.inference_mode()
def translation_without(word: str) -> str:
    """Translate the sentence of exercise 00.1 with one of its words hidden from the decoder."""
    folder = DATA_FOLDER / "checkpoints" / "de-en"
    model: Any = load_checkpoint(folder)[0]
    tokenizer = load_tokenizer(folder)
    german = torch.tensor([[*tokenizer.encode(" ".join(WORDS) + ".", "de"), EOS]])
    visible = ~torch.isin(german, torch.tensor(tokenizer.encode(word, "de")))[:, None, None]
    memory, ids = model.encode(german), [BOS]
    while ids[-1] != EOS and len(ids) < 30:
        states = model.decode(torch.tensor([ids]), memory, visible)
        ids.append(int(model.logits(states[0, -1]).argmax()))
    return tokenizer.decode(ids)


def examine_hidden_word(answer: Any) -> str | None:
    """Hide the word from the model, and tell what is left of the cat."""
    if not isinstance(answer, str):
        return 'give one German word as a string, such as "Garten".'
    word = answer.strip(" .")
    if word not in WORDS:
        return f"{word!r} is not one of the words: {', '.join(WORDS)}. Capital letters count."
    if word in ("Katze", "Hund"):
        return f"{word} would be too easy: hide a word that is no animal."
    text = translation_without(word)
    return f"without {word} it writes {text!r}: the cat is still there." if "cat" in text.lower().split() else None


EXERCISES["00.1"] = Exercise(
    "Make the cat disappear",
    right="jagt",
    cases={},
    examine=examine_hidden_word,
    caught={
        "give one German word as a string": AnyOf(2, ["jagt"]),
        "is not one of the words": AnyOf("jagen", "garten", ""),
        "too easy": AnyOf("Katze", "Hund"),
        "the cat is still there": AnyOf("Ein", "eine", "durch", "den", "Garten"),
    },
)

NOUNS = {"dog": "Hund", "cat": "Katze", "yard": "Garten"}


def examine_look(answer: Any) -> str | None:
    """Look at a pair of words, in whatever case."""
    if not isinstance(answer, list | tuple) or len(answer) != 2 or not all(isinstance(one, str) for one in answer):
        return 'give a pair of words, the English noun and the German one: ("yard", "Garten").'
    english, german = answer[0].strip().lower(), answer[1].strip().capitalize()
    if english.capitalize() in NOUNS.values():
        return "the English word comes first."
    if english not in NOUNS or german not in NOUNS.values():
        return f"both are nouns: one of {', '.join(NOUNS)}, and one of {', '.join(NOUNS.values())}."
    if NOUNS[english] == german:
        return f"{german} is the right noun for {english}: look for a row that is darkest at another."
    if english != "dog":
        return f"the row {english} is darkest at {NOUNS[english]}, where it should be: read the other two."
    return None if german == "Katze" else "the right row. Its darkest square is in another column."


EXERCISES["00.2"] = Exercise(
    "Read a map",
    right=("dog", "Katze"),
    cases={},
    examine=examine_look,
    caught={
        "give a pair of words": AnyOf("dog", ("dog",), ("dog", 4)),
        "the English word comes first": ("Katze", "dog"),
        "both are nouns": AnyOf(("chases", "jagt"), ("dog", "Maus")),
        "is the right noun for": AnyOf(("cat", "Katze"), ("dog", "Hund")),
        "where it should be": AnyOf(("cat", "Hund"), ("yard", "Katze")),
        "Its darkest square is in another column": ("dog", "Garten"),
    },
)
