"""Templates with `{name}` in them, filled with plain values only."""

from __future__ import annotations

import string
from collections.abc import Mapping

from lakebed.errors import InvalidInputError


def fill(template: str, values: Mapping[str, str]) -> str:
    """Replace names by their values.

    Only `{name}` is supported: attributes, items, conversions and formats are not, since a
    template could use them to reach other objects. `{{` and `}}` are braces.

    Raises:
        InvalidInputError: The template is broken, or uses an unknown name.

    Examples:
        >>> fill("{where}/{what}", {"where": "box", "what": "log"})
        'box/log'
    """
    try:
        pieces = list(string.Formatter().parse(template))
    except ValueError as exc:
        msg = f"Template {template!r} is broken: {exc}."
        raise InvalidInputError(msg, hint=_hint(values)) from exc
    filled = []
    for text, name, form, conversion in pieces:
        filled.append(text)
        if name is None:
            continue
        if form or conversion or name not in values:
            shown = (
                f"{{{name}{f'!{conversion}' if conversion else ''}{f':{form}' if form else ''}}}"
            )
            msg = f"Template {template!r} has {shown}, which is not a known name."
            raise InvalidInputError(msg, hint=_hint(values))
        filled.append(values[name])
    return "".join(filled)


def _hint(values: Mapping[str, str]) -> str:
    return f"Known names: {', '.join(f'{{{name}}}' for name in values) or 'none'}."
