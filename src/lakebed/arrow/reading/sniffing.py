"""Recognition of a raw file by its first bytes: kind, encoding, and the notation of its records."""

from __future__ import annotations

import codecs
import contextlib
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from lakebed.arrow.reading.cells import Splitter, legal_name
from lakebed.arrow.reading.csv import records_of
from lakebed.arrow.reading.dialect import CsvOptions, JsonOptions, parts_of
from lakebed.arrow.reading.files import (
    STDIN,
    DamageError,
    FileFormat,
    Line,
    RawFile,
    common_format,
    format_of,
    naming,
    pieces_of,
    reading,
)
from lakebed.arrow.reading.json_records import objects_of
from lakebed.arrow.reading.texts import NULL_WORDS, formats_of_date, is_formed_number, kind_of_text
from lakebed.arrow.reading.transcoding import Transcoded, marked_encoding
from lakebed.common.shown import counted, shown
from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.schema import Kind

SAMPLE_BYTES = 256 * 2**10
_ENCODING_BYTES = 4 * 2**20  # a text of Western Europe may have few letters beyond ASCII
_MOST_RECORDS = 1_000
_FEW_RECORDS = 200  # of a file that begins with the line of another one, which was looked at

_UNPACK = "Unpack it, and give the files inside."
_FOREIGN: tuple[tuple[bytes, int, str, str], ...] = (
    (b"PK\x03\x04", 0, "a zip archive", _UNPACK),
    (b"PK\x05\x06", 0, "an empty zip archive", _UNPACK),
    (b"ustar", 257, "a tar archive", _UNPACK),
    (b"7z\xbc\xaf\x27\x1c", 0, "a 7z archive", _UNPACK),
    (b"Rar!", 0, "a rar archive", _UNPACK),
    (b"\x1f\x9d", 0, "compressed by `compress`", "Uncompress it."),
    (
        b"\xd0\xcf\x11\xe0",
        0,
        "an old Excel workbook, or another document of Office",
        "Save it as CSV.",
    ),
    (b"%PDF", 0, "a PDF", "Give a file of rows."),
    (b"SQLite format 3", 0, "a database of SQLite", "Export its tables, for example as CSV."),
    (b"ORC", 0, "ORC", "Convert it to Parquet, for example by Spark or DuckDB."),
    (b"ARROW1", 0, "Arrow IPC", "Convert it to Parquet by pyarrow."),
    (b"\x89PNG", 0, "a picture", "Give a file of rows."),
    (b"\xff\xd8\xff", 0, "a picture", "Give a file of rows."),
)
_HTML = re.compile(rb"\s*<(!doctype\s+html|html|head|body|!--)", re.IGNORECASE)
_XML = re.compile(rb"\s*<(\?xml|[A-Za-z][\w:.-]*[\s>/])")
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\r?', re.IGNORECASE)
_COMMENTS = ("#", "//", "%", "--")
_DELIMITERS = (",", ";", "\t", "|")
_RARE_DELIMITERS = ("^", "~", "\x01", "\x1f", "§", "¦", "*", "&", ":", " ")
_LOOSE_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?(%|[eE][+-]?[0-9]+)?")
_PARTS_OF_CSV, _PARTS_OF_JSON = parts_of(CsvOptions()).keys(), parts_of(JsonOptions()).keys()
_ENVELOPES = ("results", "data", "items", "records", "features", "rows", "value", "values", "hits")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognized:
    """The notation that the first bytes of files show.

    Attributes:
        format: Format of the files.
        csv: Notation of CSV.
        json: Notation of JSON.
        notes: Remarks on the files.
        is_empty: True if no file has content.
    """

    format: FileFormat
    csv: CsvOptions = field(default_factory=CsvOptions)
    json: JsonOptions = field(default_factory=JsonOptions)
    notes: tuple[str, ...] = ()
    is_empty: bool = False


def recognize(
    files: Sequence[RawFile],
    format: FileFormat | None,  # noqa: A002 - the word of the option
    *,
    csv: Mapping[str, Any] | None = None,
    json: Mapping[str, Any] | None = None,
    is_empty_allowed: bool = False,
) -> Recognized:
    """Recognize files of one source, which must all have the same notation.

    Args:
        files: At least one file; one without content counts only if all are.
        format: Their format, if it is known.
        csv: Parts of the notation of CSV that are known.
        json: Parts of the notation of JSON that are known.
        is_empty_allowed: True if all files may be empty, where the format is known.

    Raises:
        InvalidInputError: A file is of a kind that Lakebed does not read, or files differ; the hint
            names the remedy.

    Cost:
        The first 256 KiB of each file, up to 4 MiB for text that is ASCII so far. Of CSV 1,000
        records; 200 where the file has the first line of one before it.
    """
    first: tuple[RawFile, Recognized] | None = None
    empty: InvalidInputError | None = None
    first_lines: set[str] = set()
    for file in files:
        if file.location == STDIN:
            return Recognized(
                format=format or "json", csv=CsvOptions(**csv or {}), json=JsonOptions(**json or {})
            )
        try:
            found = _recognized(file, format, csv or {}, json or {}, first_lines)
        except _EmptyError as error:
            empty = empty or error.error
            continue
        first = (file, found) if first is None else (first[0], _joined(*first, file, found))
    if first is None:
        assert empty is not None  # there is a file
        if not is_empty_allowed:
            raise empty
        known = format or common_format(files)
        csv_, json_ = CsvOptions(**csv or {}), JsonOptions(**json or {})
        return Recognized(format=known, csv=csv_, json=json_, is_empty=True)
    return first[1]


