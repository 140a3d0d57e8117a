"""The count of what a reader meets in a lesson."""

from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from once import once

from tools.reading import Count, count

pytestmark = once

FOLDED = {"jupyter": {"source_hidden": True}, "tags": ["proof", "hide-input"]}


def test_the_main_line_is_all_but_exercises_and_deeper_and_checks_that_unfold_are_one_tick() -> None:
    picture = new_output("display_data", data={"image/png": "", "text/plain": "<Figure>"})
    more = {"text/plain": "✓ 2 more checks", "text/html": "<details><summary>✓ 2 more checks</summary>\n✓ a<br>\n✓ b\n"}
    notebook = new_notebook(
        cells=[
            new_markdown_cell("# Title\n\nIt's three words: $a + b$ counts as one."),
            new_code_cell("x = 1\n\nclaim('x', x, 1)", outputs=[new_output("stream", text="✓ x\n"), picture]),
            new_code_cell("claim('y')\nclaim('z')", metadata=FOLDED, outputs=[new_output("stream", text="✓ y\n✗ z\n")]),
            new_code_cell(
                "with more_checks():\n    claim('a')\n    claim('b')", outputs=[new_output("display_data", more)]
            ),
            new_markdown_cell("## Exercises\n\nnot counted"),
            new_code_cell("check('01.1', ...)", outputs=[new_output("stream", text="○ 01.1\n")]),
            new_markdown_cell("## Summary\n\ncounted"),
            new_markdown_cell("## Deeper\n\nnot counted"),
            new_code_cell("claim('w')", outputs=[new_output("stream", text="✓ w\n")]),
        ]
    )
    assert count(notebook) == Count(words=10, lines=5, ticks=4, figures=1)
