"""The exercises of chapter 03, positional encoding."""

from annotated.exercises.diagnosis import Exercise

EXERCISES: dict[str, Exercise] = {}
