"""The exercises of chapter 04, encoder."""

from annotated.exercises.diagnosis import Exercise

EXERCISES: dict[str, Exercise] = {}
