"""What an exercise's card rules out: functions that an answer calls on its way, and loops in the reader's own code."""

import dis
import linecache
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any


def broken(names: str, answer: Any, run: Callable[[], Any]) -> str | None:
    """Run something, and say which function of such a name it calls, or where the reader's own code loops.

    Args:
        names: such as "softmax annotated.models loop"; one with a dot, and "annotated", is a module's.
        answer: the reader's function; what else stands in its notebook is the reader's own, too.
        run: what runs it.
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
    for step, file in ((step, code.co_filename) for code in own for step in dis.get_instructions(code)):
        if "loop" in names.split() and step.opname.startswith(LOOPS) and step.positions and step.positions.lineno:
            place = step.positions.lineno
            return f"there is a loop (line {place}: {linecache.getline(file, place).strip():.80})"
    for function in sorted(called):
        last = function.rpartition(".")[2].strip("_")
        if any(name == last or last.endswith(f"_{name}") or function.startswith(f"{name}.") for name in names.split()):
            return f"your code calls `{last if last != 'init' else function.split('.')[-2]}`"
    return None


# What a `for` becomes, in brackets, too, and a `while`; before Python 3.12 a `with` jumps back as `while True` does.
LOOPS = ("FOR_ITER", "POP_JUMP_BACKWARD", *(("JUMP_BACKWARD",) if sys.version_info >= (3, 12) else ()))
