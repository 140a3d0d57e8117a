"""Pictures to play with: drag, slide or click, and see what follows; in a notebook and on a page.

`play*.js` in a chapter's folder is a picture, and the `.svg` of the same name what stands where no scripts run. What
they share is here: `common.js`, `style.css`, and `beam.js`, a search. What is shown needs no server, no library and no
other host.
"""

import base64
import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from annotated_course.plotting import IN_WORDS
from annotated_workbench.extras import load

FOLDER = Path(__file__).parent
SCRIPTS = {path: path.read_text(encoding="utf-8") for path in sorted(FOLDER.parent.glob("chapters/*/play*.js"))}
PICTURES = {re.findall(r'^start\("(\w+)"', script, re.MULTILINE)[0]: path for path, script in SCRIPTS.items()}
DIGITS = 4  # decimals of a tensor's numbers


def play_with(name: str, data: Mapping[str, Any], words: str) -> Any:
    """Show a picture to play with, by the name that its script gives itself: "query", "clock", …

    Its data are numbers, words, lists of them, and tensors, which are rounded; `words` say what there is to see, for
    those who cannot see it. A ValueError says that there is no such picture, or that a number is not finite.
    """
    return load("IPython.display").HTML(play_html(name, data, words))


def play_html(name: str, data: Mapping[str, Any], words: str) -> str:
    """Write a page's part that shows a picture to play with; the arguments are those of `play_with`."""
    if name not in PICTURES:
        raise ValueError(f"there is no picture {name!r}; there are {', '.join(PICTURES)}.")
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, default=_rounded)
    script, described = SCRIPTS[PICTURES[name]], html.escape(words)
    still, shown = PICTURES[name].with_suffix(".svg"), ""
    if still.exists():  # a new picture has none yet: python -m tools.stills
        encoded = base64.b64encode(still.read_bytes()).decode()
        shown = f'<img alt="{described}" src="data:image/svg+xml;base64,{encoded}">'
    shared = ["style.css", "common.js", *(["beam.js"] if "search(" in script else [])]
    style, *scripts = ((FOLDER / file).read_text(encoding="utf-8") for file in shared)
    joined = "\n".join([*scripts, script])
    return f"""<style>
{style}</style>
<div class="play" data-name="{name}" data-data="{html.escape(text)}">
<div class="play-still">{shown}
<p>This is a still picture, because no scripts run here. To play with it, run the cell in JupyterLab, or open the \
course's site.</p></div>
<details><summary>{IN_WORDS}</summary>{described}</details>
</div>
<script>
(() => {{
{joined}}})();
</script>"""


def _rounded(tensor: Tensor) -> Any:
    """Write a tensor as lists of rounded numbers."""
    return tensor.double().round(decimals=DIGITS).tolist() if tensor.is_floating_point() else tensor.tolist()
