"""Texts with `{name}` in them, filled with plain values and nothing else."""

from __future__ import annotations

import string
from collections.abc import Mapping

from lakebed.errors import InvalidInputError


def fill(template: str, values: Mapping[str, str]) -> str:
    """Put values in the place of their names.

    Only `{name}` is known: no attribute, no item, no conversion and no format of a value, with
    which a template could reach what it was not given. `{{` and `}}` are braces.

    Raises:
        InvalidInputError: The template is broken, or names what is not there.

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
            msg = f"Template {template!r} has {shown}, which is no name."
            raise InvalidInputError(msg, hint=_hint(values))
        filled.append(values[name])
    return "".join(filled)


def _hint(values: Mapping[str, str]) -> str:
    return f"Known are {', '.join(f'{{{name}}}' for name in values) or 'no names'}."