def _joined(first: RawFile, found: Recognized, other: RawFile, its: Recognized) -> Recognized:
    """Return the notation of two files.

    Raises:
        InvalidInputError: They differ.
    """
    if found.format != its.format:
        raise InvalidInputError(
            f"{first.location} is {found.format}, but {other.location} is {its.format}.",
            hint="Give files of one format, or the format by --format.",
        )
    if found.format == "csv":
        return replace(found, csv=_joined_csv(first, found.csv, other, its.csv))
    if found.format == "json":
        mine, others = found.json, its.json
        if {mine.records, others.records} == {"lines", "concatenated"}:
            # One object after another includes one on each line.
            mine = others = replace(mine, records="concatenated")
        if (mine.records, mine.inside) != (others.records, others.inside):
            raise InvalidInputError(
                f"The objects of {first.location} are {_placed(mine)}, those of {other.location} "
                f"{_placed(others)}.",
                hint="Give files of one form, each to a source of its own.",
            )
        return replace(found, json=replace(mine, names={**others.names, **mine.names}))
    return found


def _placed(options: JsonOptions) -> str:
    if options.inside:
        return f"in {options.inside!r}"
    return {"lines": "on lines", "array": "in an array", "concatenated": "concatenated"}[
        options.records
    ]


# A property of files that may differ, if one of its values serves both.
_WIDER: Mapping[str, Any] = {"ragged": "fill", "escape": "\\", "trim": True}


def _joined_csv(first: RawFile, mine: CsvOptions, other: RawFile, its: CsvOptions) -> CsvOptions:
    changes: dict[str, Any] = {}
    for name in ("delimiter", "has_header", "quote", "skip", "comment", "line_end"):
        left, right = getattr(mine, name), getattr(its, name)
        if left == right:
            continue
        if name == "comment" and not (left and right):
            changes[name] = left or right
            continue
        raise InvalidInputError(
            f"{first.location} has {_described(name, left)}, but {other.location} has "
            f"{_described(name, right)}.",
            hint="Give files of one notation, each to a source of its own; or declare it.",
        )
    if mine.encoding != its.encoding:
        single = {mine.encoding, its.encoding} - {"utf-8"}
        if single == {"cp1252"}:
            raise InvalidInputError(
                f"{first.location} is {mine.encoding}, but {other.location} is {its.encoding}.",
                hint="Convert one of them, or give each to a source of its own.",
            )
        changes["encoding"] = "utf-8"  # byte order marks show the others
    changes |= {
        name: wider for name, wider in _WIDER.items() if getattr(mine, name) != getattr(its, name)
    }
    return replace(mine, **changes)


def _described(name: str, value: object) -> str:
    match name:
        case "has_header":
            return "a header" if value else "no header"
        case "skip":
            return f"{counted(int(str(value)), 'line')} before the header"
        case "line_end":
            return "CR as line end" if value == "\r" else "LF as line end"
    return f"{name} {value!r}"


class _EmptyError(Exception):
    """A file has no content."""

    def __init__(self, error: InvalidInputError) -> None:
        super().__init__(error)
        self.error = error


