"""The documentation as a site in a browser; `make docs` builds it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import LOOKS, Look, crawled, listening, opened
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

pytestmark = [pytest.mark.browser, pytest.mark.long, pytest.mark.timeout(3600)]

SITE = Path(__file__).parents[2] / "build" / "site"
PAGES = sorted(page.relative_to(SITE).as_posix() for page in SITE.rglob("*.html"))


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    if not PAGES:
        pytest.skip("no site: make docs")
    with listening(Starlette(routes=[Mount("/", StaticFiles(directory=SITE, html=True))])) as url:
        yield url


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_nothing_is_wrong_with_any_page(browser, site, look):
    faults = {}
    for name in PAGES:
        with opened(browser, f"{site}/{name}", look) as page:
            # What the theme itself could do better is its business, if it hinders nobody.
            faults[name] = page.faults(impacts={"serious", "critical"})

    assert {name: told for name, told in faults.items() if told} == {}


def test_every_link_answers_and_leads_to_every_page(browser, site):
    statuses = crawled(browser, f"{site}/index.html")

    assert {address: status for address, status in statuses.items() if status != 200} == {}
    assert {f"{site}/{name}" for name in PAGES if name != "404.html"} <= statuses.keys()


def test_search_finds_a_page_without_network(browser, site):
    with opened(browser, f"{site}/index.html", Look(1400, "light")) as page:
        page.page.keyboard.press("/")
        page.page.keyboard.type("protect a version")
        page.page.wait_for_selector(".md-search-result__item")
        faults = page.faults(impacts={"serious", "critical"})

    assert faults == []
