"""Imitate a processor that rounds in another way: Python runs this file first wherever its folder is on PYTHONPATH.

After each update of any optimizer, every weight w is multiplied by 1 + 10⁻⁷ · sin(12345.678 · $ANNOTATED_ROUNDING · w),
which moves it by its last bit or not at all. The noise depends on the weight alone: equal weights stay equal, and a
resumed run equals an unbroken one.
"""

import os

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

SEED = int(os.environ["ANNOTATED_ROUNDING"])


@torch.no_grad()
def disturb(optimizer, args, kwargs):
    """Move the weights that the optimizer has just updated."""
    for group in optimizer.param_groups:
        for weight in group["params"]:
            weight.mul_(1 + 1e-7 * torch.sin(12345.678 * SEED * weight))


register_optimizer_step_post_hook(disturb)
