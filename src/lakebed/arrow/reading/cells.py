"""Records of CSV as cells, cells as texts, and texts in the form that typed reading takes."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from lakebed.arrow.reading.date_formats import iso_texts
from lakebed.arrow.reading.dialect import CsvOptions
from lakebed.arrow.reading.texts import MAX_EXACT, kind_of_text
from lakebed.common.shown import counted
from lakebed.errors import SchemaMismatchError
from lakebed.model.keys import BATCH_ID
from lakebed.model.schema import Decimal, Kind, Primitive, Type

_BLANKS = " \t"
_NUMBERS = frozenset({Kind.INT, Kind.LONG, Kind.UNSIGNED_LONG, Kind.FLOAT, Kind.DOUBLE})
_MOMENTS = frozenset({Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ})
_FOREIGN_IN_NAMES = re.compile(r"[.`]|\[\]|\{\}")


def field_names(cells: Iterable[str], options: CsvOptions) -> tuple[str, ...]:
    """Return the names of the fields for the cells of a header: legal, and each of them once.

    A name that is mapped by `names` counts as it is mapped. Of the others, characters that no
    name may have become `_` or blanks, an empty name becomes that of its position, and a name that
    comes again gets a number.

    >>> field_names(["id", "", "geo.lat", "id", "net"], CsvOptions(names={"net": "amount"}))
    ('id', 'column_2', 'geo_lat', 'id_2', 'amount')
    """
    names: list[str] = []
    taken: set[str] = set()
    for number, cell in enumerate(cells, 1):
        mapped = options.names.get(cell)
        base = name = mapped or legal_name(cell) or f"column_{number}"
        count = 1
        while name in taken:
            count += 1
            name = f"{base}_{count}"
        name = options.names.get(name, name)
        taken.add(name)
        names.append(name)
    return tuple(names)


def legal_name(text: str) -> str:
    r"""Return a name that a field may have for one of a file; empty if nothing of it is left.

    >>> legal_name(" price\u00a0EUR "), legal_name("a.b"), legal_name("batch_id")
    ('price EUR', 'a_b', 'batch_id_1')
    """
    visible = "".join(
        " " if letter.isspace() else letter
        for letter in text
        if letter.isspace() or unicodedata.category(letter) not in ("Cc", "Cf", "Cs")
    )
    name = _FOREIGN_IN_NAMES.sub("_", re.sub(" +", " ", visible).strip())
    return f"{name}_1" if name == BATCH_ID else name


class Splitter:
    """Splits records of any notation into cells."""

    def __init__(self, options: CsvOptions) -> None:
        self._options = options
        delimiter, quote, escape = map(
            re.escape, (options.delimiter, options.quote, options.escape)
        )
        around = f"[{_BLANKS}]*" if options.trim else ""
        pair = rf"{escape}[\s\S]|" if escape else ""
        if quote:  # the escape has its meaning in quotes alone, as Spark writes it
            inside = rf"(?:{pair}{quote}{quote}|[^{quote}{escape}])*"
            # Text behind the end of a quote belongs to the cell.
            quoted = rf"{around}({quote})({inside}){quote}([^{delimiter}]*)"
            self._cell = re.compile(rf"{delimiter}(?:{quoted}|([^{delimiter}]*))")
        else:
            self._cell = re.compile(rf"(?:{pair}[^{delimiter}{escape}])*")
        self._outside = re.compile(rf"{escape}([{delimiter}\n{escape}])")
        kept = rf"{escape}(?P<kept>[{quote}{delimiter}{escape}\n])|" if escape else ""
        self._inside = re.compile(rf"{kept}{quote}(?P<twice>{quote})")  # used with a quote alone

    def cells(self, record: bytes) -> list[str | None]:
        """Return the cells of a record; None for one that is empty, and not in quotes.

        Raises:
            SchemaMismatchError: The record is not UTF-8, or a quote has no end.
        """
        text, options = decoded(record).removesuffix("\r"), self._options
        if options.quote:
            return [
                self._quoted(quoted, tail) if quote else self._plain(plain)
                for quote, quoted, tail, plain in self._cell.findall(options.delimiter + text)
            ]
        if not options.escape:
            return [self._plain(cell) for cell in text.split(options.delimiter)]
        cells: list[str | None] = []
        at = 0
        while True:
            match = self._cell.match(text, at)
            assert match is not None  # the form takes an empty text
            cells.append(self._plain(match[0]))
            at = match.end()
            if at >= len(text):
                return cells
            if text[at] != options.delimiter:
                raise SchemaMismatchError(
                    f"Behind {text[:at][-20:]!r} comes {text[at]!r}, where a cell begins or ends.",
                    hint="Correct the file.",
                )
            at += 1

    def _quoted(self, text: str, tail: str) -> str:
        options = self._options
        if options.quote in text or (options.escape and options.escape in text):
            text = self._inside.sub(lambda match: match[match.lastgroup or 0], text)
        return text + (tail.strip(_BLANKS) if options.trim else tail)

    def _plain(self, text: str) -> str | None:
        if self._options.trim:
            text = text.strip(_BLANKS)
        if self._options.null_text and text == self._options.null_text:
            return None
        if self._options.escape and not self._options.quote:
            text = self._outside.sub(r"\1", text)
        return text or None


def decoded(record: bytes) -> str:
    """Return the text of a record.

    Raises:
        SchemaMismatchError: The record is not UTF-8.
    """
    try:
        return record.decode()
    except UnicodeDecodeError as exc:
        raise SchemaMismatchError(
            f"This is not UTF-8: {exc}.",
            hint="Set encoding to that of the file: 'cp1252' for Western Europe, which includes "
            "Latin-1.",
        ) from exc


def csv_cells(record: bytes, options: CsvOptions) -> tuple[str, ...]:
    """Return the cells of one record.

    Raises:
        SchemaMismatchError: The record is not UTF-8.
    """
    if not options.is_split_plainly:
        return tuple(cell or "" for cell in Splitter(options).cells(record))
    text = decoded(record)
    return tuple(next(csv.reader(io.StringIO(text, newline=""), delimiter=options.delimiter), ()))


def count_error(actual: int, expected: int) -> SchemaMismatchError:
    """Return the error of a record with another number of cells."""
    verb = "is" if expected == 1 else "are"
    return SchemaMismatchError.of_line(
        f"The line has {counted(actual, 'cell')}, but there {verb} {counted(expected, 'column')}.",
        hint="Correct the file: put a cell with a delimiter or a newline in quotes.",
    )


def split_rows(
    records: Sequence[bytes], width: int, options: CsvOptions
) -> list[list[str | None] | SchemaMismatchError]:
    """Split records into rows of a number of cells; of another record, return the error."""
    splitter = Splitter(options)
    rows: list[list[str | None] | SchemaMismatchError] = []
    for record in records:
        try:
            cells = splitter.cells(record)
            rows.append(cells if len(cells) == width else _filled(cells, width, options))
        except SchemaMismatchError as exc:
            rows.append(exc)
    return rows


def _filled(cells: list[str | None], width: int, options: CsvOptions) -> list[str | None]:
    if options.ragged == "reject" or any(cell and cell.strip() for cell in cells[width:]):
        raise count_error(len(cells), width)
    return [*cells[:width], *[None] * (width - len(cells))]


def rows_as_table(rows: Sequence[Sequence[str | None]], names: Sequence[str]) -> pa.Table:
    """Return rows of cells as columns of text."""
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return pa.table([pa.array(column, pa.string()) for column in columns], names=list(names))


def normalized(table: pa.Table, types: Mapping[str, Type], options: CsvOptions) -> pa.Table:
    """Return texts in the one form that typed reading takes.

    What has no such form stays as it is, and is refused by typed reading.
    """
    columns = [
        _normalized(table.column(name).combine_chunks(), types[name], name, options)
        if name in types
        else table.column(name)
        for name in table.schema.names
    ]
    return pa.table(columns, names=table.schema.names)


def as_csv(table: pa.Table) -> bytes:
    """Return texts as CSV with commas, without a header."""
    sink = io.BytesIO()
    # Of an empty chunk, Arrow 26 writes memory that it has not set.
    table = table.combine_chunks()
    if table.num_rows:
        pacsv.write_csv(table, sink, pacsv.WriteOptions(include_header=False, delimiter=","))
    return sink.getvalue()


def _normalized(column: pa.Array, kind: Type, name: str, options: CsvOptions) -> pa.Array:
    if kind == Primitive(Kind.STRING):
        return column
    texts = pc.utf8_trim_whitespace(column)
    nulls = pa.array(["", *options.nulls], pa.string())
    texts = pc.if_else(pc.is_in(texts, nulls), pa.scalar(None, pa.string()), texts)
    if isinstance(kind, Decimal) or (isinstance(kind, Primitive) and kind.kind in _NUMBERS):
        return plain_numbers(texts, options.decimal, options.thousands)
    if isinstance(kind, Primitive) and (kind.kind in _MOMENTS or kind.kind is Kind.DATE):
        format_ = options.dates.get(name)
        if format_ is not None:
            texts = iso_texts(texts, format_)
    return texts


def is_number(kind: Type) -> bool:
    """Return whether a type is one of numbers, but not a decimal."""
    return isinstance(kind, Primitive) and kind.kind in _NUMBERS


_DOUBLES = frozenset({Kind.FLOAT, Kind.DOUBLE})
# Texts of at most 15 digits are never changed by a double, and those of at most 17 with a point
# are what producers write.
_SAFE_DIGITS, _MOST_DIGITS = 15, 17
_SIGN, _ZERO, _POINT, _PLUS = b"-0.+"


def changed_numbers(texts: pa.Array, kind: Type) -> np.ndarray:
    """Return a mask of the numbers that Arrow reads, but whose text a type of numbers changes.

    These are leading zeros, hexadecimal, more digits than a double holds, and codes such as `1E5`.

    >>> texts = pa.array(["7", "007", "-0x1F", None, "0.5"])
    >>> changed_numbers(texts, Primitive(Kind.DOUBLE)).tolist()
    [False, True, True, False, False]
    """
    mask = np.zeros(len(texts), bool)
    _, ends, data = texts.buffers()
    if not len(texts) or data is None or not data.size:
        return mask
    letters = np.frombuffer(data, np.uint8)
    bounds = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    firsts = letters[np.minimum(bounds[:-1], len(letters) - 1)]
    is_negative = firsts == _SIGN
    begins = bounds[:-1] + is_negative
    sizes = bounds[1:] - begins
    is_zero = letters[np.minimum(begins, len(letters) - 1)] == _ZERO
    is_longer = sizes > 1
    is_pointed = letters[np.minimum(begins + 1, len(letters) - 1)] == _POINT
    assert isinstance(kind, Primitive)
    if kind.kind not in _DOUBLES:
        mask = is_zero & (is_longer | (is_negative & (sizes == 1)))
        return np.asarray(mask & texts.is_valid().to_numpy(zero_copy_only=False))
    mask = (is_zero & is_longer & ~is_pointed) | ((firsts == _PLUS) & is_longer)
    digits = sizes - 2 * (is_zero & is_pointed)
    texts = pc.fill_null(texts, "")
    if digits.max() > _SAFE_DIGITS:
        has_point = np.asarray(pc.match_substring(texts, "."))
        mask |= (digits > _MOST_DIGITS + 1) | ((digits > _SAFE_DIGITS) & ~has_point)
    powers = np.flatnonzero(pc.match_substring(texts, "e", ignore_case=True))
    if len(powers):  # codes, and what is infinite or zero for a double
        odd = pc.match_substring_regex(texts.take(pa.array(powers)), "^[0-9]+E|[eE].?[0-9]{3}")
        mask[powers] |= np.asarray(odd)
    for position in np.flatnonzero(mask):
        mask[position] = not _is_kept_by_double(texts[position].as_py())
    return np.asarray(mask)


def _is_kept_by_double(text: str) -> bool:
    if not any(letter.isdigit() for letter in text):  # a null, or infinity
        return True
    kind = kind_of_text(text)
    return kind is Kind.DOUBLE or (kind is Kind.LONG and abs(int(text)) <= MAX_EXACT)


def plain_numbers(texts: pa.Array, decimal: str, thousands: str) -> pa.Array:
    """Return numbers with a point, and without separators of groups.

    Where the decimal separator is a comma, a point that separates no groups makes a text invalid.
    """
    if decimal == "." and not thousands:
        return texts
    mark, group = re.escape(decimal), re.escape(thousands)
    if thousands:
        is_grouped = pc.match_substring_regex(
            texts, rf"^[+-]?[0-9]{{1,3}}({group}[0-9]{{3}})+({mark}[0-9]*)?$"
        )
        texts = pc.if_else(is_grouped, pc.replace_substring(texts, thousands, ""), texts)
    if decimal == ",":
        is_foreign = pc.match_substring(texts, ".")
        texts = pc.if_else(is_foreign, pc.binary_join_element_wise("?", texts, ""), texts)
        texts = pc.replace_substring(texts, ",", ".", max_replacements=1)
    return texts
