"""The program in docs/SERVING.md, as its clients meet it."""

import re

import pytest
from once import once

from tools.sync import ROOT

pytestmark = once


def test_the_pages_program_translates_and_answers_a_sentence_that_is_too_long_with_400(monkeypatch):
    testing = pytest.importorskip("fastapi.testclient", reason="needs fastapi and httpx, which nothing else here needs")
    program = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "SERVING.md").read_text("utf-8"), re.DOTALL)
    monkeypatch.chdir(ROOT)
    names: dict = {}
    exec(program[1], names)
    client = testing.TestClient(names["app"])
    assert client.post("/translate", json=["Ein Hund schläft.", ""]).json() == ["A dog sleeps.", ""]
    too_long = client.post("/translate", json=["Ein Hund schläft.", "Hund " * 600])
    assert too_long.status_code == 400
    assert re.fullmatch(r"text 2 is \d+ tokens long and the model takes 512: .*", too_long.json()["detail"])
    assert client.post("/translate", json="Ein Hund schläft.").status_code == 422
