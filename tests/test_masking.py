"""Masks against tables drawn by hand."""

import pytest
import torch

from annotated.masking import causal_mask, check_mask, combine, padding_mask

YES, NO = True, False
SCORES = (2, 3, 5, 7)


def test_padding_mask_by_hand():
    ids = torch.tensor([[5, 7, 9], [4, 0, 0], [0, 6, 0]])
    assert padding_mask(ids).shape == (3, 1, 1, 3)
    assert padding_mask(ids)[:, 0, 0].tolist() == [[YES, YES, YES], [YES, NO, NO], [NO, YES, NO]]
    assert padding_mask(ids, pad_id=7)[0, 0, 0].tolist() == [YES, NO, YES]


def test_causal_mask_by_hand():
    assert causal_mask(3).tolist() == [[YES, NO, NO], [YES, YES, NO], [YES, YES, YES]]


def test_combine_by_hand():
    future = causal_mask(3)
    padding = padding_mask(torch.tensor([[5, 7, 9], [5, 7, 0]]))
    both = combine(future, padding)
    assert both.shape == (2, 1, 3, 3)
    assert both[0, 0].tolist() == [[YES, NO, NO], [YES, YES, NO], [YES, YES, YES]]
    assert both[1, 0].tolist() == [[YES, NO, NO], [YES, YES, NO], [YES, YES, NO]]
    assert combine() is combine(None, None) is None
    assert torch.equal(combine(None, future, None), future)


@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (5, 1), (1, 1), SCORES, (2, 1, 1, 7), (1, 3, 5, 1)], ids=str)
def test_masks_that_fit(shape):
    check_mask(torch.ones(shape, dtype=torch.bool), SCORES)


@pytest.mark.parametrize(
    "shape", [(), (7,), (7, 5), (2, 7), (2, 5, 7), (1, 5, 7), (3, 2, 5, 7), (2, 3, 7, 7), (1, *SCORES)], ids=str
)
def test_masks_that_do_not_fit(shape):
    with pytest.raises(ValueError) as caught:
        check_mask(torch.ones(shape, dtype=torch.bool), SCORES)
    assert str(caught.value) == (
        f"a mask of shape {shape} does not fit scores of shape {SCORES}: give (query, key) or all 4 axes, each as long "
        "as the scores' or 1. Of three axes for four nobody can tell which is missing: of (batch, query, key) make "
        "mask[:, None], of (heads, query, key) mask[None]."
    )
