"""What is slow and does not depend on torch's version is seen on the pinned one only."""

import re

import pytest
import torch

from tools.sync import ROOT

PINNED = re.search(r"^torch==([\d.]+)", (ROOT / "requirements.txt").read_text(encoding="utf-8"), re.MULTILINE)[1]
once = pytest.mark.skipif(not torch.__version__.startswith(PINNED), reason=f"it is enough to see it on torch {PINNED}")
