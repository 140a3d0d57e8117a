"""The exercises of chapter 06, masking."""

from annotated.exercises.diagnosis import Exercise

EXERCISES: dict[str, Exercise] = {}