def _recognized(
    file: RawFile,
    format_: FileFormat | None,
    csv: Mapping[str, Any],
    json: Mapping[str, Any],
    first_lines: set[str],
) -> Recognized:
    with reading(file.location):
        head, is_whole = _head(file, SAMPLE_BYTES)
    if format_ not in ("avro", "parquet"):
        check_kind(head, file.location)
    binary = _binary_format(head)
    if binary is not None or format_ in ("avro", "parquet"):
        if format_ not in (None, binary) and binary is not None:
            raise InvalidInputError(
                f"{file.location} is {binary}, not {format_}.", hint="Give that."
            )
        return Recognized(format=format_ or binary or "parquet")
    if not head.strip(b"\0 \t\r\n"):
        if not is_whole:
            raise InvalidInputError(
                f"The first {len(head):,} bytes of {file.location} are blank, so its notation cannot be "
                "recognized.",
                hint="Remove the blank lines, or leave the file out.",
            )
        raise _EmptyError(
            InvalidInputError(
                f"{file.location} is empty{'' if not head else ': it has only blanks'}.",
                hint="Leave the file out, or give one with rows.",
            )
        )
    declared = {"csv": csv, "json": json}.get(format_ or "", {})
    if format_ == "csv" and declared.keys() >= _PARTS_OF_CSV:
        return Recognized(format="csv", csv=CsvOptions(**csv))
    if format_ == "json" and declared.keys() >= _PARTS_OF_JSON:
        return Recognized(format="json", json=JsonOptions(**json))
    encoding = declared.get("encoding") or _encoding_of(file, head)
    text = _decoded(head, encoding, is_whole=is_whole)
    return _of_text(file, text, format_, encoding, csv, json, first_lines, is_whole=is_whole)


def _of_text(
    file: RawFile,
    text: str,
    format_: FileFormat | None,
    encoding: str,
    csv: Mapping[str, Any],
    json: Mapping[str, Any],
    first_lines: set[str],
    *,
    is_whole: bool,
) -> Recognized:
    suffix = format_of(file.location)
    if format_ is None and suffix in ("avro", "parquet"):
        return Recognized(format=suffix)  # its reader names the error
    first = text.lstrip("\n\r").partition("\n")[0]
    is_other = (
        suffix == "submissions"
        and "\t" not in first
        and ("{" in first or any(map(_is_submission, text.split("\n"))))
    )
    if format_ == "submissions" or (format_ is None and (is_other or _is_submission(first))):
        return Recognized(format="submissions")
    if format_ == "json" or (format_ is None and (_is_json(text) or suffix == "json")):
        options, notes = _json_notation(file, text, encoding, json, is_whole=is_whole)
        if format_ is None and suffix == "csv" and is_whole and _is_object(text):
            raise InvalidInputError(
                f"{file.location} is one JSON object, not a table: {shown(text.strip()[:60])}.",
                hint="It may be an error of the service that wrote it. To read it as a row, give "
                "the format json.",
            )
        return Recognized(format="json", json=options, notes=notes)
    most_records = _FEW_RECORDS if first in first_lines else _MOST_RECORDS
    first_lines.add(first)
    with naming(file.location):
        options_, notes = sniff_csv(
            text, {**csv, "encoding": encoding}, is_whole=is_whole, most_records=most_records
        )
    if format_ is None and suffix == "submissions" and options_.delimiter not in text:
        return Recognized(format="submissions")  # no table: its reader rejects the lines
    if format_ is None and suffix is None and options_.delimiter not in text:
        raise InvalidInputError(
            f"Cannot recognize {file.location}: its suffix and its content name no format.",
            hint="Give the format by --format: csv, json, submissions, avro, parquet.",
        )
    return Recognized(format="csv", csv=options_, notes=notes)


def check_kind(head: bytes, location: str) -> None:
    """Check that a file is not of a kind that Lakebed does not read.

    Raises:
        InvalidInputError: It is; the message names the kind, and the hint what to do.
    """
    for magic, at, kind, hint in _FOREIGN:
        if head[at : at + len(magic)] == magic:
            if magic == b"PK\x03\x04" and (b"[Content_Types].xml" in head or b"xl/" in head):
                kind, hint = "an Excel workbook", "Save its sheets as CSV."
            raise InvalidInputError(f"{location} is {kind}.", hint=hint)
    text = head.removeprefix(codecs.BOM_UTF8)
    if _HTML.match(text):
        raise InvalidInputError(
            f"{location} is an HTML page: {shown(_first_words(text))}.",
            hint="It may be an error of the service that wrote it. Leave it out.",
        )
    if _XML.match(text):
        raise InvalidInputError(f"{location} is XML.", hint="Convert it to JSON lines or CSV.")


def _first_words(data: bytes) -> str:
    text = re.sub(r"<[^>]*>", " ", data[:2_000].decode(errors="replace"))
    return " ".join(text.split())[:60]


def _binary_format(head: bytes) -> FileFormat | None:
    if head.startswith(b"PAR1"):
        return "parquet"
    return "avro" if head.startswith(b"Obj\x01") else None


def _head(file: RawFile, size_bytes: int) -> tuple[bytes, bool]:
    """Return the first bytes of the text, and whether they are all; damage ends them.

    Raises:
        _EmptyError: The file is damaged from its begin on.
    """
    pieces: list[bytes] = []
    size = 0
    try:
        for piece in pieces_of(file.looked_at()):
            pieces.append(piece)
            size += len(piece)
            if size > size_bytes:
                break
    except DamageError as damage:
        if not pieces:
            error = InvalidInputError(
                f"No text of {file.location} can be read: {damage}",
                hint="Get the file again, or leave it out.",
            )
            raise _EmptyError(error) from damage
    data = b"".join(pieces)
    return data[:size_bytes], size <= size_bytes


