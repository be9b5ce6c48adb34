"""Functions that DuckDB has not, or has with another meaning: computed by Python, a value at a time.

They cost about a microsecond a row. A function gets no NULL, and raises ValueError for a value that
is an error in Spark. Dates are days since 1970 here, and times are microseconds since then.
"""

from __future__ import annotations

import datetime as dt
import decimal
import hashlib
import inspect
import math
import re
import struct
import urllib.parse
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class RowFunction:
    """A function of Python that DuckDB calls as `lakebed_NAME`.

    Attributes:
        name: The name behind `lakebed_`.
        takes: DuckDB's types of its arguments.
        gives: DuckDB's type of its values.
        compute: Computes one value.
        takes_null: Whether it is asked for rows that have a NULL, too.
    """

    name: str
    takes: tuple[str, ...]
    gives: str
    compute: Callable[..., Any]
    takes_null: bool = False

    def of_columns(self) -> Callable[..., pa.Array]:
        """Return the function of columns, which DuckDB asks for the number of its arguments."""

        def call(*columns: pa.Array) -> pa.Array:
            rows = zip(*(column.to_pylist() for column in columns), strict=True)
            values = [
                None if None in row and not self.takes_null else self.compute(*row) for row in rows
            ]
            return pa.array(values, _ARROW_TYPES[self.gives])

        kind = inspect.Parameter.POSITIONAL_ONLY
        names = [inspect.Parameter(f"a{number}", kind) for number in range(len(self.takes))]
        vars(call)["__signature__"] = inspect.Signature(names)
        return call


_ARROW_TYPES: Final = {
    "VARCHAR": pa.string(), "BLOB": pa.binary(), "BOOLEAN": pa.bool_(), "INTEGER": pa.int32(),
    "BIGINT": pa.int64(), "DOUBLE": pa.float64(), "REAL": pa.float32(),
    "DOUBLE[]": pa.list_(pa.float64()), "VARCHAR[]": pa.list_(pa.string()), "MAP(VARCHAR, VARCHAR)": pa.map_(pa.string(), pa.string()),
}  # fmt: skip


# Texts


def _titled(text: str) -> str:
    """Return a text whose words, which spaces part, begin with one title letter each."""
    return " ".join(
        word[:1].title() + word.lower()[len(word[:1].lower()) :] for word in text.split(" ")
    )


_SOUNDS: Final = "01230127022455012623017202"


def _soundex(text: str) -> str:
    data = text.encode().upper()  # of bytes: only letters of ASCII
    if not data or not 65 <= data[0] <= 90:
        return text
    code, last = chr(data[0]), _SOUNDS[data[0] - 65]
    for byte in data[1:]:
        if not 65 <= byte <= 90:
            last = "0"
            continue
        sound = _SOUNDS[byte - 65]
        if sound == "7":
            continue
        if sound not in ("0", last):
            code += sound
            if len(code) == 4:
                break
        last = sound
    return code.ljust(4, "0")


def _levenshtein(one: str, other: str) -> int:
    previous = list(range(len(other) + 1))
    for number, letter in enumerate(one, 1):
        current = [number]
        for place, wanted in enumerate(other):
            current.append(
                min(previous[place + 1] + 1, current[-1] + 1, previous[place] + (letter != wanted))
            )
        previous = current
    return previous[-1]


def _substring_index(text: str, delimiter: str, count: int) -> str:
    if not delimiter or count == 0:
        return ""
    at = -1 if count > 0 else len(text)
    for _ in range(abs(count)):
        # Backwards from one place before: delimiters may overlap.
        at = (
            text.find(delimiter, at + 1)
            if count > 0
            else text.rfind(delimiter, 0, max(at - 1 + len(delimiter), 0))
        )
        if at < 0:
            return text
    return text[:at] if count > 0 else text[at + len(delimiter) :]


_BASE64: Final = {
    ord(letter): number
    for number, letter in enumerate(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    )
}


