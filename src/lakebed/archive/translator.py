"""Values taken from the path of a file by a pattern."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from lakebed.archive.metadata import is_absolute
from lakebed.archive.template import fill
from lakebed.errors import InvalidInputError

_HINT = r"Write it as '.*job-(?P<job>[0-9]+)\.log$~job{job}'."


@dataclass(frozen=True, slots=True)
class Translator:
    r"""An expression `<pattern>~<template>`.

    The pattern is matched from the start of an absolute path; the values of its named groups fill
    the template.

    Examples:
        >>> Translator(r".*job-(?P<job>[0-9]+)\.log$~job{job}")("/var/log/job-1234.log")
        'job1234'
    """

    expression: str
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _template: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Read the expression.

        Raises:
            InvalidInputError: It does not have exactly one `~`, the pattern is broken, or the
                template names an unknown group.
        """
        pattern, *templates = self.expression.split("~")
        if len(templates) != 1:
            msg = f"Translator {self.expression!r} has {len(templates)} '~', not one."
            raise InvalidInputError(msg, hint=_HINT)
        try:
            compiled = re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as exc:
            msg = f"Translator {self.expression!r} has a broken pattern: {exc}."
            raise InvalidInputError(msg, hint=_HINT) from exc
        fill(templates[0], dict.fromkeys(compiled.groupindex, ""))
        object.__setattr__(self, "_pattern", compiled)
        object.__setattr__(self, "_template", templates[0])

    def __call__(self, path: str) -> str:
        """Return the value for a path.

        Raises:
            InvalidInputError: The path is not absolute, the pattern does not match, or a group
                that the template uses did not match.
        """
        if not is_absolute(path):
            msg = f"Translator {self.expression!r} was given {path!r}, which is not absolute."
            raise InvalidInputError(
                msg, hint=r"Give a path such as /var/log/syslog, or C:\logs\syslog."
            )
        match = self._pattern.match(path)
        if match is None:
            msg = f"Translator {self.expression!r} does not match {path!r}."
            raise InvalidInputError(msg, hint="The pattern is matched from the start of the path.")
        groups = {name: value for name, value in match.groupdict().items() if value is not None}
        return fill(self._template, groups)


def translate(value: str, path: str) -> str:
    """Return `value`, or its result for the path if it is an expression.

    Raises:
        InvalidInputError: It is an expression that is broken or does not fit.
    """
    return Translator(value)(path) if "~" in value else value
