"""What an exercise's card rules out: functions that an answer calls on its way, and loops in the reader's own code."""

import dis
import linecache
import re
import sys
from collections.abc import Callable
from itertools import takewhile
from types import CodeType, FrameType
from typing import Any

LOOP = re.compile("^FOR_ITER|JUMP_BACKWARD")


def broken(names: str, answer: Any, run: Callable[[], Any]) -> str | None:
    """Run a reader's answer, and say which function of such a name it calls, or where the reader's own code loops.

    Names are such as "softmax annotated.models loop"; one with a dot, and "annotated", is a module's. What else stands
    in the answer's notebook is the reader's own, too.
    """
    called, own = set[str](), dict[CodeType, None]()

    def look(frame: FrameType, event: str, function: Any) -> None:
        if frame.f_globals is getattr(answer, "__globals__", None) and event == "call":
            own[frame.f_code] = None
        elif event == "call":
            called.add(f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}")
        elif event == "c_call":
            called.add(function.__qualname__)

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        run()
    finally:
        sys.setprofile(before)
    for code in own if "loop" in names.split() else ():
        steps = takewhile(lambda step: step.opname != "PUSH_EXC_INFO", dis.get_instructions(code))  # handlers jump back
        for place in (step.positions and step.positions.lineno for step in steps if LOOP.search(step.opname)):
            return f"there is a loop (line {place}: {linecache.getline(code.co_filename, place or 0).strip():.80})"
    for function in sorted(called):
        last = function.rpartition(".")[2].strip("_")
        if any(name == last or last.endswith(f"_{name}") or function.startswith(f"{name}.") for name in names.split()):
            return f"your code calls `{last if last != 'init' else function.split('.')[-2]}`"
    return None