def _read_base64(text: str) -> bytes:
    """Read as Java's decoder for MIME, which skips all but the letters of the alphabet."""
    data, found, bits, shift, at = text.encode(), bytearray(), 0, 18, 0
    while at < len(data):
        byte = data[at]
        at += 1
        if byte == ord("="):
            second = data[at : at + 1]
            if shift == 18 or (shift == 6 and second != b"="):
                raise ValueError("the base64 text has a wrong end")
            at += shift == 6
            break
        if byte not in _BASE64:
            continue
        bits |= _BASE64[byte] << shift
        shift -= 6
        if shift < 0:
            found += bits.to_bytes(3, "big")
            bits, shift = 0, 18
    if shift == 12 or any(byte in _BASE64 or byte == 61 for byte in data[at:]):
        raise ValueError("the base64 text has a wrong end")
    rest = {6: 1, 0: 2}.get(shift, 0)
    return bytes(found + bits.to_bytes(3, "big")[:rest])


def _luhn(text: str) -> bool:
    if not text or not (text.isascii() and text.isdigit()):
        return False
    doubled = (int(digit) * 2 for digit in text[-2::-2])
    total = sum(map(int, text[::-2])) + sum(number - 9 * (number > 9) for number in doubled)
    return total % 10 == 0


def _unquoted_url(text: str) -> str:
    data = text.replace("+", " ").encode()
    pieces = data.split(b"%")
    found = bytearray(pieces[0])
    for piece in pieces[1:]:
        digits = piece[:2]
        if len(digits) < 2 or not all(chr(byte) in "0123456789abcdefABCDEF" for byte in digits):
            raise ValueError("the text has a wrong % sequence of a URL")
        found += bytes([int(digits, 16)]) + piece[2:]
    return found.decode("utf-8", "replace")


# Numbers


def _cube_root(value: float) -> float:
    """Return the cube root by the steps of fdlibm, which is Java's."""
    if value == 0 or not math.isfinite(value):
        return value
    size = abs(value)
    if size < 2.0**-1022:
        high = (_bits_of(size * 2.0**54) >> 32) // 3 + 696219795
    else:
        high = (_bits_of(size) >> 32) // 3 + 715094163
    root = _float_of(high << 32)
    square = root * root / size
    part = float.fromhex("0x1.15f15f15f15f1p-1") + square * root
    root *= float.fromhex("0x1.6db6db6db6db7p-2") + float.fromhex("0x1.9b6db6db6db6ep0") / (
        part + float.fromhex("0x1.6a0ea0ea0ea0fp0") + float.fromhex("-0x1.691de2532c834p-1") / part
    )
    root = _float_of(((_bits_of(root) >> 32) + 1) << 32)
    quotient = size / (root * root)
    root += root * ((quotient - root) / (root + root + quotient))
    return math.copysign(root, value)


def _bits_of(value: float) -> int:
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return bits


def _float_of(bits: int) -> float:
    value: float = struct.unpack("<d", struct.pack("<q", bits))[0]
    return value


def _or_infinite(function: Callable[[float], float]) -> Callable[[float], float]:
    """Return a function that is infinite where it overflows, and NaN where it is not defined."""

    def compute(value: float) -> float:
        try:
            return function(value)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return compute


def _inverse(function: Callable[[float], float]) -> Callable[[float], float]:
    """Return the function of 1 divided by the value of another one."""

    def compute(value: float) -> float:
        below = function(value) if math.isfinite(value) else math.nan
        return 1.0 / below if below else math.copysign(math.inf, below)

    return compute


def _atanh(value: float) -> float:
    return 0.5 * (_log1p(value) - _log1p(-value))


def _log1p(value: float) -> float:
    if value == -1:
        return -math.inf
    return math.log1p(value) if value > -1 or math.isnan(value) else math.nan


_ROUNDING: Final = decimal.Context(prec=1500, Emax=10_000, Emin=-10_000)


