"""The switches of 20_paper_code_today: each difference between the paper, its authors' code and today's models."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from annotated.encoder import LayerNorm
from annotated.models.modern import modernise
from annotated.training import make_optimizer, noam_rate
from annotated.transformer import Transformer
from experiments import model_changes as change
from experiments.model_changes import draw_embeddings, set_last_norm

WARM_UP, PEAK = 40, 0.006  # updates of the warm-up, and the highest learning rate
WIDTH, HEADS = 64, 4
PAPER = "the paper"

Rate = Callable[[int, int], float]  # of a step in a training of so many updates


def paper_rate(step: int, updates: int = 0, *, factor: float = 1, warm_up: int = WARM_UP, begin: int = 1) -> float:
    """Follow the paper's schedule, for a short training; begin: all earlier steps have the rate of this one."""
    return factor * PEAK * noam_rate(max(step, begin), WIDTH, warm_up) / noam_rate(WARM_UP, WIDTH, WARM_UP)


at_once = partial(paper_rate, begin=WARM_UP)
twice = partial(paper_rate, factor=2, warm_up=2 * WARM_UP)  # the schedule of the last tensor2tensor


def cosine(step: int, updates: int) -> float:
    """Warm up to the paper's highest rate in a tenth of the updates, then fall to a tenth of it along a cosine."""
    short = updates / 10
    fallen = 0.5 - 0.5 * math.cos(math.pi * max(0, step - short) / (updates - short))
    return PEAK * min(1, step / short) * (1 - 0.9 * fallen)


@dataclass(frozen=True)
class Switch:
    """One difference: changes of the configuration, parts for `modernise`, changes of the model, ways to train."""

    config: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, Any] = field(default_factory=dict)
    changes: tuple[Callable[[Transformer], object], ...] = ()
    rate: Rate = paper_rate
    optimizer: Callable[[nn.Module], torch.optim.Optimizer] = make_optimizer
    smoothing: float = 0.1
    clip: float = math.inf

    def applied(self, model: Any) -> Any:
        """Change a model that was made with this configuration, and return it."""
        if self.parts:
            modernise(model, **self.parts)
        for change_it in self.changes:
            change_it(model)
        return model


PRE, UNTIED, BIASED = {"norm_first": True}, {"tie_embeddings": False}, {"attention_bias": True}
SMALL = partial(nn.init.normal_, std=0.02)
NORMS = {
    "norm first, and one at the end": Switch(PRE),
    "norm first, none at the end": Switch(PRE, changes=(partial(set_last_norm, norm=nn.Identity),)),
    "norm after, and one more at the end": Switch(changes=(partial(set_last_norm, norm=partial(LayerNorm, WIDTH)),)),
    "norm before and after": Switch(PRE, changes=(change.norm_the_branches,)),
    "norm on the branch alone": Switch(PRE, changes=(partial(change.norm_the_branches, alone=True),)),
}
SWITCHES = {
    PAPER: Switch(),
    **NORMS,
    "RMSNorm": Switch(parts={"rms_norm": True}),
    "dropout in four places": Switch(changes=(change.drop_in_four_places,)),
    "no dropout": Switch({"dropout": 0.0}),
    "sines, then cosines": Switch(changes=(change.concatenate_sinusoids,)),
    "learned positions": Switch({"positions": "learned"}),
    "rotary positions": Switch(parts={"rotary": True}),
    "untied matrices": Switch(UNTIED),
    "untied, N(0, 1) × √d_model": Switch(UNTIED, changes=(partial(draw_embeddings, draw=nn.init.normal_),)),
    "untied, Xavier × √d_model": Switch(UNTIED, changes=(partial(draw_embeddings, draw=nn.init.xavier_uniform_),)),
    "N(0, 0.02²), no √d_model": Switch(changes=(partial(draw_embeddings, draw=SMALL), change.without_factor)),
    "all matrices N(0, 0.02²)": Switch(changes=(change.draw_small,)),
    "Q, K, V drawn as one matrix": Switch(changes=(change.draw_as_one_matrix,)),
    "biases in Q, K, V, O": Switch(BIASED),
    "no biases in the feed-forward": Switch(changes=(change.without_biases,)),
    "heads twice as wide": Switch({"d_k": 2 * WIDTH // HEADS, "d_v": 2 * WIDTH // HEADS}),
    "QK norm": Switch(parts={"qk_norm": True}),
    "2 groups for 4 heads": Switch(parts={"groups": 2}),
    "1 group for 4 heads": Switch(parts={"groups": 1}),
    "GELU": Switch({"activation": "gelu"}),
    "SwiGLU": Switch(parts={"gated": True}),
    "Adam, β₂ = 0.997": Switch(optimizer=change.adam_of_tensor2tensor),
    "AdamW, decay 0.1": Switch(optimizer=change.adamw),
    "twice the rate and the warm-up": Switch(rate=twice),
    "cosine schedule": Switch(rate=cosine),
    "gradients clipped at 1": Switch(clip=1.0),
    "no label smoothing": Switch(smoothing=0.0),
    "all of June 2017": Switch(BIASED, changes=(change.concatenate_sinusoids, change.draw_as_one_matrix)),
    "all of the last tensor2tensor": Switch(
        PRE,
        changes=(change.concatenate_sinusoids, change.drop_in_four_places),
        rate=twice,
        optimizer=change.adam_of_tensor2tensor,
    ),
    "all of today": Switch(
        PRE | {"dropout": 0.0},
        {"rms_norm": True, "qk_norm": True, "groups": 2, "rotary": True, "gated": True},
        rate=cosine,
        optimizer=change.adamw,
        clip=1.0,
        smoothing=0.0,
    ),
}
PLACES = {  # of the norm, in a deeper model, at half the rate
    f"{place}, {start}": replace(switch, config=switch.config | {"layers": 4}, rate=partial(rate, factor=0.5))
    for place, switch in (("after", Switch()), ("first", NORMS["norm first, and one at the end"]))
    for start, rate in (("warm-up", paper_rate), ("no warm-up", at_once))
}
