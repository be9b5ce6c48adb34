"""Extension of the reference that turns examples in docstrings into blocks of code."""

import re
from typing import Any

import griffe

# From a prompt to the next empty line, including the output.
_EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?!\s*$).*\n?)*)", re.MULTILINE)


class DoctestFences(griffe.Extension):
    """Puts fences around examples in the text, outside of sections."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(
                _fenced, obj.docstring.value
            )


def _fenced(example: re.Match[str]) -> str:
    return f"```pycon\n{example[0].rstrip()}\n```\n"