def _encoding_of(file: RawFile, head: bytes) -> str:
    marked = marked_encoding(head)
    if marked is not None:
        return marked
    zeros = [head[start::2].count(0) for start in (0, 1)]
    for count, name in zip(zeros, ("utf-16-be", "utf-16-le"), strict=True):
        # Text of ASCII letters in UTF-16 has a zero in every second byte.
        if count > 0.3 * len(head) and count > 4 * min(zeros):
            return name
    if head.isascii():
        with reading(file.location):
            if _begins_as_ascii(file):  # which spares memory for all of it
                return "utf-8"
            head, _ = _head(file, _ENCODING_BYTES)
    return guess_encoding(head)


def _begins_as_ascii(file: RawFile) -> bool:
    """Return whether the text is ASCII as far as its encoding is looked for; damage ends it."""
    size = 0
    with (
        contextlib.suppress(DamageError),
        contextlib.closing(pieces_of(file.looked_at())) as pieces,
    ):
        for piece in pieces:
            size += len(piece)
            if not piece.isascii():
                return False
            if size > _ENCODING_BYTES:
                break
    return True


def guess_encoding(data: bytes) -> str:
    """Return utf-8 for bytes that are, but for a few; else cp1252, which includes Latin-1.

    >>> guess_encoding("Zoë".encode()), guess_encoding("Zoë".encode("latin-1"))
    ('utf-8', 'cp1252')
    """
    is_cut = len(data) >= SAMPLE_BYTES  # perhaps within a letter
    with contextlib.suppress(UnicodeDecodeError):  # letters are counted only where bytes are bad
        codecs.getincrementaldecoder("utf-8")().decode(data, final=not is_cut)
        return "utf-8"
    text = data.decode("utf-8", "surrogateescape")
    bad = sum(1 for letter in (text[:-3] if is_cut else text) if "\udc80" <= letter <= "\udcff")
    if not bad:
        return "utf-8"
    good = sum(1 for letter in text if letter > "\x7f") - bad
    return "utf-8" if good > bad else "cp1252"


def _decoded(head: bytes, encoding: str, *, is_whole: bool) -> str:
    """Return the text of a sample in whole lines, with newlines between them."""
    data = Transcoded(io.BytesIO(head), encoding, "\n").read(4 * len(head) + 4)
    text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace").rstrip("\0")
    if is_whole:
        return text
    end = max(text.rfind("\n"), text.rfind("\r"))
    return text[: end + 1] if end > 0 else text


def _is_submission(first: str) -> bool:
    uuid, tab, document = first.partition("\t")
    return bool(tab) and bool(uuid) and document.startswith("{") and _is_object(document)


def _is_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text.encode()), dict)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False


def _is_json(text: str) -> bool:
    """Return whether a text is JSON rather than CSV, whose cells may begin with braces, too."""
    begin = text.lstrip(" \t\r\n\x1e")
    return re.match(r'\{\s*("|\})|\[\s*(\{\s*["}]|\]\s*$)', begin) is not None


def _json_notation(
    file: RawFile, text: str, encoding: str, given: Mapping[str, Any], *, is_whole: bool
) -> tuple[JsonOptions, tuple[str, ...]]:
    given = {**given, "encoding": encoding}
    if "records" in given:
        return JsonOptions(**given), ()
    begin = text.lstrip(" \t\r\n")
    if begin.startswith("["):
        return JsonOptions(**{**given, "records": "array"}), ()
    lines = [line for line in begin.split("\n") if line.strip()]
    if begin.startswith("\x1e") or not (lines and _is_object(lines[0])):
        if not _begins_with_objects(begin):
            return JsonOptions(**given), ()  # the reader names the error of the first line
        given = {**given, "records": "concatenated"}
    elif len(lines) > 1 or not is_whole:
        return JsonOptions(**given), ()
    return _single(file, begin, given, is_whole=is_whole)


def _begins_with_objects(text: str) -> bool:
    options = JsonOptions(records="concatenated")
    first = next(objects_of(iter([text.encode()]), options), None)
    if first is None or (first.problem and not first.is_rest):
        return False
    return bool(first.problem) or _is_object(first.data.decode(errors="replace"))