def _round_text(text: str, scale: int, way: str) -> str:
    """Return a number in digits, rounded to so many of them behind the point, in one of Python's ways."""
    unit = decimal.Decimal((0, (1,), -scale))
    return f"{decimal.Decimal(text).quantize(unit, way, _ROUNDING):f}"


def _round_float(value: float, scale: int, way: str) -> float:
    if not math.isfinite(value):
        return value
    return float(_round_text(repr(value), scale, way)) + 0.0


def _shift_left(value: int, count: int, bits: int) -> int:
    return _as_signed(value << (count % bits), bits)


def _shift_right(value: int, count: int, bits: int) -> int:
    return _as_signed((value % 2**bits) >> (count % bits), bits)


def _as_signed(value: int, bits: int) -> int:
    value %= 2**bits
    return value - 2**bits if value >= 2 ** (bits - 1) else value


_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _converted(text: str, own: int, to: int) -> str | None:
    """Return a whole number of one base in another one, as Hive does; of a negative one, signed."""
    text = text.strip(" ")
    if not (2 <= own <= 36 and 2 <= abs(to) <= 36) or not text:
        return None
    is_negative = text.startswith("-")
    number = 0
    for letter in text[is_negative:]:
        digit = _DIGITS.find(letter.upper()) if letter.isascii() else -1
        if not 0 <= digit < own:
            break
        number = number * own + digit
        if number >= 2**64:
            raise ValueError("the number has more than 64 bits")
    number = _as_signed(number, 64)
    if is_negative and to > 0:
        number = -1 if number < 0 else -number
    is_minus = is_negative
    if to < 0 and number < 0:
        number, is_minus = -number, True
    rest, digits = number % 2**64, ""
    while rest:
        rest, digit = divmod(rest, abs(to))
        digits = _DIGITS[digit] + digits
    return ("-" if is_minus and to < 0 else "") + (digits or "0")


def _width_bucket(value: float, least: float, most: float, count: int) -> int | None:
    if (
        not 0 < count < 2**63 - 1
        or math.isnan(value)
        or least == most
        or not (math.isfinite(least) and math.isfinite(most))
    ):
        return None
    low, high = min(least, most), max(least, most)
    if least < most:
        outside = 0 if value < low else count + 1 if value >= high else None
        distance = value - low
    else:
        outside = 0 if value > high else count + 1 if value <= low else None
        distance = high - value
    return int(count * distance / (high - low)) + 1 if outside is None else outside


# Collections and hashes


def _map_of_text(text: str, pairs: str, sign: str) -> dict[str, str | None]:
    """Return the keys and values of a text such as `a:1,b:2`."""
    found: dict[str, str | None] = {}
    for pair in text.split(pairs):
        key, is_pair, value = pair.partition(sign)
        if key in found:
            raise ValueError("a key of the map is there twice")
        found[key] = value if is_pair else None
    return found


def _place_of(value: Any) -> tuple[bool, float]:
    return math.isnan(value), 0.0 if math.isnan(value) else value


def _sorted(values: list[float | None], order: str, nulls_at: str) -> list[float | None]:
    numbers: list[float | None] = [value for value in values if value is not None]
    numbers.sort(key=_place_of, reverse=order == "down")
    nulls: list[float | None] = [None] * (len(values) - len(numbers))
    return [*nulls, *numbers] if nulls_at == "start" else [*numbers, *nulls]


def _sha2(data: bytes, bits: int) -> str | None:
    if bits not in (224, 256, 384, 512):
        return None
    return hashlib.new(f"sha{bits}", data).hexdigest()


_ALL32, _ALL64 = 2**32 - 1, 2**64 - 1


def _rotated32(value: int, count: int) -> int:
    return ((value << count) | (value >> (32 - count))) & _ALL32


