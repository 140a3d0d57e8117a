"""The exercises of chapter 02, multi-head attention."""

from annotated.exercises.diagnosis import Exercise

EXERCISES: dict[str, Exercise] = {}