def _single(
    file: RawFile, text: str, given: Mapping[str, Any], *, is_whole: bool
) -> tuple[JsonOptions, tuple[str, ...]]:
    """Return the notation of what may be one object around an array of them."""
    inside = _envelope(text) if not is_whole else None
    if is_whole:
        try:
            document = msgspec.json.decode(text.strip(" \t\r\n\x1e").encode())
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            document = None
        if isinstance(document, dict):
            arrays = [
                name
                for name, value in document.items()
                if isinstance(value, list) and value and all(isinstance(v, dict) for v in value)
            ]
            known = [name for name in arrays if name in _ENVELOPES]
            inside = known[0] if len(known) == 1 == len(arrays) else None
    if inside is None:
        return JsonOptions(**given), ()
    note = (
        f"{file.location} is an object whose {inside!r} holds the rows; its other members are left "
        "out."
    )
    return JsonOptions(**{**given, "records": "array", "inside": inside}), (note,)


def _envelope(text: str) -> str | None:
    """Return the member of a large object that is an array of objects, if it is a usual one."""
    match = re.search(rf'"({"|".join(_ENVELOPES)})"\s*:\s*\[\s*\{{', text)
    return match[1] if match else None


def sniff_csv(
    text: str,
    given: Mapping[str, Any],
    *,
    is_whole: bool,
    most_records: int = _MOST_RECORDS,
) -> tuple[CsvOptions, tuple[str, ...]]:
    """Find the notation of CSV.

    Args:
        text: The first lines.
        given: Properties that are known.
        is_whole: True if the text is the whole file.
        most_records: Number of records to look at.

    Returns:
        The notation, and remarks.
    """
    found: dict[str, Any] = {}
    if "line_end" not in given and "\n" not in text and "\r" in text:
        found["line_end"] = "\r"
    if {**found, **given}.get("line_end") == "\r":
        text = text.replace("\r", "\n")
    lines = text.split("\n")
    separator = _SEPARATOR_LINE.fullmatch(lines[0]) if "skip" not in given else None
    if separator is not None:
        found |= {"delimiter": separator[1], "skip": 1}
    base = CsvOptions(**{**found, **given})
    candidates = [
        (options, _sample(lines, options, most_records))
        for options in _candidates(text, base, {**found, **given})
    ]
    best, records = candidates[0]
    if len(candidates) > 1:
        best, records = max(candidates, key=lambda candidate: _score(candidate[1]))
    return _structure(lines, records, best, {**found, **given}, is_whole=is_whole)


def _candidates(text: str, base: CsvOptions, given: Mapping[str, Any]) -> Iterable[CsvOptions]:
    delimiters = [base.delimiter]
    if "delimiter" not in given:
        delimiters = [mark for mark in _DELIMITERS if mark in text] or [
            mark for mark in _RARE_DELIMITERS if mark in text
        ]
    for delimiter in delimiters or [","]:
        quotes = [base.quote]
        if "quote" not in given and f"{delimiter}'" in text.replace(" ", ""):
            quotes.append("'")
        for quote in quotes:
            escapes = [base.escape]
            if "escape" not in given and (f"\\{quote}" in text):
                # A quote before a letter neither ends a cell nor is doubled.
                is_proven = re.search(rf"\\{quote}[^\s{re.escape(delimiter)}{quote}]", text)
                escapes = ["\\", *escapes] if is_proven else [*escapes, "\\"]
            for escape in escapes:
                trims = [base.trim]
                if "trim" not in given and f"{delimiter} " in text and delimiter != " ":
                    trims.append(True)
                for trim in trims:
                    yield replace(base, delimiter=delimiter, quote=quote, escape=escape, trim=trim)


@dataclass(frozen=True, slots=True)
class _Record:
    number: int
    cells: tuple[str, ...]
    text: str


def _sample(lines: Sequence[str], options: CsvOptions, most: int) -> list[_Record]:
    """Return the first records that are whole, and not blank."""
    numbered = (
        Line(number, line.removesuffix("\r").encode("utf-8", "replace"))
        for number, line in enumerate(lines, 1)
    )
    bare = replace(options, has_header=False)
    records: list[_Record] = []
    splitter = Splitter(options)
    for record in records_of(numbered, bare):
        if len(records) >= most:
            break
        if record.problem or not record.data.strip():
            continue
        try:
            cells = tuple(cell or "" for cell in splitter.cells(record.data))
        except SchemaMismatchError:
            continue
        records.append(_Record(record.number, cells, record.data.decode()))
    return records


def _score(records: Sequence[_Record]) -> float:
    """Return how well a notation fits: records of one width, and cells that look like values."""
    body = [record for record in records if not record.text.startswith("#")] or records
    if not body:
        return 0.0
    width, count = _usual_width(body)
    share = count / len(body)
    cells = [cell for record in body[:200] if len(record.cells) == width for cell in record.cells]
    clean = sum(map(_cleanness, cells)) / max(1, len(cells))
    # One column is the last resort, since every text is one.
    return share * clean * (1 + min(width, 30) / 1_000) if width > 1 else 0.3 * clean


