"""Floating point numbers as text, in the form that Spark gives them."""

from __future__ import annotations

import decimal
import math

_PLAIN_FROM, _PLAIN_BELOW = -3, 7  # powers of ten between which there is no exponent


def number_text(value: float, shortest: str | None = None) -> str:
    """Return a number as Spark's CAST to STRING does, which is Java's form.

    Args:
        value: The number.
        shortest: Its shortest text, if it is not that of 64 bits.

    >>> [number_text(value) for value in (1.0, 1e7, 0.001, 1.5e-4, math.inf)]
    ['1.0', '1.0E7', '0.001', '1.5E-4', 'Infinity']
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    exact = decimal.Decimal(shortest or repr(value))
    if not exact:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    if len(exact.as_tuple().digits) == 1:
        # Java gives two digits at least, of which the second may be more than 0: 4.9E-324.
        exact = decimal.Decimal(f"{value:.1e}")
    sign, digits, _ = exact.as_tuple()
    power = exact.adjusted()
    text = "".join(map(str, digits)).rstrip("0")
    if _PLAIN_FROM <= power < _PLAIN_BELOW:
        if power < 0:
            whole, fraction = "0", "0" * (-power - 1) + text
        else:
            text = text.ljust(power + 1, "0")
            whole, fraction = text[: power + 1], text[power + 1 :]
        number = f"{whole}.{fraction or '0'}"
    else:
        number = f"{text[0]}.{text[1:] or '0'}E{power}"
    return f"-{number}" if sign else number
