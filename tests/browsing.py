"""Pages as a real browser shows them: what is wrong with one, at two widths, light and dark.

A page is opened in Chromium, which is told to find no host but this machine. `faults` then says in
words what a reader would stumble over; tests/browser/test_browsing.py shows each of its words.
"""

from __future__ import annotations

import re
import shutil
import socket
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urljoin, urlsplit

import pytest

CHROMIUM = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
MISSING = (
    "no Chromium: install Debian's package chromium, or run "
    ".venv/bin/python -m playwright install chromium-headless-shell"
)
# What WCAG asks for up to 2.2 AA, and what axe advises beside.
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_PATIENCE_MS = 240_000  # a shared machine is slow at any moment
_WITHOUT_NETWORK = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


@dataclass(frozen=True)
class Look:
    """How somebody looks at a page."""

    width: int
    scheme: str

    def __str__(self) -> str:
        return f"{self.width}-{self.scheme}"


LOOKS = tuple(Look(width, scheme) for width in (360, 1400) for scheme in ("light", "dark"))


@contextmanager
def started_browser() -> Iterator[Any]:
    """Start the Chromium of this machine; skip where there is none.

    Playwright keeps an event loop in this thread, so that it is stopped before other tests run.
    """
    api = pytest.importorskip("playwright.sync_api", reason="no playwright: make setup")
    with api.sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        path = next(filter(None, map(shutil.which, CHROMIUM)), own if Path(own).exists() else None)
        if path is None:
            pytest.skip(MISSING)
        # A container has little shared memory; no test needs a device that draws.
        flags = [_WITHOUT_NETWORK, "--disable-dev-shm-usage", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """Serve an application on a free port of this machine, and return its URL."""
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0))
    options: dict[str, Any] = {"log_config": None, "lifespan": "off", "ws": "none", "http": "h11"}
    server = uvicorn.Server(uvicorn.Config(app, loop="asyncio", **options))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)


@dataclass
class Opened:
    """A page in the browser, and what happened there since it was opened."""

    page: Any
    address: str
    told: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def faults(self, *, impacts: Collection[str] | None = None) -> list[str]:
        """Return what is wrong, in words; nothing where all is well.

        Args:
            impacts: Faults of these impacts only are taken from axe; None takes all.
        """
        return [
            *self.told,
            *(f"asks {url}" for url in self.asked if not self._is_ours(url)),
            *self.sticking_out(),
            *(f"is cut: {what}" for what in self.page.evaluate(_OUT_OF_DRAWINGS)),
            *self.inaccessible(impacts),
        ]

    def _is_ours(self, url: str) -> bool:
        asked, own = urlsplit(url), urlsplit(self.address)
        return asked.scheme in ("data", "blob") or (asked.scheme, asked.netloc) == own[:2]

    def sticking_out(self) -> list[str]:
        """Return what makes the page wider than the window."""
        return [f"sticks out: {what}" for what in self.page.evaluate(_STICKING_OUT)]

    def inaccessible(self, impacts: Collection[str] | None = None) -> list[str]:
        """Return what axe finds."""
        from axe_playwright_python.sync_playwright import Axe

        options = {"resultTypes": ["violations"], "runOnly": {"type": "tag", "values": _RULES}}
        found = Axe().run(self.page, options=options).response["violations"]
        return [
            f"axe: {fault['id']} ({fault['impact']}): {node['html'][:200]}"
            for fault in found
            if impacts is None or fault["impact"] in impacts
            for node in fault["nodes"]
        ]

    def cut(self) -> list[str]:
        """Return elements of which a part is not shown: for paper, where nobody scrolls."""
        return [f"is cut: {what}" for what in self.page.evaluate(_CUT)]

    def links(self) -> set[str]:
        """Return the addresses that the page leads to."""
        found = self.page.eval_on_selector_all("a[href]", "all => all.map(a => a.href)")
        return set(found)

    def lost_anchors(self) -> list[str]:
        """Return links into this page that lead nowhere."""
        return list(self.page.evaluate(_LOST_ANCHORS))

    def elements(self) -> set[str]:
        """Return the names of all elements that the page has come to hold."""
        script = "all => [...new Set(all.map(each => each.localName))]"
        return set(self.page.eval_on_selector_all("*", script))


