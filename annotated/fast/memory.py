"""Memory that a process keeps: on a page fresh from the system, the first touch costs more than the work on it."""

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's numbers of these settings, in malloc.h


def keep_memory() -> None:
    """Let this process keep the memory it frees, for the next update or batch, instead of giving it back to the system.

    Asks the C library of Linux; elsewhere nothing changes.
    """
    setting = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if setting is not None:
        setting(MMAP_THRESHOLD, 2**25)  # the largest that it takes: 32 MB
        setting(TRIM_THRESHOLD, 2**31 - 1)