def _murmur(data: bytes, seed: int) -> int:
    """Return the hash of Murmur3 as Spark computes it: the last bytes are mixed one by one."""
    whole = len(data) // 4 * 4
    value = seed & _ALL32
    words = [*struct.unpack(f"<{whole // 4}I", data[:whole])]
    words += [(byte - 256 if byte > 127 else byte) & _ALL32 for byte in data[whole:]]
    for word in words:
        mixed = _rotated32(word * 0xCC9E2D51 & _ALL32, 15) * 0x1B873593 & _ALL32
        value = (_rotated32(value ^ mixed, 13) * 5 + 0xE6546B64) & _ALL32
    value ^= len(data)
    value = (value ^ (value >> 16)) * 0x85EBCA6B & _ALL32
    value = (value ^ (value >> 13)) * 0xC2B2AE35 & _ALL32
    return _as_signed(value ^ (value >> 16), 32)


_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
)  # fmt: skip


def _rotated64(value: int, count: int) -> int:
    value &= _ALL64
    return ((value << count) | (value >> (64 - count))) & _ALL64


def _xxhash(data: bytes, seed: int) -> int:
    """Return the hash of XXH64."""
    at, size = 0, len(data)
    seed &= _ALL64
    if size >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while at + 32 <= size:
            for lane, word in enumerate(struct.unpack_from("<4Q", data, at)):
                lanes[lane] = _rotated64(lanes[lane] + word * _P2, 31) * _P1 & _ALL64
            at += 32
        value = sum(
            _rotated64(lane, count) for lane, count in zip(lanes, (1, 7, 12, 18), strict=True)
        )
        for lane in lanes:
            value = ((value ^ (_rotated64(lane * _P2, 31) * _P1 & _ALL64)) * _P1 + _P4) & _ALL64
    else:
        value = seed + _P5
    value = (value + size) & _ALL64
    while at + 8 <= size:
        (word,) = struct.unpack_from("<Q", data, at)
        value = (
            _rotated64(value ^ (_rotated64(word * _P2, 31) * _P1 & _ALL64), 27) * _P1 + _P4
        ) & _ALL64
        at += 8
    if at + 4 <= size:
        (word,) = struct.unpack_from("<I", data, at)
        value = (_rotated64(value ^ (word * _P1 & _ALL64), 23) * _P2 + _P3) & _ALL64
        at += 4
    for byte in data[at:]:
        value = _rotated64(value ^ (byte * _P5 & _ALL64), 11) * _P1 & _ALL64
    value = (value ^ (value >> 33)) * _P2 & _ALL64
    value = (value ^ (value >> 29)) * _P3 & _ALL64
    return _as_signed(value ^ (value >> 32), 64)


def _hashes(name: str, hash_bytes: Callable[[bytes, int], int], gives: str) -> list[RowFunction]:
    """Return the functions that hash a value of each form after another hash; NULL leaves that."""
    forms: list[tuple[str, str, Callable[[Any], bytes]]] = [
        ("int", "INTEGER", lambda value: struct.pack("<i", value)),
        ("long", "BIGINT", lambda value: struct.pack("<q", value)),
        (
            "float",
            "REAL",
            lambda value: struct.pack("<f", math.nan if math.isnan(value) else value + 0.0),
        ),
        (
            "double",
            "DOUBLE",
            lambda value: struct.pack("<d", math.nan if math.isnan(value) else value + 0.0),
        ),
        ("text", "VARCHAR", lambda value: value.encode()),
        ("bytes", "BLOB", lambda value: value),
        ("digits", "VARCHAR", _bytes_of_digits),
    ]

    def hasher(to_bytes: Callable[[Any], bytes]) -> Callable[[Any, int], int]:
        return lambda value, seed: seed if value is None else hash_bytes(to_bytes(value), seed)

    return [
        RowFunction(f"{name}_{form}", (kind, gives), gives, hasher(to_bytes), takes_null=True)
        for form, kind, to_bytes in forms
    ]


def _bytes_of_digits(text: str) -> bytes:
    """Return the bytes of Java's BigInteger."""
    number = int(text)
    size = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(size, "big", signed=True)


