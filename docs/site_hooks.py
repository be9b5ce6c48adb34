"""Hooks that adapt the pages for the site.

Links that leave docs/ lead to the repository, drawings use the colours of the page, and the search
finds guides before the reference, also by the words of other tools.
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any

SOURCE = "https://github.com/lakebed/lakebed/blob/main/"
_OUTSIDE = re.compile(r"\]\(((?:\.\./)+[^)\s]+)\)")
_PICTURE = re.compile(
    r'<img [^>]*?src="(?:\.\./)*(assets/[\w-]+\.svg)"[^>]*>'
)
_STYLE = re.compile(r"<style>.*?</style>\n", re.DOTALL)
# A page names the words of others that lead to it in such a line.
_OTHER_WORDS = re.compile(
    r"^\*Also known as:\* (.+?)\.$", re.MULTILINE | re.DOTALL
)
# The reference repeats every word of the guides many times; the shelf of contributors is for few.
_WEIGHTS = {"reference": 0.2, "contributors": 0.1, "guides": 1.0}
_REFERENCE = {"command-line.md"}  # most of it is made from --help
_FOR_CONTRIBUTORS = {
    *(
        "architecture.md",
        "costs.md",
        "documents.md",
        "format.md",
        "interop.md",
    ),
    "measurements.md",
}
_WIDTH = "max-width: 24rem; width: 100%; display: block"  # letters a third larger than the text


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return a page's text for the site."""
    depth = len(PurePosixPath(page.file.src_uri).parent.parts)

    def lead(link: re.Match[str]) -> str:
        target = link[1]
        ups = target.count("../")
        return (
            f"]({SOURCE}{target.replace('../', '')})"
            if ups > depth
            else link[0]
        )

    page.meta.update(_search_of(page.file.src_uri, markdown))
    return _OUTSIDE.sub(lead, markdown)


def _search_of(path: str, markdown: str) -> dict[str, Any]:
    """Return what the search uses of a page: its weight, and the words of others as tags."""
    words = _OTHER_WORDS.search(markdown)
    shelf = "guides"
    if path.startswith("reference/") or path in _REFERENCE:
        shelf = "reference"
    elif path.startswith("design/") or path in _FOR_CONTRIBUTORS:
        shelf = "contributors"
    tags = re.split(r",\s+", words[1]) if words else []
    return {"search": {"boost": _WEIGHTS[shelf]}, "tags": tags}


def on_page_content(html: str, *, config: Any, **_: Any) -> str:
    """Return a page with its drawings inlined, so that `currentColor` is the page's colour.

    As an image, a picture would follow the system's light or dark, and not the switch of the site.
    """

    def draw(image: re.Match[str]) -> str:
        drawing = Path(config["docs_dir"], image[1]).read_text(
            encoding="utf-8"
        )
        return _STYLE.sub("", drawing).replace(
            "<svg ", f'<svg style="{_WIDTH}" ', 1
        )

    return _PICTURE.sub(draw, html)


def on_post_page(output: str, **_: Any) -> str:
    """Return a page whose search has a label, which the theme omits."""
    return _named(output)


def on_post_template(
    output_content: str, *, template_name: str, **_: Any
) -> str:
    """Return a page that the theme generates, such as the 404 page."""
    return (
        _named(output_content)
        if template_name.endswith(".html")
        else output_content
    )


def _named(page: str) -> str:
    return page.replace(
        'role="dialog"', 'role="dialog" aria-label="Search"'
    )
