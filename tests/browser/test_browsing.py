"""What the tests of pages would tell of a page that has something wrong with it."""

import pytest
from browsing import Look, contrast, crawled, listening, opened
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

pytestmark = pytest.mark.browser

SOUND = "<h1>Sound</h1><p>Text, and <a href='#there'>a link</a>.</p><h2 id=there>There</h2>"
FAULTS = {
    "<script>console.error('broken')</script>": "console: broken",
    "<script>undefined_name</script>": "fails: undefined_name",
    "<script>alert('mine')</script>": "asks the reader: mine",
    "<img alt='' src='http://elsewhere.example/x.png'>": "asks http://elsewhere.example/x.png",
    "<div style='width: 2000px'>wide</div>": "sticks out: <div",
    "<p style='color: #ccc; background: white'>pale</p>": "axe: color-contrast (serious)",
    "<label><input></label>": "axe: label (critical)",
    "<h4>Too deep</h4>": "axe: heading-order (moderate)",
    f"<pre style='width:9rem;overflow-x:auto'>{'hidden ' * 99}</pre>": (
        "axe: scrollable-region-focusable (serious)"
    ),
    "<svg width=9 height=9 viewBox='0 0 9 9' role=img aria-label=a><text x=5 y=5>label</text></svg>": (
        "is cut: <text"
    ),
}


def page(inner: str) -> str:
    return f"<!doctype html><html lang=en><title>A page</title><main>{inner}</main>"


@pytest.fixture(scope="module")
def site():
    routes = [
        Route("/", lambda _: HTMLResponse(page(f"{SOUND}<a href=/two>two</a>"))),
        Route("/two", lambda _: HTMLResponse(page("<a href=/three>3</a> <a href='/#here'>1</a>"))),
        Route("/faulty", lambda _: HTMLResponse(page(SOUND + "".join(FAULTS)))),
    ]
    with listening(Starlette(routes=routes)) as url:
        yield url


def test_a_sound_page_has_no_fault(browser, site):
    with opened(browser, f"{site}/", Look(360, "dark")) as sound:
        assert sound.faults() == []
        assert sound.cut() == []
        assert sound.lost_anchors() == []


def test_each_fault_is_told(browser, site):
    with opened(browser, f"{site}/faulty", Look(360, "light")) as faulty:
        faults = faulty.faults()

    unnoticed = [
        told for told in FAULTS.values() if not any(fault.startswith(told) for fault in faults)
    ]
    assert unnoticed == [], faults


def test_crawl_finds_the_link_that_no_page_answers_and_the_anchor_that_is_not_there(browser, site):
    assert crawled(browser, f"{site}/") == {
        f"{site}/": 200,
        f"{site}/two": 200,
        f"{site}/three": 404,
        f"{site}/#here": 0,
    }


def test_contrast_counts_as_wcag_does():
    assert round(contrast("rgb(119, 119, 119)", "rgb(255, 255, 255)"), 2) == 4.48
