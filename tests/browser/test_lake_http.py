"""The pages of the server in a browser, with those of the archive, at each width and in each light."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from browsing import LOOKS, Look, crawled, listening, opened

from lakebed.web import create_app

pytestmark = pytest.mark.browser

PAGES = {
    "lake": "/",
    "dataset": "/datasets/flights",
    "dataset of raw files": "/datasets/weather",
    "runs": "/datasets/weather/runs?sort=seconds",
    "all runs": "/runs",
    "plan": "/datasets/flights/plan?where=" + quote("day > '2013-06-20'"),
    "rows": "/datasets/flights/rows?where="
    + quote("carrier = 'UA'")
    + "&sort=dep_delay&order=desc",
    "versions": "/datasets/flights/compare?from=23&to=26&where=" + quote("day = '2013-06-09'"),
    "versions to choose": "/datasets/flights/compare",
    "search": "/archive?what=weather&start=2013-06-01&end=2013-07-01",
    "empty search": "/archive",
    "record": "/archive/files/weather-2013-06-03",
}
HOSTILE_PAGES = {
    "lake": "/",
    "dataset": "/datasets/d",
    "runs": "/runs",
    "plan": "/datasets/d/plan?where=" + quote("name = '<script>alert(1)</script>'"),
    "rows": "/datasets/d/rows?sort=text&where=" + quote("name != '<script>alert(1)</script>'"),
    "versions": "/datasets/d/compare?from=0&to=3",
    "search": "/archive?what=log&start=2013-06-01&end=2013-06-02",
    "script": "/archive/files/hostile-0",
    "long": "/archive/files/hostile-1",
    "leftwards": "/archive/files/hostile-2",
}
REFUSED = {
    "/nothing": 404,
    "/datasets/flights/plan?where=" + quote("<script>alert(1)</script> =" + "x" * 3_000): 400,
    "/datasets/flights/rows?where=" + quote("<script>alert(1)</script> =" + "x" * 3_000): 400,
    "/datasets/flights/rows?version=99": 404,
    "/datasets/flights/file?key=" + "x" * 3_000: 404,
}


def looked_at(pages: dict[str, str], *short: str) -> list:
    """Return each page in each look, of which those named in short are looked at in `make gate`.

    These are seen once, small and dark or large and light.
    """
    return [
        pytest.param(
            address,
            look,
            id=f"{name}-{look}",
            marks=[]
            if name in short and look == LOOKS[1 + short.index(name) % 2]
            else pytest.mark.long,
        )
        for name, address in pages.items()
        for look in LOOKS
    ]


@pytest.fixture(scope="module")
def server(lake, archive) -> Iterator[str]:
    with listening(create_app(lake, archive=archive)) as url:
        yield url


@pytest.fixture(scope="module")
def hostile_server(hostile_lake, hostile_archive) -> Iterator[str]:
    with listening(create_app(hostile_lake, archive=hostile_archive)) as url:
        yield url


@pytest.mark.parametrize(
    ("address", "look"), looked_at(PAGES, "dataset", "plan", "rows", "versions", "record", "runs")
)
def test_nothing_is_wrong_with_a_page(browser, server, address, look):
    with opened(browser, server + address, look) as page:
        unfold(page)
        assert page.faults() == []
        assert page.asked == [server + address]


@pytest.mark.parametrize(
    ("address", "look"), looked_at(HOSTILE_PAGES, "dataset", "rows", "versions", "script", "runs")
)
def test_whatever_is_held_stays_text(browser, hostile_server, address, look):
    with opened(browser, hostile_server + address, look) as page:
        unfold(page)
        assert page.faults() == []
        assert page.asked == [hostile_server + address]
        assert not {"script", "img", "iframe", "object"} & page.elements()
        assert page.page.title().startswith("Lakebed: ")
        assert "\u202e" not in page.page.content()


@pytest.mark.parametrize(
    ("address", "status"), REFUSED.items(), ids=["page", "plan", "rows", "version", "file"]
)
def test_page_of_an_error_is_a_page_too(browser, server, address, status):
    with opened(browser, server + address, Look(360, "dark")) as page:
        faults = page.faults()

    assert len(faults) == 1  # browsers note the status
    assert faults[0].startswith("console: ")
    assert f"status of {status}" in faults[0]


def test_every_link_of_every_page_answers(browser, server):
    statuses = crawled(browser, f"{server}/", beside=PAGES.values())

    assert set(statuses.values()) == {200}
    assert f"{server}/datasets/flights/rows?version=3" in statuses
    assert f"{server}/archive/contents/weather-2013-06-08" in statuses
    assert len(statuses) > 20


@pytest.mark.parametrize("page", ["dataset of raw files", "search", "rows", "versions", "runs"])
def test_nothing_is_cut_on_paper(browser, server, page):
    with opened(browser, server + PAGES[page], Look(718, "dark")) as page:
        page.page.eval_on_selector_all("details", "all => all.forEach(each => each.open = true)")
        page.page.emulate_media(media="print")
        assert page.cut() == []


def test_a_plan_is_asked_for_by_keys_alone(browser, server):
    with opened(browser, f"{server}/datasets/flights/plan", Look(360, "light")) as page:
        while page.page.evaluate("document.activeElement.localName") != "input":
            page.page.keyboard.press("Tab")
        page.page.keyboard.type("carrier = 'UA'")
        page.page.keyboard.press("Enter")
        page.page.wait_for_url("**/plan?where=*")

        assert "Plan of flights" in page.page.inner_text("main")
        assert page.page.input_value("input[name=where]") == "carrier = 'UA'"


def test_rows_are_asked_for_by_keys_alone_and_lead_to_their_file(browser, server):
    with opened(browser, f"{server}/datasets/flights/rows", Look(360, "dark")) as page:
        while page.page.evaluate("document.activeElement.localName") != "input":
            page.page.keyboard.press("Tab")
        page.page.keyboard.type("carrier = 'WN' and day = '2013-06-10'")
        page.page.keyboard.press("Tab")
        page.page.keyboard.type("dep")  # chooses dep_delay
        page.page.keyboard.press("Tab")
        page.page.keyboard.type("desc")
        page.page.focus("button:has-text('Show')")
        page.page.keyboard.press("Enter")
        page.page.wait_for_url("**/rows?where=*")
        delays = page.page.eval_on_selector_all(
            "tbody td:last-child", "all => all.map(each => Number(each.textContent))"
        )
        page.page.focus("tbody a >> nth=0")
        page.page.keyboard.press("Enter")
        page.page.wait_for_url("**/file?key=*")

        assert delays == sorted(delays, reverse=True)
        assert len(delays) == 9
        assert page.faults() == []
        assert "load-2013-06-10" in page.page.inner_text("main")


def test_runs_are_unfolded_and_sorted_by_keys_alone(browser, server):
    with opened(browser, f"{server}/datasets/weather/runs", Look(360, "dark")) as page:
        page.page.focus("summary >> nth=0")
        page.page.keyboard.press("Enter")
        text = page.page.inner_text("tbody tr >> nth=0")
        page.page.focus("thead a:has-text('state')")
        page.page.keyboard.press("Enter")
        page.page.wait_for_url("**/runs?sort=state&order=asc")
        states = page.page.eval_on_selector_all(
            "tbody td:nth-child(3)", "all => all.map(each => each.textContent)"
        )
        order = page.page.get_attribute("thead th:has-text('state')", "aria-sort")

    assert "Check the credentials." in text
    assert states == ["failed", *["ok"] * 8]
    assert order == "ascending"


def test_rows_are_saved_as_a_file(browser, server):
    with opened(browser, server + PAGES["rows"], Look(360, "light")) as page:
        page.page.select_option("select[name=format]", "jsonl")
        with page.page.expect_download() as waiting:
            page.page.click("button:has-text('Download')")
        lines = Path(waiting.value.path()).read_text("utf-8").splitlines()

    assert waiting.value.suggested_filename == "flights-v27.jsonl"
    assert len(lines) == 50
    assert '"dep_delay": 41.0' in lines[0]


def test_a_file_is_saved_and_never_shown(browser, hostile_server):
    with opened(browser, f"{hostile_server}/archive/files/hostile-0", Look(1400, "light")) as page:
        with page.page.expect_download() as waiting:
            page.page.click("text=Download")
        assert waiting.value.suggested_filename.endswith(".html")
        assert page.page.url.endswith("/archive/files/hostile-0")
        # That a page was left for a file is all that was noticed.
        assert page.told == [f"gets no answer from {hostile_server}/archive/contents/hostile-0"]


def test_a_page_that_is_asked_for_again_is_asked_for_by_what_the_browser_has(browser, server):
    with opened(browser, f"{server}/datasets/airports", Look(1400, "light")) as page:
        again = page.page.reload()
        asked, answered = again.request.all_headers(), again.all_headers()

    assert asked["if-none-match"] == answered["etag"]


def test_the_server_has_its_pictures(browser, server, keep_picture):
    with opened(browser, server + PAGES["search"], Look(1000, "light")) as page:
        keep_picture("serve-archive.png", page, "nav")
    with opened(browser, server + PAGES["rows"], Look(1000, "light")) as page:
        keep_picture("serve-rows.png", page, "body > nav")
    with opened(browser, server + PAGES["versions"], Look(1000, "dark")) as page:
        keep_picture("serve-versions.png", page, "body > nav")
    with opened(browser, server + "/datasets/weather/runs", Look(1000, "light")) as page:
        page.page.click("summary >> nth=0")
        keep_picture("serve-runs.png", page, "body > nav")


def unfold(page):
    page.page.eval_on_selector_all("details", "all => all.forEach(each => each.open = true)")
