"""The exercises of the tour: hide a word from the trained model, and read where it looks."""

from functools import cache
from typing import Any

import torch

from annotated.config import BOS, EOS
from annotated_course.exercises.exercise import Exercise, WrongFormError
from annotated_workbench.checkpoint import load_checkpoint
from annotated_workbench.data import DATA_FOLDER
from annotated_workbench.vocabulary import load_tokenizer

EXERCISES: dict[str, Exercise] = {}
CHASED = "Ein Hund jagt eine Katze durch den Garten."
WORDS = tuple(CHASED.strip(".").split())
GARDEN_FIRST = "Im Garten jagt ein Hund eine Katze."


@cache
@torch.inference_mode()
def translation_without(word: str, sentence: str = CHASED) -> str:
    """Translate a sentence with one of its words hidden from the decoder."""
    folder = DATA_FOLDER / "checkpoints" / "de-en"
    model: Any = load_checkpoint(folder)[0]
    tokenizer = load_tokenizer(folder)
    german = torch.tensor([[*tokenizer.encode(sentence, "de"), EOS]])
    visible = ~torch.isin(german, torch.tensor(tokenizer.encode(word, "de")))[:, None, None]
    memory, ids = model.encode(german), [BOS]
    while ids[-1] != EOS and len(ids) < 30:
        states = model.decode(torch.tensor([ids]), memory, visible)
        ids.append(int(model.logits(states[0, -1]).argmax()))
    return tokenizer.decode(ids)


def examine_hidden_word(answer: Any) -> str | None:
    """Hide the word from the model, and tell what is left of the cat."""
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
    examine=examine_hidden_word,
    caught={
        "expected a string, got a list of 1": ["jagt"],
        "is not one of the words": "garten",
        "too easy": "Katze",
        "the cat is still there": "eine",
    },
)

NOUNS = {"Dog": "Hund", "Cat": "Katze", "Yard": "Garten"}
ANIMALS = ("Hund", "Katze")


def examine_look(answer: Any) -> str | None:
    """Look at a pair of words, in whatever case, and hide the animal that comes third."""
    if not isinstance(answer, list | tuple) or len(answer) != 3 or not all(isinstance(word, str) for word in answer):
        raise WrongFormError('give three words, the English noun, then the German one: ("yard", "Garten", …)', answer)
    english, german, hidden = (word.strip().capitalize() for word in answer)
    if english not in NOUNS or german not in NOUNS.values():
        return f"the first two are an English noun, {', '.join(NOUNS)}, and a German one, {', '.join(NOUNS.values())}."
    if NOUNS[english] == german:
        return f"{german} is the right noun for {english}: look for a row that is darkest at another."
    if english != "Dog":
        return f"the row {english} is darkest at {NOUNS[english]}, where it should be: read the other two."
    if german != "Katze":
        return "the right row. Its darkest square is in another column."
    if hidden not in ANIMALS:
        return f"the right pair. Third comes the animal whose hiding changes the translation: {' or '.join(ANIMALS)}."
    text = translation_without(hidden, GARDEN_FIRST)
    changed = text != translation_without("", GARDEN_FIRST)
    return None if changed else f"the right pair. But without {hidden} it writes {text!r}, as it did before."


EXERCISES["00.2"] = Exercise(
    "Read a map",
    right=("dog", "Katze", "Katze"),
    examine=examine_look,
    caught={
        "give three words": ("dog", 4, "Hund"),
        "the first two are": ("chases", "jagt", "Hund"),
        "is the right noun for": ("cat", "Katze", "Katze"),
        "where it should be": ("yard", "Katze", "Katze"),
        "Third comes the animal": ("dog", "Katze", "dog"),
        "as it did before": ("dog", "Katze", "hund"),
    },
)
