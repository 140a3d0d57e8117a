"""What keeps a check short: a time after which an answer is stopped, and room for what it prints."""

import io
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class TimeIsUpError(BaseException):
    """The time of a check is over; no Exception, which a reader's own code may catch."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeIsUpError` in a block after some seconds, and each second again while the block catches that.

    On Windows, and in any thread but the main one, there is no limit.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise TimeIsUpError

    handler = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)


class Beginning(io.TextIOBase):
    """Pass on the beginning of what is printed; count the rest, which would fill the notebook."""

    def __init__(self, stream: Any, room: int = 5000) -> None:
        self.stream, self.room, self.left_out, self.last = stream, room, 0, "\n"

    def write(self, text: str) -> int:
        """Pass on what there is room for."""
        shown = text[: self.room]
        self.stream.write(shown)
        self.room -= len(shown)
        self.left_out += len(text) - len(shown)
        self.last = shown[-1:] or self.last
        return len(text)

    def end(self) -> None:
        """End the last line, and say how much is left out."""
        self.stream.write("" if self.last == "\n" else "\n")
        if self.left_out:
            self.stream.write(f"… and {self.left_out:,} more characters that your code printed\n")