def _usual_width(records: Sequence[_Record]) -> tuple[int, int]:
    widths = Counter(len(record.cells) for record in records)
    return max(widths.items(), key=lambda item: (item[1] * (item[0] > 1), item[1]))


def _cleanness(cell: str) -> float:
    text = cell.strip()
    if text != cell and text:
        return 0.85
    if not text or text in NULL_WORDS:
        return 0.9
    if is_value(text):
        return 1.0
    # A quote without its other one: the text in quotes holds the mark that splits here.
    if text[0] in "\"'" or text[-1] in "\"'" or text.count('"') % 2:
        return 0.3
    if any(mark in text for mark in ";\t|"):
        return 0.6
    return 0.9


def _structure(
    lines: Sequence[str],
    records: list[_Record],
    options: CsvOptions,
    given: Mapping[str, Any],
    *,
    is_whole: bool,
) -> tuple[CsvOptions, tuple[str, ...]]:
    """Find comments, lines before the header, the header, and lines of another width."""
    notes: list[str] = []
    changes: dict[str, Any] = {}
    if "comment" not in given:
        comment = _comment_of(records)
        if comment:
            changes["comment"] = comment
            records = [record for record in records if not record.text.startswith(comment)]
    if not records:
        return replace(options, **changes), ()
    width, _ = _usual_width(records)
    begin = _begin_of_table(records, width)
    if options.delimiter == "," and "delimiter" not in given and _is_decimal_column(records):
        changes |= {"delimiter": ";", "decimal": ","}
        records = [replace(record, cells=(record.text,)) for record in records]
        width, begin = 1, 0
    is_name = False
    if begin and "skip" not in given:
        head = records[begin - 1]
        is_name = _names_codes(records, begin)
        if is_name or _names_fewer(head, records[begin:], width):
            begin -= 1
    if begin and "skip" not in given:
        _check_one_table(records[:begin], records[begin])
    if begin and ("skip" not in given or options.skip):
        changes["skip"] = max(options.skip, _line_before(lines, records[begin].number))
        texts = [record.text for record in records[:begin] if any(map(str.strip, record.cells))]
        notes.append(
            f"The table begins in line {records[begin].number}; lines before it are left out: "
            f"{', '.join(shown(text[:60]) for text in texts[-_MOST_LINES_BEFORE:])}."
        )
    table = records[begin:]
    if "has_header" not in given:
        has_header, is_two = (True, False) if is_name else _find_header(table)
        if is_two and "skip" not in given and "names" not in given:
            first, second = table[0].cells, table[1].cells
            names = {
                f"column_{number}": legal_name(above)
                for number, (above, name) in enumerate(zip(first, second, strict=False), 1)
                if legal_name(above) and not name.strip()
            }
            if (
                names
                and len(set(names.values()) | set(second)) >= len(names) + len(set(second)) - 1
            ):
                changes["names"] = names
            changes["skip"] = _line_before(lines, table[1].number)
            notes.append(
                f"Two lines look like a header: names come from line {table[1].number}, and line "
                f"{table[0].number} is left out: {shown(table[0].text[:60])}."
            )
            table = table[1:]
        if has_header and "skip" not in given and "names" not in {**given, **changes}:
            names = _annotated_names(table)
            if names:
                changes |= {"names": names, "skip": _line_before(lines, table[1].number)}
                notes.append(
                    f"Line {table[1].number} has remarks on names of line {table[0].number}, and "
                    f"belongs to the header: {shown(table[1].text[:60])}."
                )
                table = table[1:]
        if not has_header:
            changes["has_header"] = False
            if table and "skip" not in given and table[0].number > 1 and not changes.get("skip"):
                changes["skip"] = _line_before(lines, table[0].number)
    if "skip_empty" not in given and width > 2:  # in narrower tables they may be rows of nulls
        signs = f" \t{options.delimiter}"
        empty = [record for record in table[1:] if not record.text.strip(signs)]
        above = [record for record in records[:begin] if not record.text.strip(signs)]
        changes["skip_empty"] = bool(above) or len(empty) > 1
        if empty and changes["skip_empty"]:
            table = [record for record in table if record not in empty]
            notes.append(f"{counted(len(empty), 'line')} hold no value, and are left out.")
    if "ragged" not in given:
        header = len(table[0].cells) if table else width
        odd = [record for record in table[1:] if len(record.cells) != header]
        if odd and all(_fits_filled(record, header) for record in odd):
            changes["ragged"] = "fill"
            notes.append(
                f"{counted(len(odd), 'line')} of {len(table) - 1:,} have another number of cells than "
                f"the {header} of the header: missing cells are null, empty ones beyond are left out."
            )
    if is_whole and len(table) == 1 and changes.get("has_header", options.has_header):
        notes.append("There is a header and no row.")
    return replace(options, **changes), tuple(notes)


