"""What an answer may change and is as before after its check: torch's settings, random numbers, figures and more."""

import decimal
import gc
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch


def _attribute(owner: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    return partial(getattr, owner, name), partial(setattr, owner, name)


def _set_device(device: torch.device) -> None:
    torch.set_default_device(None if device.type == "cpu" else device)  # "cpu" would slow down each call


def _collection(owner: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Treat an attribute that is a list or table: both which it is and what it holds, as either may be changed."""

    def get() -> tuple[Any, Any]:
        return getattr(owner, name), getattr(owner, name).copy()

    def put(before: tuple[Any, Any]) -> None:
        collection, content = before
        collection.clear()
        (collection.extend if isinstance(content, list) else collection.update)(content)
        setattr(owner, name, collection)

    return get, put


def _set_modes(before: list[Any]) -> None:
    while torch.overrides._get_current_function_mode_stack():
        torch.overrides._pop_mode()
    for mode in before:
        torch.overrides._push_mode(mode)


def _set_interrupt(before: Any) -> None:
    if threading.current_thread() is threading.main_thread():  # no other may
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)


def _plot_settings() -> dict[str, Any]:
    """Read matplotlib's, if somebody has loaded it, but for the backend, which any other way of reading would load."""
    matplotlib = sys.modules.get("matplotlib")
    return {**dict(dict.items(matplotlib.rcParams)), "backend": None} if matplotlib else {}


def _set_plots(before: dict[str, Any]) -> None:
    matplotlib = sys.modules["matplotlib"]
    usual = before or dict(dict.items(matplotlib.rcParamsOrig))
    dict.update(matplotlib.rcParams, {name: value for name, value in usual.items() if name != "backend"})


def _figures() -> list[int]:
    pyplot = sys.modules.get("matplotlib.pyplot")
    return pyplot.get_fignums() if pyplot else []


def _close_figures(before: list[int]) -> None:
    for number in set(_figures()) - set(before):
        sys.modules["matplotlib.pyplot"].close(number)


# What an answer may change: how it is read and how it is set. Restored from the last to the first.
SETTINGS: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.overrides._get_current_function_mode_stack, _set_modes),  # `with torch.device(...)` that was not left
    (lambda: torch.empty(0).device, _set_device),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),  # and cuda.matmul.allow_tf32
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    _attribute(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
    _attribute(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
    (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    _attribute(torch.utils.deterministic, "fill_uninitialized_memory"),
    *(_attribute(torch.backends.cudnn, name) for name in ("enabled", "deterministic", "benchmark", "allow_tf32")),
    (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
    (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda before: torch.autograd.set_detect_anomaly(*before),
    ),
    (torch.is_warn_always_enabled, torch.set_warn_always),
    (lambda: sys.float_info.min / 2 == 0, torch.set_flush_denormal),
    (
        lambda: dict(vars(torch._tensor_str.PRINT_OPTS)),
        lambda before: torch.set_printoptions(**before),
    ),
    _attribute(torch.distributions.Distribution, "_validate_args"),
    *(
        (_collection if hasattr(hooks, "clear") else _attribute)(torch.nn.modules.module, name)
        for name, hooks in vars(torch.nn.modules.module).items()
        if name.startswith("_global_")
    ),
    (np.geterr, lambda before: np.seterr(**before)),
    (np.get_printoptions, lambda before: np.set_printoptions(**before)),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    *(_collection(owner, name) for owner, name in ((os, "environ"), (sys, "path"), (sys, "argv"))),
    *(_attribute(sys, name) for name in ("stdin", "stdout", "stderr", "excepthook", "displayhook")),
    (partial(signal.getsignal, signal.SIGINT), _set_interrupt),
    (lambda: logging.root.manager.disable, logging.disable),
    (logging.root.getEffectiveLevel, logging.root.setLevel),
    _collection(logging.root, "handlers"),
    (_plot_settings, _set_plots),
    (_figures, _close_figures),
    (gc.isenabled, lambda before: gc.enable() if before else gc.disable()),
]


@contextmanager
def kept_settings() -> Iterator[None]:
    """Check with torch's usual settings, and afterwards restore those of the notebook, and its random numbers."""

    def restore(get: Callable[[], Any], put: Callable[[Any], Any], before: Any) -> None:
        if get() != before:  # some are slow to set
            put(before)

    with ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())  # comes last: restoring the rest may draw some
        stack.callback(np.random.set_state, np.random.get_state())
        for get, put in SETTINGS:
            stack.callback(restore, get, put, get())
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(chdir("."))
        stack.enter_context(decimal.localcontext())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.autocast("cpu", enabled=False))
        torch.set_default_dtype(torch.float32)
        if torch.empty(0).device.type != "cpu":
            torch.set_default_device(None)
        torch.set_grad_enabled(True)
        yield
