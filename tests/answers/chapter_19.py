"""No answers: they are in the chapter. This file is there while a chapter that speaks of a diagnosis counts as old."""

WRONG: list = []
RIGHT: list = []
