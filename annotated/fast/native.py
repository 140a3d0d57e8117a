"""Parts of a search's step in C, where this machine has a compiler: native.c is compiled for its processor."""

import ctypes
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from annotated.masking import Mask

SOURCE = Path(__file__).with_name("native.c")
SENTENCES = 8  # from so many on; for fewer a quarter of a second to compile would never come back
QUERIES = 4  # of a sentence, and no more: of many, PyTorch's products are the faster
ONE, SEVERAL = 2, 1  # threads up to which its own one is the faster: for one query or a choice, and for several queries
AMONG = 100  # tokens to choose one from, or more; of fewer, PyTorch's choice is as fast
FUNCTIONS = {"attend": (5, 19), "best_tokens": (4, 4)}  # how many pointers and sizes they take


def suits(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Tell whether `attend` can compute attention of these, and sooner than PyTorch."""
    return (
        query.device.type == "cpu"
        and all(x.dtype == torch.float32 and x.stride(-1) == 1 for x in (query, key, value))
        and len(query) >= SENTENCES
        and query.size(2) <= QUERIES
        and torch.get_num_threads() <= (ONE if query.size(2) == 1 else SEVERAL)
        and not (torch.is_grad_enabled() or torch.compiler.is_compiling())
        and library() is not None
    )


def attend(
    query: Float[Tensor, "batch heads query d_k"],
    key: Float[Tensor, "batch heads key d_k"],
    value: Float[Tensor, "batch heads key d_v"],
    mask: Mask | None,
) -> Float[Tensor, "batch query heads_d_v"]:
    """Do what `annotated.fast.attention.attend_heads` does, of what `suits`."""
    compiled = library()
    assert compiled is not None
    batch, heads, queries, d_k = query.shape
    keys, d_v = value.shape[2:]
    mixed = query.new_empty(batch, queries, heads * d_v)
    of_mask = (0, 0, 0, 0) if mask is None else mask.expand(batch, heads, queries, keys).stride()
    compiled.attend(
        *(None if x is None else x.data_ptr() for x in (query, key, value, mask, mixed)),
        *(batch, heads, queries, keys, d_k, d_v),
        *(stride for x in (query, key, value) for stride in x.stride()[:3]),
        *of_mask,
    )
    return mixed


def ranks(logits: Tensor, count: int) -> bool:
    """Tell whether `best_tokens` can choose among these, and sooner than PyTorch."""
    return (
        logits.device.type == "cpu"
        and logits.dtype in (torch.float32, torch.bfloat16)
        and len(logits) >= SENTENCES
        and logits.size(-1) >= AMONG * count
        and torch.get_num_threads() <= ONE
        and not (torch.is_grad_enabled() or torch.compiler.is_compiling())
        and library() is not None
    )


def best_tokens(
    logits: Float[Tensor, "*row vocab"], count: int, never: Sequence[int]
) -> tuple[Float[Tensor, "*row count"], Int[Tensor, "*row count"]]:
    """Find the most probable tokens of each row, the best first, of what `ranks`.

    Args:
        logits: of all tokens. While it looks, some are covered; afterwards they are what they were.
        count: how many to find.
        never: tokens that are not chosen; they have their share of the probability all the same.

    Returns:
        Their log-probabilities, and the tokens.
    """
    compiled = library()
    assert compiled is not None
    logits = logits.float().contiguous()
    found = logits.new_empty(*logits.shape[:-1], count), logits.new_empty(*logits.shape[:-1], count, dtype=torch.int64)
    hidden = torch.tensor(never, device=logits.device)
    pointers = (x.data_ptr() for x in (logits, hidden, *found))
    compiled.best_tokens(*pointers, found[0].numel() // count, logits.size(-1), len(never), count)
    return found


@cache
def library() -> ctypes.CDLL | None:
    """Compile native.c and load it; None where there is no compiler, or one that can't."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    options = ["-O3", "-fopenmp-simd", "-shared", "-fPIC"]
    if platform.machine() == "x86_64":  # others' vectors need no asking for
        options.append("-march=native")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        made = Path(folder) / "native.so"
        command = [compiler, *options, "-o", str(made), str(SOURCE), "-lm"]
        if subprocess.run(command, capture_output=True).returncode:
            return None
        try:
            compiled = ctypes.CDLL(str(made))
        except OSError:  # such as in a folder of which nothing may be run
            return None
    for name, (pointers, sizes) in FUNCTIONS.items():
        function = getattr(compiled, name)
        function.restype, function.argtypes = None, [ctypes.c_void_p] * pointers + [ctypes.c_long] * sizes
    return compiled
