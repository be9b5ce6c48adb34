"""The report in a browser: readable at each width and in each light, by keys, on paper."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from browsing import LOOKS, Look, contrast, opened

pytestmark = pytest.mark.browser

# The smallest and darkest shows most; the others are left to the long tests.
_LOOKS = [
    pytest.param(look, id=str(look), marks=pytest.mark.long if place != 1 else [])
    for place, look in enumerate(LOOKS)
]
_DEMO = Path(__file__).parents[2] / "examples" / "pipeline.py"
_PAPER = {"width": 718, "height": 1000}  # A4 within Chromium's margins, at 96 dots an inch


@pytest.fixture(scope="module")
def report(lake, tmp_path_factory) -> str:
    path: Path = tmp_path_factory.mktemp("report") / "lake.html"
    late_in_june = lake["flights"].where("day > '2013-06-20' and carrier != 'WN'")
    return f"file://{lake.report(path, view=late_in_june, rows=10)}"


@pytest.fixture(scope="module")
def hostile_report(hostile_lake, tmp_path_factory) -> str:
    path: Path = tmp_path_factory.mktemp("hostile") / "lake.html"
    view = hostile_lake["d"].where("name is not null")
    return f"file://{hostile_lake.report(path, view=view, rows=10)}"


@pytest.mark.parametrize("look", _LOOKS)
def test_nothing_is_wrong_with_the_page(browser, report, look):
    with opened(browser, report, look) as page:
        unfold(page)
        assert page.faults() == []
        assert page.lost_anchors() == []
        assert page.asked == [report]
        assert "Plan of flights" in page.page.inner_text("main")


@pytest.mark.parametrize("look", _LOOKS)
def test_whatever_a_lake_holds_stays_text(browser, report, hostile_report, look):
    with opened(browser, report, look) as sound:
        known = sound.elements()
    with opened(browser, hostile_report, look) as page:
        unfold(page)
        assert page.faults() == []
        assert page.elements() <= known
        assert page.page.title() == "Lakebed: hostile"
        text = page.page.inner_text("main")
        assert "<script>document.title='run'" in text
        assert "\\u202egpj.exe مرحبا" in text
        assert "\u202e" not in page.page.content()
        assert "x" * 121 not in text


def test_every_colour_of_a_picture_stands_out(browser, report):
    papers = set()
    with opened(browser, report, Look(1400, "light")) as page:
        for scheme in ("light", "dark"):
            page.page.emulate_media(color_scheme=scheme)
            colours = page.page.evaluate(_COLOURS_OF_PICTURES)
            # Whatever operations a lake has had: each lane has a colour.
            colours["lanes"] = page.page.evaluate(_COLOURS_OF_LANES)
            paper = colours["paper"]
            papers.add(paper)
            assert len(colours["lanes"]) == 8
            assert min(contrast(each, paper) for each in colours["texts"]) >= 4.5
            assert min(contrast(each, paper) for each in colours["shapes"] + colours["lanes"]) >= 3

    assert len(papers) == 2


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.long), "dark"])
def test_nothing_is_cut_on_paper_and_the_paper_is_white(browser, report, hostile_report, scheme):
    for address in (report, hostile_report):
        with opened(browser, address, Look(1400, scheme)) as page:
            unfold(page)
            page.page.emulate_media(media="print")
            page.page.set_viewport_size(_PAPER)
            assert page.cut() == []
            assert page.inaccessible() == []
            assert page.page.evaluate(_COLOURS_OF_PICTURES)["paper"] == "rgb(255, 255, 255)"
            assert page.page.pdf(format="A4").startswith(b"%PDF")


def test_what_is_folded_up_is_printed_only_where_somebody_has_opened_it(browser, report):
    with opened(browser, report, Look(1400, "light")) as page:
        page.page.click("summary:has-text('commits')")
        page.page.emulate_media(media="print")
        shown = page.page.eval_on_selector_all(
            "details", "all => all.map(each => [each.open, each.checkVisibility()])"
        )

    assert [True, True] in shown
    assert [False, False] in shown
    assert all(is_open == is_shown for is_open, is_shown in shown)


def test_keys_lead_through_the_page_in_order_and_show_where_they_are(browser, report):
    with opened(browser, report, Look(360, "light")) as page:
        expected = page.page.evaluate(_STOPS)
        assert len(expected) > 20
        for name in expected:
            page.page.keyboard.press("Tab")
            place, outline = page.page.evaluate(_FOCUSED)
            assert place == name
            assert outline >= 2, name


def test_a_wide_table_is_scrolled_by_keys(browser, report):
    with opened(browser, report, Look(360, "light")) as page:
        table = page.page.locator(".wide:has(table):has-text('Datasets')").first
        table.focus()
        before = table.evaluate("each => each.scrollLeft")
        page.page.keyboard.press("ArrowRight")
        page.page.wait_for_function("each => each.scrollLeft > 0", arg=table.element_handle())

    assert before == 0


def test_a_picture_can_be_read_on_a_telephone(browser, report):
    with opened(browser, report, Look(360, "light")) as page:
        heights = page.page.eval_on_selector_all(
            ".chart text", "all => all.map(each => each.getBoundingClientRect().height)"
        )

    assert heights
    assert min(heights) >= 9


def test_the_lake_a_dataset_and_a_plan_have_their_picture(browser, report, keep_picture):
    with opened(browser, report, Look(1000, "light")) as page:
        keep_picture("report-lake.png", page, "h1")
        keep_picture("report-plan.png", page, "#plan")
    with opened(browser, report, Look(1000, "dark")) as page:
        keep_picture("report-dataset.png", page, "#dataset-flights")


@pytest.mark.long
def test_the_report_of_the_demo_is_without_fault_and_has_its_picture(
    browser, tmp_path, keep_picture
):
    subprocess.run(
        [sys.executable, _DEMO, "--directory", tmp_path / "year"],
        cwd=tmp_path,
        check=True,
        stdout=subprocess.DEVNULL,
    )

    address = f"file://{tmp_path}/year/report.html"
    with opened(browser, address, Look(1000, "light")) as page:
        assert page.faults() == []
        assert page.lost_anchors() == []
        page.page.evaluate(_MOVE, [str(tmp_path / "year"), "/home/you/demo-pipeline"])
        keep_picture("report-year.png", page, "h1")


def unfold(page: Any) -> None:
    page.page.eval_on_selector_all("details", "all => all.forEach(each => each.open = true)")


_MOVE = """([from, to]) => document.querySelectorAll("code").forEach(
  each => each.textContent = each.textContent.replaceAll(from, to))"""

_COLOURS_OF_PICTURES = """() => {
  const fills = where => [...new Set([...document.querySelectorAll(where)]
    .map(each => getComputedStyle(each).fill))];
  return {
    paper: getComputedStyle(document.body).backgroundColor,
    texts: fills(".chart text"),
    shapes: fills(".chart circle, .chart .bar"),
  };
}"""

_COLOURS_OF_LANES = """() => [0, 1, 2, 3, 4, 5, 6, 7].map(lane => {
  const circle = document.querySelector(".chart circle");
  circle.setAttribute("class", "lane" + lane);
  return getComputedStyle(circle).fill;
})"""

# What a reader should come to by the tabulator, in the order of the page.
_NAMED = "each => (each.getAttribute('aria-label') ?? each.textContent).trim() + each.localName"
_STOPS = f"""() => [...document.querySelectorAll("a[href], summary, .wide")]
  .filter(each => each.checkVisibility() && !each.closest("details:not([open]) > :not(summary)"))
  .map({_NAMED})"""
_FOCUSED = f"""() => {{
  const each = document.activeElement, style = getComputedStyle(each);
  return [({_NAMED})(each), style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth)];
}}"""
