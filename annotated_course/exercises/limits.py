"""What keeps a check short: a time after which an answer is stopped, and room for what it prints."""

import codecs
import io
import signal
import threading
import time
from collections.abc import Callable
from typing import Any


class TimeIsUpError(BaseException):
    """The time of a check is over; no Exception, which a reader's own code may catch."""


def limited(seconds: float, function: Callable[[], str | None]) -> str | None:
    """Call a function; raise `TimeIsUpError` in it after some seconds, and each second again while it catches that."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        return function()
    running = False

    def stop(*_: object) -> None:
        if running:
            raise TimeIsUpError

    began = time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, 0)  # somebody else's timer waits
    handler = signal.signal(signal.SIGALRM, stop)
    try:
        try:
            running = True
            signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
            return function()
        finally:
            running = False
    finally:  # not in the one above, which an alarm may still leave
        running = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler or signal.SIG_DFL)
        if left:  # it goes on, and goes off at once where its time has passed
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - began), 1e-3), interval)


class Beginning(io.RawIOBase):
    """Pass on the beginning of what is printed; count the rest, which would fill the notebook."""

    name = "<stdout>"

    def __init__(self, stream: Any, room: int = 5000) -> None:
        self.stream, self.room, self.left_out, self.last = stream, room, 0, "\n"
        self.decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def text(self) -> io.TextIOWrapper:
        """Give a stream with all that a usual one has, its `buffer` and `encoding` too."""
        return io.TextIOWrapper(self, "utf-8", "backslashreplace", newline="", write_through=True)

    def writable(self) -> bool:
        """Say what the text stream asks for."""
        return True

    def fileno(self) -> int:
        """Give the number of the stream behind, if it has one."""
        return self.stream.fileno()

    def write(self, data: Any) -> int:
        """Pass on what there is room for."""
        text = self.decoder.decode(data)
        shown = text[: self.room]
        self.stream.write(shown)
        self.room -= len(shown)
        self.left_out += len(text) - len(shown)
        self.last = shown[-1:] or self.last
        return len(data)

    def end(self) -> None:
        """End the last line, and say how much is left out."""
        if self.last != "\n":
            self.stream.write("\n")
        if self.left_out:
            self.stream.write(f"… and {self.left_out:,} more characters that your code printed\n")
