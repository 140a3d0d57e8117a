"""The exercises of chapter 05, decoder."""

from annotated.exercises.diagnosis import Exercise

EXERCISES: dict[str, Exercise] = {}
