import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from annotated_course.claims import claim


def raise_value_error() -> None:
    raise ValueError("no such head")


@pytest.mark.parametrize(
    ("found", "options"),
    [
        (True, {}),
        (torch.tensor([[True, True]]), {}),
        (3, {"expected": 3}),
        (0.1 + 0.2, {"expected": 0.3}),
        (0.31, {"expected": 0.3, "within": 0.02}),
        ("der Hund", {"expected": "der Hund"}),
        (torch.ones(2, 3), {"expected": 1}),
        (torch.tensor([1, 2]), {"expected": [1, 2]}),
        ([torch.ones(2), {"a": 0.5}], {"expected": [[1.0, 1.0], {"a": 0.5}]}),
        (torch.Size([2, 3]), {"expected": (2, 3)}),
        (lambda: 7, {"expected": 7}),
        (0.04, {"between": (0, 0.05)}),
        (torch.tensor([0.0, 0.05]), {"between": (0, 0.06)}),
        (raise_value_error, {"raises": ValueError}),
    ],
)
def test_what_holds_is_ticked(found: object, options: dict, capsys: pytest.CaptureFixture) -> None:
    claim("it is so", found, **options)
    assert capsys.readouterr().out == "✓ it is so\n"


@pytest.mark.parametrize(
    ("found", "options", "problem"),
    [
        (False, {}, "False, expected True"),
        (torch.tensor([[True, False]]), {}, "at [0, 1]: False, expected True"),
        (2, {"expected": 3}, "2, expected 3"),
        (10_001, {"expected": 10_000}, "10001, expected 10000"),
        (0.83, {"expected": 1}, "0.83, expected 1"),
        (None, {"expected": 0.5}, "None, expected 0.5"),
        (torch.tensor([1.0, 0.83]), {"expected": 1}, "at [1]: 0.83, expected 1"),
        (torch.tensor(math.nan), {"expected": 1}, "nan, expected 1"),
        (torch.tensor(math.nan), {"expected": torch.tensor(math.nan)}, "nan, expected nan"),  # 0/0 confirms nothing
        (torch.ones(2, 3), {"expected": torch.ones(3, 2)}, "shape (2, 3), expected (3, 2)"),
        (torch.ones(1), {"expected": torch.ones(3)}, "shape (1,), expected (3,)"),
        (torch.ones(0), {"expected": 1}, "nothing to compare"),
        (torch.ones(0), {"between": (0, 1)}, "nothing to compare"),
        (torch.tensor([10_001]), {"expected": 10_000}, "at [0]: 10001, expected 10000"),
        ([1, 2], {"expected": [1]}, "2 entries, expected 1"),
        ([1, [2, 3]], {"expected": [1, [2, 4]]}, "at [1]: at [1]: 3, expected 4"),
        ({"a": 1}, {"expected": {"b": 1}}, "the names ['a'], expected ['b']"),
        ({"a": 1}, {"expected": {"a": 2}}, "at ['a']: 1, expected 2"),
        ("Hund", {"expected": "Katze"}, "'Hund', expected 'Katze'"),
        (0.07, {"between": (0, 0.05)}, "0.07, expected 0 to 0.05"),
        (math.nan, {"between": (0, 1)}, "nan, expected 0 to 1"),
        (torch.tensor([0.5, -1.0]), {"between": (0, 1)}, "-1, expected 0 to 1"),
        (raise_value_error, {}, "ValueError: no such head"),
        (raise_value_error, {"raises": TypeError}, "ValueError: no such head"),
        (lambda: 1, {"raises": TypeError}, "no error, expected TypeError"),
        (True, {"raises": TypeError}, "no error, expected TypeError"),
    ],
)
def test_what_does_not_hold_is_crossed_and_told(
    found: object, options: dict, problem: str, capsys: pytest.CaptureFixture
) -> None:
    claim("it is so", found, **options)
    assert capsys.readouterr().out == f"✗ it is so: {problem}\n"


@given(
    st.lists(st.floats(-10, 10), min_size=1, max_size=5),
    st.integers(0, 4),
    st.floats(0.01, 1) | st.floats(-1, -0.01),
    st.booleans(),
)
def test_one_entry_that_is_off_is_enough(values: list[float], place: int, error: float, as_tensor: bool) -> None:
    wrong = list(values)
    wrong[place % len(values)] += error
    make = torch.tensor if as_tensor else list
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", lines.append)
        claim("same", make(values), make(values))
        claim("same", make(wrong), make(values), within=1e-4)
    assert lines[0] == "✓ same"
    assert lines[1].startswith("✗ same: ")