@contextmanager
def opened(browser: Any, address: str, look: Look, **options: Any) -> Iterator[Opened]:
    """Open a page in a window of its own, with nothing left of others."""
    context = browser.new_context(
        viewport={"width": look.width, "height": 900},
        color_scheme=look.scheme,
        reduced_motion="reduce",
        **options,
    )
    try:
        context.set_default_timeout(_PATIENCE_MS)
        page = context.new_page()
        found = Opened(page, address)
        page.on("console", lambda message: _note(found, message))
        page.on("pageerror", lambda error: found.told.append(f"fails: {error}"))
        page.on("dialog", lambda dialog: _refuse(found, dialog))
        page.on("request", lambda request: found.asked.append(request.url))
        page.on(
            "requestfailed", lambda request: found.told.append(f"gets no answer from {request.url}")
        )
        page.goto(address, wait_until="load")
        yield found
    finally:
        context.close()


def _note(found: Opened, message: Any) -> None:
    if message.type in ("error", "warning"):
        found.told.append(f"console: {message.text}")


def _refuse(found: Opened, dialog: Any) -> None:
    found.told.append(f"asks the reader: {dialog.message}")
    dialog.dismiss()


def crawled(browser: Any, start: str, *, beside: Collection[str] = ()) -> dict[str, int]:
    """Follow every link of a server from some pages on, as the browser reads them.

    Links that only show the same in another order, which have `rel=nofollow`, are left out.

    Returns:
        The status of each address; anchors that are not there have 0.
    """
    origin = urlsplit(start)[:2]
    context = browser.new_context()
    statuses: dict[str, int] = {}
    anchors: dict[str, set[str]] = {}
    wanted: set[str] = set()
    try:
        context.set_default_timeout(_PATIENCE_MS)
        page = context.new_page()
        waiting = [start, *(urljoin(start, each) for each in beside)]
        while waiting:
            address = urldefrag(waiting.pop()).url
            if address in statuses or urlsplit(address)[:2] != origin:
                continue
            answer = context.request.get(address)
            statuses[address] = answer.status
            if not answer.headers.get("content-type", "").startswith("text/html"):
                continue
            found = page.evaluate(_LINKS, {"text": answer.text(), "base": address})
            anchors[address] = set(found["ids"])
            wanted |= {link for link in found["links"] if urldefrag(link).fragment}
            waiting += found["links"]
    finally:
        context.close()
    for link in wanted:
        address, fragment = urldefrag(link)
        if address in anchors and fragment not in anchors[address]:
            statuses[link] = 0
    return statuses


def contrast(one: str, other: str) -> float:
    """Return how much two colours differ, as WCAG counts, from 1 to 21.

    >>> round(contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)"))
    21
    """
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (int(number) / 255 for number in re.findall(r"\d+", colour)[:3])
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


_STICKING_OUT = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  return [...document.body.querySelectorAll("*")]
    .filter(each => each.getBoundingClientRect().right > width + 1)
    .slice(0, 5).map(each => each.outerHTML.slice(0, 150));
}"""

# What lies behind the edge of a box that shows no more, of a drawing, or of the paper.
_CUT = """() => {
  const width = document.documentElement.clientWidth;
  return [...document.body.querySelectorAll("*")].filter(each => {
    if (!each.checkVisibility()) return false;
    const box = each.getBoundingClientRect();
    const isClipped = each.clientWidth && each.scrollWidth > each.clientWidth + 1
      && getComputedStyle(each).overflowX !== "visible";
    return isClipped || box.right > width + 1;
  }).slice(0, 5).map(each => each.outerHTML.slice(0, 150));
}"""

_OUT_OF_DRAWINGS = """() => [...document.querySelectorAll("svg text")].filter(each => {
  const box = each.getBoundingClientRect(), edge = each.ownerSVGElement.getBoundingClientRect();
  return box.width && (box.left < edge.left - 1 || box.right > edge.right + 1);
}).slice(0, 5).map(each => each.outerHTML.slice(0, 150))"""

_LOST_ANCHORS = """() => [...document.querySelectorAll("a[href^='#']")]
  .map(each => decodeURIComponent(each.hash.slice(1)))
  .filter(name => name && !document.getElementById(name))"""

_LINKS = """({text, base}) => {
  const page = new DOMParser().parseFromString(text, "text/html");
  return {
    links: [...page.querySelectorAll("[href]:not([rel=nofollow]), [src]")]
      .map(each => new URL(each.getAttribute("href") ?? each.getAttribute("src"), base).href)
      .filter(each => each.startsWith("http")),
    ids: [...page.querySelectorAll("[id]")].map(each => each.id),
  };
}"""