# Patterns, which are translated for Python before


@lru_cache(maxsize=64)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.ASCII)


def _part(text: str, pattern: str) -> str | None:
    found = _pattern(pattern).search(text)
    return None if found is None else found[0] or None


def _group(text: str, pattern: str, number: int) -> str:
    found = _pattern(pattern).search(text)
    return "" if found is None else found[number] or ""


def _groups(text: str, pattern: str, number: int) -> list[str]:
    return [found[number] or "" for found in _pattern(pattern).finditer(text)]


def _place(text: str, pattern: str) -> int:
    found = _pattern(pattern).search(text)
    return 0 if found is None else found.start() + 1


def _expanded(new: str) -> Callable[[re.Match[str]], str]:
    r"""Return what writes a replacement, in which `\\1` is a group and a doubled backslash is one."""

    def write(found: re.Match[str]) -> str:
        return re.sub(
            r"\\(.)", lambda sign: "\\" if sign[1] == "\\" else found[int(sign[1])] or "", new
        )

    return write


def _split(text: str, pattern: str, limit: int) -> list[str]:
    """Split as Java does: an empty match at the start makes no part, and so many parts at most."""
    parts: list[str] = []
    start = 0
    for found in _pattern(pattern).finditer(text):
        if limit > 0 and len(parts) == limit - 1:
            break
        if found.end() == 0 or (found.start() == found.end() == len(text)):
            continue
        parts.append(text[start : found.start()])
        start = found.end()
    return [*parts, text[start:]]


# Times


def _time_of_text(text: str, pattern: str, names: str) -> int | None:
    """Return the microseconds of a time that a pattern reads; None for a text that is none."""
    found = _pattern(pattern).fullmatch(text)
    if found is None:
        return None
    parts = dict(zip(names.split(), found.groups(), strict=True))
    year, month, day = int(parts["year"]), int(parts["month"]), int(parts.get("day", 1))
    hour, minute = int(parts.get("hour", 0)), int(parts.get("minute", 0))
    second, fraction = int(parts.get("second", 0)), parts.get("fraction", "")
    if (
        parts["year"].startswith("-0000")
        or not 1 <= month <= 12
        or hour > 23
        or minute > 59
        or second > 59
    ):
        return None
    # Python's calendar has the years 1 to 9999 alone, and repeats itself each 400 years.
    cycles = (year - 2000) // 400
    try:
        date = dt.date(year - cycles * 400, month, day)
    except ValueError:
        return None
    days = date.toordinal() - 719_163 + cycles * 146_097
    seconds = ((days * 24 + hour) * 60 + minute) * 60 + second
    return seconds * 1_000_000 + int(fraction.ljust(6, "0")[:6])


