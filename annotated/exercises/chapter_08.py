"""The exercises of chapter 08, decoding."""

from annotated.exercises.diagnosis import Exercise

EXERCISES: dict[str, Exercise] = {}
