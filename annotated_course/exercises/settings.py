"""What an answer may change and is as before after its check: torch's settings, random numbers, warnings."""

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def kept_settings() -> Iterator[None]:
    """Run an answer with torch's usual settings; restore the notebook's, and its random numbers, afterwards."""
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]), torch.enable_grad(), warnings.catch_warnings():
        try:
            torch.set_default_dtype(torch.float32)
            yield
        finally:
            torch.set_default_dtype(dtype)
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)
            random.setstate(states[0])
            np.random.set_state(states[1])
