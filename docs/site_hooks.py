"""What the site does with the pages: links that leave docs/ lead to the repository."""

import re
from pathlib import PurePosixPath
from typing import Any

SOURCE = "https://github.com/lakebed/lakebed/blob/main/"
_OUTSIDE = re.compile(r"\]\(((?:\.\./)+[^)\s]+)\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return a page's text for the site."""
    depth = len(PurePosixPath(page.file.src_uri).parent.parts)

    def lead(link: re.Match[str]) -> str:
        target = link[1]
        ups = target.count("../")
        return f"]({SOURCE}{target.replace('../', '')})" if ups > depth else link[0]

    return _OUTSIDE.sub(lead, markdown)


def on_post_page(output: str, **_: Any) -> str:
    """Return a page whose search has a name, which the theme forgets."""
    return _named(output)


def on_post_template(output_content: str, *, template_name: str, **_: Any) -> str:
    """Return a page that is made of no text of ours, such as the one for lost readers."""
    return _named(output_content) if template_name.endswith(".html") else output_content


def _named(page: str) -> str:
    return page.replace('role="dialog"', 'role="dialog" aria-label="Search"')
