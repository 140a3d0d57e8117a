"""Pages in Chromium: they must be quiet, ask no other host for anything, and be fit for everybody."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

PAGE = """<!doctype html><html lang="en"><head><title>t</title>
<meta name="viewport" content="width=device-width"></head><body><main><h1>h</h1>{}</main></body></html>"""


@contextmanager
def opened(
    browser: Any, address: str = "", *, html: str = "", width: int = 1280, height: int = 900, **options: Any
) -> Iterator[Any]:
    """A page of playwright, at an address or with this HTML inside, closed in the end.

    No error and no warning may stand in its console by then, and it may have loaded files and data only.
    """
    complaints: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": height}, **options)
    page.set_default_timeout(30_000)
    page.on("console", lambda message: message.type in ("error", "warning") and complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: request.url.startswith(("file:", "data:")) or complaints.append(request.url))
    if address:
        page.goto(address)
    else:
        page.set_content(PAGE.format(html))
    yield page
    page.close()
    assert complaints == [], complaints


def fits(page: Any, *widths: int) -> bool:
    """Whether nothing stands out of a page to the right, at each of these widths in pixels."""
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        if page.evaluate("document.documentElement.scrollWidth") > width:
            return False
    return True


def barriers(page: Any, *schemes: str) -> list[str]:
    """What axe finds serious on a page in these colour schemes, or in both; in dark only the contrast is another."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = []
    for scheme in schemes or ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        rules = {"runOnly": ["color-contrast"]} if scheme == "dark" else {}
        found += axe.run(page, options={"preload": False, **rules}).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found if one["impact"] in ("serious", "critical")]