_MOST_LINES_BEFORE = 5  # of one width, which are then a table of their own


def _check_one_table(before: Sequence[_Record], begin: _Record) -> None:
    """Check that the lines before a table are not another table.

    Raises:
        InvalidInputError: They are.
    """
    widths = Counter(len(record.cells) for record in before if any(map(str.strip, record.cells)))
    width, count = max(widths.items(), key=lambda item: item[1] * (item[0] > 1), default=(1, 0))
    if width > 1 and count > _MOST_LINES_BEFORE:
        raise SchemaMismatchError(
            f"There are several tables: {count:,} lines from line {before[0].number} on have "
            f"{counted(width, 'cell')}, but those from line {begin.number} on {len(begin.cells)}.",
            hint="Put each table into a file of its own; or name the lines to leave out by skip.",
        )


def _line_before(lines: Sequence[str], number: int) -> int:
    """Return the number of lines before a record, without blank ones that lead to it."""
    return number - 1 if any(line.strip() for line in lines[: number - 1]) else 0


def _comment_of(records: Sequence[_Record]) -> str:
    """Return the beginning of lines that are remarks; empty if there are none."""
    for mark in _COMMENTS:
        marked = [record for record in records if record.text.startswith(mark)]
        others = [record for record in records if not record.text.startswith(mark)]
        if not marked or len(others) < 2:
            continue
        width, _ = _usual_width(others)
        is_first = [record.number for record in marked] == [records[0].number]
        if is_first and len(marked[0].cells) == width and len(others[0].cells) == width:
            continue  # it may be the header
        if all(len(record.cells) != width for record in marked) or _is_first_column_typed(others):
            return mark
    return ""


def _is_first_column_typed(records: Sequence[_Record]) -> bool:
    cells = [record.cells[0] for record in records[1:]]
    return bool(cells) and all(is_value(cell) for cell in cells)


def is_value(text: str) -> bool:
    """Return whether a text is a number, a date, a time or a boolean."""
    text = text.strip()
    return bool(text) and (
        kind_of_text(text) is not Kind.STRING
        or is_formed_number(text)
        or _LOOSE_NUMBER.fullmatch(text) is not None
        or bool(formats_of_date(text))
    )


def _is_decimal_column(records: Sequence[_Record]) -> bool:
    head, *body = records
    return (
        len(head.cells) == 1
        and bool(body)
        and all(re.fullmatch(r"-?\d+,\d+", record.text) for record in body)
    )


def _begin_of_table(records: Sequence[_Record], width: int) -> int:
    """Return the position of the first record of the table, which names its columns or is a row."""
    for position, record in enumerate(records):
        following = records[position + 1 : position + 6]
        is_wide = len(record.cells) == width
        usual = sum(1 for other in following if len(other.cells) == width)
        if not is_wide or 2 * usual < len(following):
            continue
        if not _is_above_table(record, records[position + 1 :], width):
            return position
    return 0


