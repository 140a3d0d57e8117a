"""Wrong answers to the exercises of chapter 03, each with a pattern of its diagnosis; and other right answers."""

WRONG: list[tuple[str, object, str]] = []

RIGHT: list[tuple[str, object]] = []
