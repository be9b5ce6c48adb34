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