def _is_above_table(record: _Record, following: Sequence[_Record], width: int) -> bool:
    """Return whether a line of a spreadsheet has as many cells as the table, but few with text."""
    filled = [cell for cell in record.cells if cell.strip()]
    if not filled:
        return True
    counts = [sum(1 for cell in other.cells if cell.strip()) for other in following[:20]]
    counts = sorted(count for count in counts if count)
    return (
        width > 1
        and bool(counts)
        and len(filled) <= max(1, width // 4)
        and record.cells[0].strip() != ""
        and not any(map(is_value, filled))
        and counts[len(counts) // 2] > len(filled)
    )


def _names_fewer(head: _Record, table: Sequence[_Record], width: int) -> bool:
    """Return whether the line before the table names all of its columns but empty ones."""
    count = len(head.cells)
    return (
        2 <= count < width
        and all(cell.strip() and not is_value(cell) for cell in head.cells)
        and len(set(head.cells)) == count
        and all(not any(cell.strip() for cell in record.cells[count:]) for record in table)
    )


_DIGITS = re.compile("[0-9]+")


def _names_codes(records: Sequence[_Record], begin: int) -> bool:
    """Return whether the line before the table names its first column, a column of codes.

    The line follows a blank one, and the first line of the table has a code as the lines below do:
    so it is a row.
    """
    head, above, first = (
        records[begin - 1],
        records[begin - 2] if begin > 1 else None,
        records[begin],
    )
    if above is None or any(map(str.strip, above.cells)) or not head.cells[0].strip():
        return False
    codes = [_DIGITS.sub("0", record.cells[0]) for record in records[begin : begin + 4]]
    return (
        not any(map(str.strip, head.cells[1:]))
        and len(codes) > 3
        and len(set(codes)) == 1
        and "0" in codes[0]
        and len({record.cells[0] for record in records[begin : begin + 4]}) == 4
        and not is_value(first.cells[0])
    )


def _annotated_names(table: Sequence[_Record]) -> dict[str, str]:
    """Return names for a second line that has only remarks on few names, such as units; else none."""
    if len(table) < 5:
        return {}
    first, second, body = table[0].cells, table[1].cells, table[2:]
    filled = [place for place, cell in enumerate(second) if cell.strip()]
    is_narrow = len(first) < 4 or len(first) != len(second)
    if is_narrow or not filled or not filled[0] or len(filled) > max(1, len(first) // 4):
        return {}
    for place in filled:
        column = [r.cells[place].strip() for r in body if place < len(r.cells)]
        column = [text for text in column if text and text not in NULL_WORDS]
        remark = second[place].strip()
        if is_value(remark) or remark in NULL_WORDS or not column or not all(map(is_value, column)):
            return {}
    names = {
        legal_name(second[place]) if place in filled else f"column_{place + 1}": legal_name(
            f"{name} {second[place]}" if place in filled else name
        )
        for place, name in enumerate(first)
    }
    begun = sum(1 for record in body if record.cells[0].strip())
    is_clear = len(names) == len(set(names.values())) == len(first) and all(names.values())
    return names if is_clear and 2 * begun > len(body) else {}


def _fits_filled(record: _Record, width: int) -> bool:
    return not any(cell.strip() for cell in record.cells[width:]) and len(record.cells) > width // 4


def _find_header(table: Sequence[_Record]) -> tuple[bool, bool]:
    """Return whether the first record names the columns, and whether the second does so too."""
    if len(table) == 1:
        cells = [cell for cell in table[0].cells if cell.strip()]
        return not any(is_value(cell) for cell in cells), False
    if len(table) > 3 and _is_second_header(table):
        return True, True
    first, body = table[0], table[1:]
    if _are_years(first.cells) or (_is_quoted(first) and not any(map(_is_quoted, body))):
        return True, False
    names, values = 0, 0.0
    for place, cell in enumerate(first.cells):
        column = [r.cells[place].strip() for r in body if place < len(r.cells)]
        column = [text for text in column if text and text not in NULL_WORDS]
        if not column:
            continue
        typed = sum(map(is_value, column)) / len(column)
        if typed > 0.8:  # a few texts in a column of numbers make it no column of names
            if is_value(cell):
                values += 1
            elif cell.strip() and cell.strip() not in NULL_WORDS:
                names += 1
        elif typed < 0.2 and is_value(cell):
            values += 1
        elif cell.strip() and cell.strip() in column[:200] and len(set(column)) > 1:
            values += 0.5
    if names or values:
        return names >= values, False
    return len(set(first.cells)) == len(first.cells) or not all(first.cells), False


def _is_quoted(record: _Record) -> bool:
    """Return whether each of several cells is in quotes, as names are where numbers have none."""
    text = record.text.strip()
    is_quoted = text[:1] == text[-1:] == '"'
    return is_quoted and text.count('"') == 2 * len(record.cells) > 2


def _are_years(cells: Sequence[str]) -> bool:
    """Return whether the numbers among the names are years in order, as of a table by year."""
    numbers = [int(cell) for cell in cells if re.fullmatch(r"(1[89]|20)\d\d", cell.strip())]
    others = [cell for cell in cells if is_value(cell) and not re.fullmatch(r"\d{4}", cell.strip())]
    return len(numbers) >= 2 and not others and numbers == sorted(set(numbers))


def _completes(first: _Record, second: _Record, body: Sequence[_Record]) -> bool:
    """Return whether the second line has names where the first one, which has others, has none."""
    pairs = list(zip(first.cells, second.cells, strict=False))
    filled = [below for _, below in pairs if below.strip()]
    gaps = sum(1 for above, below in pairs if below.strip() and not above.strip())
    begun = sum(1 for record in body if record.cells[0].strip())
    return (
        not second.cells[0].strip()
        and bool(first.cells[0].strip())
        and gaps >= 2
        and not any(map(is_value, (*filled, *filter(None, first.cells))))
        and 2 * begun > len(body)
    )


def _is_second_header(table: Sequence[_Record]) -> bool:
    """Return whether the first line groups columns, which the second line names."""
    first, second, body = table[0], table[1], table[2:]
    if _completes(first, second, body):
        return True
    is_grouping = len(set(first.cells)) < len(first.cells)
    broken = 0
    for place, cell in enumerate(second.cells):
        column = [r.cells[place] for r in body if place < len(r.cells) and r.cells[place].strip()]
        if column and all(map(is_value, column)):
            if is_value(cell) or not cell.strip():
                return False
            broken += 1
    return is_grouping and broken >= 2