ROW_FUNCTIONS: Final = (
    RowFunction("reversed", ("VARCHAR",), "VARCHAR", lambda text: text[::-1]),
    RowFunction("titled", ("VARCHAR",), "VARCHAR", _titled),
    RowFunction("soundex", ("VARCHAR",), "VARCHAR", _soundex),
    RowFunction("levenshtein", ("VARCHAR", "VARCHAR"), "INTEGER", _levenshtein),
    RowFunction(
        "substring_index", ("VARCHAR", "VARCHAR", "INTEGER"), "VARCHAR", _substring_index
    ),
    RowFunction(
        "joined", ("VARCHAR", "VARCHAR[]"), "VARCHAR",
        lambda separator, texts: separator.join(text for text in texts if text is not None),
    ),
    RowFunction("unbase64", ("VARCHAR",), "BLOB", _read_base64),
    RowFunction("luhn", ("VARCHAR",), "BOOLEAN", _luhn),
    RowFunction(
        "url_encoded", ("VARCHAR",), "VARCHAR",
        lambda text: urllib.parse.quote_plus(text, safe="*").replace("~", "%7E"),
    ),
    RowFunction("url_decoded", ("VARCHAR",), "VARCHAR", _unquoted_url),
    RowFunction("cbrt", ("DOUBLE",), "DOUBLE", _cube_root),
    RowFunction("expm1", ("DOUBLE",), "DOUBLE", _or_infinite(math.expm1)),
    RowFunction("log1p", ("DOUBLE",), "DOUBLE", _log1p),
    RowFunction("asinh", ("DOUBLE",), "DOUBLE", math.asinh),
    RowFunction("acosh", ("DOUBLE",), "DOUBLE", _or_infinite(math.acosh)),
    RowFunction("atanh", ("DOUBLE",), "DOUBLE", _atanh),
    RowFunction("cot", ("DOUBLE",), "DOUBLE", _inverse(math.tan)),
    RowFunction("sec", ("DOUBLE",), "DOUBLE", _inverse(math.cos)),
    RowFunction("csc", ("DOUBLE",), "DOUBLE", _inverse(math.sin)),
    RowFunction("hypot", ("DOUBLE", "DOUBLE"), "DOUBLE", math.hypot),
    RowFunction("round_double", ("DOUBLE", "INTEGER", "VARCHAR"), "DOUBLE", _round_float),
    RowFunction("round_float", ("REAL", "INTEGER", "VARCHAR"), "REAL", _round_float),
    RowFunction("round_exact", ("VARCHAR", "INTEGER", "VARCHAR"), "VARCHAR", _round_text),
    RowFunction("shift_left", ("BIGINT", "INTEGER", "INTEGER"), "BIGINT", _shift_left),
    RowFunction("shift_right", ("BIGINT", "INTEGER", "INTEGER"), "BIGINT", _shift_right),
    RowFunction("conv", ("VARCHAR", "INTEGER", "INTEGER"), "VARCHAR", _converted),
    RowFunction(
        "width_bucket", ("DOUBLE", "DOUBLE", "DOUBLE", "BIGINT"), "BIGINT", _width_bucket
    ),
    RowFunction(
        "map_of_text", ("VARCHAR", "VARCHAR", "VARCHAR"), "MAP(VARCHAR, VARCHAR)", _map_of_text
    ),
    RowFunction("sorted", ("DOUBLE[]", "VARCHAR", "VARCHAR"), "DOUBLE[]", _sorted),
    RowFunction("sha2", ("BLOB", "INTEGER"), "VARCHAR", _sha2),
    RowFunction("crc32", ("BLOB",), "BIGINT", zlib.crc32),
    *_hashes("murmur", _murmur, "INTEGER"),
    *_hashes("xxhash", _xxhash, "BIGINT"),
    RowFunction(
        "pattern_found", ("VARCHAR", "VARCHAR"), "BOOLEAN",
        lambda text, pattern: _pattern(pattern).search(text) is not None,
    ),
    RowFunction(
        "pattern_count", ("VARCHAR", "VARCHAR"), "INTEGER",
        lambda text, pattern: sum(1 for _ in _pattern(pattern).finditer(text)),
    ),
    RowFunction(
        "pattern_replaced", ("VARCHAR", "VARCHAR", "VARCHAR"), "VARCHAR",
        lambda text, pattern, new: _pattern(pattern).sub(_expanded(new), text),
    ),
    RowFunction("pattern_part", ("VARCHAR", "VARCHAR"), "VARCHAR", _part),
    RowFunction("pattern_group", ("VARCHAR", "VARCHAR", "INTEGER"), "VARCHAR", _group),
    RowFunction("pattern_groups", ("VARCHAR", "VARCHAR", "INTEGER"), "VARCHAR[]", _groups),
    RowFunction("pattern_place", ("VARCHAR", "VARCHAR"), "INTEGER", _place),
    RowFunction("pattern_split", ("VARCHAR", "VARCHAR", "INTEGER"), "VARCHAR[]", _split),
    RowFunction("time_of_text", ("VARCHAR", "VARCHAR", "VARCHAR"), "BIGINT", _time_of_text),
)  # fmt: skip
