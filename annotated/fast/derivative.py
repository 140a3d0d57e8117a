"""What a backward pass in closed form cannot give."""

import torch


def refuse_second_derivative() -> None:
    """Raise an error in a backward pass that is to be differentiated itself: autograd would take it for a constant.

    Raises:
        RuntimeError: it is.
    """
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError("a fast form has no second derivatives: compute them by the plain model inside it.")
