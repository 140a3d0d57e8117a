"""The exercises of chapter 07, training."""

from annotated.exercises.diagnosis import Exercise

EXERCISES: dict[str, Exercise] = {}
