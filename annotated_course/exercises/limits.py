"""What keeps a check short: a time after which an answer is stopped."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


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
