"""Generated raw files with everything that files from outside have had: some rows fit, others do not."""

import datetime as dt
import gzip
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lakebed import CsvOptions
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.schema import (
    MISSING,
    SMALLINT,
    TINYINT,
    Decimal,
    Field,
    Kind,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
    Type,
)

LONG, TEXT = Primitive(Kind.LONG), Primitive(Kind.STRING)
FLAT: dict[str, Type] = {
    "l": LONG,
    "i": Primitive(Kind.INT),
    "i1": TINYINT,
    "i2": SMALLINT,
    "u": Primitive(Kind.UNSIGNED_LONG),
    "d": Primitive(Kind.DOUBLE),
    "f": Primitive(Kind.FLOAT),
    "s": TEXT,
    "b": Primitive(Kind.BOOLEAN),
    "y": Primitive(Kind.DATE),
    "t": Primitive(Kind.TIMESTAMP),
    "n": Primitive(Kind.TIMESTAMP_NTZ),
    "m": Decimal(9, 2),
    "q": Decimal(3, 3),
}
NESTED: dict[str, Type] = {
    "z": Primitive(Kind.BYTES),
    "ll": ListOf(LONG),
    "lr": ListOf(Struct((Field(name="x", type=LONG),)), element_nullable=False),
    "r": Struct((Field(name="x", type=LONG), Field(name="w", type=TEXT, nullable=False))),
    "rd": Struct((Field(name="x", type=LONG, default=5), Field(name="at", type=FLAT["t"]))),
    "mm": MapOf(Primitive(Kind.DOUBLE)),
    "mk": MapOf(TEXT, key=LONG),
}
GOOD = {
    "l": ["0", "1", "-5", "123456789012345678", "7"],
    "i": ["0", "42", "-2147483648", "2147483647"],
    "i1": ["0", "42", "-128", "127", "-99"],
    "i2": ["0", "-32768", "32767", "999"],
    "u": ["0", "18446744073709551615", "9"],
    "d": ["0.5", "1.25", "-3", "1e5", "0.1", "123456.789", "1E-7", "0.30000000000000004"],
    "f": ["0.5", "0.1", "16777217", "1e10"],
    "s": ["abc", "x y", "ä€😀", "note, with", "0", "Information"],
    "b": ["true", "false"],
    "y": ["2024-02-29", "1969-12-31", "0001-01-01", "9999-12-31"],
    "t": [
        "2024-01-01T00:00:00Z",
        "2024-06-01T12:30:45.123456Z",
        "1969-12-31T23:59:59Z",
        "2024-01-01T00:00:00+02:00",
    ],
    "n": ["2024-01-01T00:00:00", "1900-05-05 01:02:03.5"],
    "m": ["1.25", "0", "-1234567.89", "5.5"],
    "q": ["0.125", "0", "-0.5"],
}
FORMATS = [
    *("%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d-%b-%Y", "%d %B %Y", "%d/%m/%Y %H:%M"),
    *("%m/%d/%Y %I:%M:%S %p", "%d.%m.%Y %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S", "%d/%m/%y"),
]
_LARGEST = str(int(1.7976931348623157e308))  # the digits of the largest double
WILD = [
    *("", " ", "NA", "null", "NULL", "NaN", "nan", "Infinity", "-Infinity", "inf", "+1", "01"),
    *("007", "-0", "-0.0", "0x1F", "1.0", "1e3", "1e999", "1e-400", "9007199254740993"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809"),
    *("18446744073709551616", "123456789012345678901234567890", "0.12345678901234567890"),
    *("2.2250738585072011e-308", _LARGEST, "1,5", "1_000", "5.", ".5", "1.255", "12345678.9"),
    *("1 ", " 1", "true", "True", "TRUE", "1", "0", "yes", "2024-02-30", "2024-2-3", "20240101"),
    *("2024-W01-1", "0000-01-01", "10000-01-01", "2024-01-01", "2024-01-01T00Z"),
    *("2024-01-01T00", "2024-01-01 00:00", "2024-01-01T00:00:00", "2024-01-01T00:00:00+0200"),
    *("2024-01-01T00:00:00.123456789Z", "2024-01-01T00:00:00.100000000Z"),
    *("2024-01-01T00:00:00+02", "2024-01-01T24:00:00Z", "2024-01-01T23:59:60Z"),
    *("0001-01-01T00:00:00+02:00", "9999-12-31T23:59:59-02:00", "0000-01-01T00:00:00Z"),
    *("2024-01-01x00:00:00", "2024-01-01T00:00:00 Z", "2024-01-01T00:00:00z"),
    *(" 2024-01-01T00:00:00Z ", "2024-01-01T00:00:00,5Z", "2024-01-01T00:00:00+24:00"),
    *("2024-01-01T00:00:00+02:00:30", "NUL\x00", "\u2028", "\ufeff", "'", "\\", "\\N", 'a\\"b'),
    *("\uff15", "1\u00a0", "\x7f", "1.5e", "--1", "1e5 ", "\u0661"),
]
EDGE = {
    "t": [
        *("0001-01-01T00:00:00+02:00", "9999-12-31T23:59:59-02:00", "0000-01-01T00:00:00Z"),
        *("2024-01-01T00Z", "2024-01-01T00+0200", "2024-01-01T00+02:00", "2024-01-01"),
    ],
    "n": ["0000-01-01T00:00:00", "2024-01-01T00:00:00Z", "2024-01-01T00"],
    "y": ["0000-01-01", "2024-02-30"],
    "f": ["1e39", "3.4028236e38", "-1e39", "1e-50", "16777217.0000001"],
    "m": ["1e2", "0.30", "1.005", "12345678.90"],
    "q": ["1.125", "0.1250", "00.125"],
    "d": ["-0", "1e999", "9007199254740993"],
    "l": ["9223372036854775808", "-0", "1.0", "+1"],
    "i1": ["128", "-129", "99.0", "1e1", "300"],
    "i2": ["32768", "-32769", "9999.0", "65536"],
}
# Arrow reads these, but their types hold them in another form.
CHANGED = {
    **dict.fromkeys(("l", "i", "i1", "i2", "u"), ("007", "01", "00")),
    **dict.fromkeys(("d", "f"), ("007.5", "0.12345678901234567890", "9007199254740993", "1E5")),
    "b": ("1", "0"),
}
_ODD_VALUES = [
    *("null", "1", "-0", "1.0", "1.5", '"x"', "true", "[]", "{}", "[1]", '{"x":1,"w":"a"}'),
    *('"\\ud800"', '"\\udc00"', '"\\ud83d\\ude00"', '"a\\u0000b"', '"\\/\\b"', "NaN"),
    *("Infinity", "Inf", "01", "+1", '"\\x"', "nul", "tru", "'a'", "1e400", '"NaN"'),
    *("123456789012345678901234567890", "9007199254740993", '"2024-01-01T00:00:00Z"'),
]
_NESTED_VALUES = {
    "z": ['"YQ=="', '"//8="', '"x"', "null"],
    "ll": ["[]", "[1,2]", "[null]", "[1.5]", "null"],
    "lr": ["[]", '[{"x":1}]', "[{}]", "[null]", '[{"x":1,"y":2}]', "null"],
    "r": ['{"x":1,"w":"a"}', '{"w":"b"}', '{"x":1}', '{"x":1,"w":"a","v":2}', "null"],
    "rd": ['{"x":1,"at":"2024-01-01T00:00:00Z"}', "{}", '{"at":"?"}', '{"x":null}', "null"],
    "mm": ["{}", '{"a":1.5,"b":2}', '{"a":-0}', '{"a":null}', '{"a":1,"a":2}', "null"],
    "mk": ["{}", '{"1":"a"}', '{"1":"a","01":"b"}', '{"x":"a"}', '{"2":null}', "null"],
}
_OTHER_VALUES = ["1", '"a"', "null", "[]", '{"deep":[1,{"a":null}]}', "NaN", '"\\ud800"', "1e999"]
_ODD_BYTES = [b"\xff", b"\x00", b"\xed\xa0\x80", b'"', b"\r", b"\xc3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NastyFiles:
    """Files to read into a dataset.

    Attributes:
        descriptor: Descriptor of the dataset.
        csv: Notation of CSV files.
        unknown: Rule for fields that the dataset lacks.
        contents: Bytes of each file, by its name.
    """

    descriptor: DatasetDescriptor
    csv: CsvOptions
    unknown: str
    contents: dict[str, bytes]


def nasty_files(file_format: str, seed: int) -> NastyFiles:
    """Return generated files of a format."""
    return _Generator(file_format, random.Random(seed)).files()


class _Generator:
    def __init__(self, file_format: str, chance: random.Random) -> None:
        self._format = file_format
        self._chance = chance
        self._wild = chance.choice([0, 0.003, 0.02, 0.1, 0.4])  # share of what may not fit
        self._breaks = chance.choice([0, 0, 0, 0.03, 0.15])  # share of lines of an odd end
        self._changed = 0.0  # share of numbers that an exact notation rejects
        self._notation = CsvOptions()
        self._focus = ""  # the only column that may not fit: the rows are whole otherwise

    def files(self) -> NastyFiles:
        chance = self._chance
        types = FLAT if self._format == "csv" else FLAT | NESTED
        names = chance.sample(sorted(types), chance.randint(1, min(6, len(types))))
        self._focus = chance.choice(["", "", *names[:2]])
        if self._focus:
            self._wild = 0
        fields = [self._field(name, types[name]) for name in names]
        if self._format == "submissions":
            fields[:0] = [
                Field(name=name, type=TEXT, nullable=False)
                for name in ("uuid", "document")
                if chance.random() < 0.5
            ]
        descriptor = DatasetDescriptor(schema=Schema(fields=tuple(fields)))
        csv = CsvOptions(
            has_header=chance.random() < 0.85,
            delimiter=chance.choice([",", ",", ",", ";", "\t", "|", " "]),
            null_text=chance.choice(["", "NA", "null"]),
            exact=chance.random() < 0.4,
        )
        if self._format == "csv" and chance.random() < 0.6:
            csv = self._with_notation(csv, names)
        suffix = {"csv": "csv", "json": "json", "submissions": "tsv"}[self._format]
        if csv.exact and self._format == "csv":
            self._changed = chance.choice([0, 0.03, 0.2])
        contents = {}
        for number in range(chance.choice([1, 1, 3])):
            name, data = f"f{number}.{suffix}", self._spoiled(self._content(fields, csv))
            if chance.random() < 0.1:
                name, data = f"{name}.gz", gzip.compress(data)
                if chance.random() < 0.5:
                    data = data[: chance.randrange(len(data))]
            contents[name] = data
        unknown = chance.choice(["reject", "reject", "ignore", "keep"])
        return NastyFiles(descriptor=descriptor, csv=csv, unknown=unknown, contents=contents)

    def _with_notation(self, csv: CsvOptions, names: Sequence[str]) -> CsvOptions:
        """Return a notation with what inspections of files find."""
        chance = self._chance
        decimal, thousands = chance.choice([(".", "")] * 6 + [(",", "."), (".", ","), (",", "")])
        self._notation = replace(
            csv,
            nulls=chance.choice([(), ("NA",), ("-", "NA", "null", "?")]),
            ragged=chance.choice(["reject", "fill"]),
            dates={
                name: chance.choice(FORMATS)
                for name in names
                if name in "ytn" and chance.random() < 0.6
            },
            time_zone=chance.choice(["", "", "Europe/Berlin"]),
            decimal=decimal,
            thousands=thousands,
        )
        return self._notation

    def _in_notation(self, name: str, text: str) -> str:
        """Return a good text in another notation than the plain one."""
        chance, csv = self._chance, self._notation
        if csv.nulls and chance.random() < 0.1:
            return chance.choice([*csv.nulls, f" {csv.nulls[0]} "] if self._wild else csv.nulls)
        if name in csv.dates and chance.random() < 0.98:
            format_, year = csv.dates[name], chance.choice([1000, 1969, 2024, 9999])
            text = dt.datetime(
                year,
                chance.randint(1, 12),
                chance.randint(1, 28),
                chance.randint(0, 23),
                chance.choice([0, 7, 59]),
                chance.choice([0, 5, 59]),
                chance.choice([0, 120_000, 7]),
            ).strftime(format_)
            if "." in format_ and chance.random() < 0.3:
                text = text.rstrip("0")
            if chance.random() < self._wild:
                text = text.replace(chance.choice(" 0123456789"), chance.choice(" 0123456789x"), 1)
            return text
        if name in "dfmq" and chance.random() < 0.8:
            text = text.replace(".", csv.decimal)
        if name in "lidm" and csv.thousands and chance.random() < 0.2:
            text = chance.choice(["1{}234", "-12{}345{}678", "1{}23"]).format(*[csv.thousands] * 2)
        return text

    def _field(self, name: str, kind: Type) -> Field:
        chance = self._chance
        default: object = MISSING
        if name in "lis" and chance.random() < 0.2:
            default = {"l": 7, "i": 3, "s": "dflt"}[name]
        return Field(name=name, type=kind, nullable=chance.random() < 0.8, default=default)

    def _content(self, fields: Sequence[Field], csv: CsvOptions) -> bytes:
        names = [field.name for field in fields if field.name not in ("uuid", "document")]
        if self._format == "csv":
            return self._csv_file(names, csv)
        return self._lines_file(names, are_submissions=self._format == "submissions")

    def _cell(self, name: str, wild: float) -> str:
        chance = self._chance
        if self._focus:
            wild = 0.3 * (name == self._focus)
        if self._changed and name in CHANGED and chance.random() < self._changed:
            return chance.choice(CHANGED[name])
        if chance.random() < wild:
            return chance.choice(EDGE[name] if name in EDGE and chance.random() < 0.5 else WILD)
        text = chance.choice(GOOD[name]) if chance.random() < 0.95 else ""
        return self._in_notation(name, text) if self._notation != CsvOptions() else text

    def _csv_cell(self, text: str, delimiter: str, many_lines: float) -> str:
        chance = self._chance
        is_odd = chance.random() < 0.1
        if chance.random() < many_lines:
            more = ["\nsecond line", "\n", "\n\n", "\r\nx", "\n1,2,3\n", "\rx", '\n"quoted"']
            text += chance.choice(more)
        if not is_odd and not any(sign in text for sign in (delimiter, '"', "\n", "\r")):
            return text
        quoted = '"' + text.replace('"', '""') + '"'
        if chance.random() >= self._wild * 0.5:
            return quoted
        bare = text.replace("\n", " ")
        return chance.choice(
            [f"{quoted} ", f'"{text}', f'{text}"', f'"{text}"x', f' "{bare}"', bare, f'5" {bare}']
        )

    def _csv_file(self, names: list[str], csv: CsvOptions) -> bytes:
        chance, wild, delimiter = self._chance, self._wild, csv.delimiter
        if chance.random() < 0.3:
            chance.shuffle(names)
        if chance.random() < 0.15:
            names.append(chance.choice(["extra", "ignored"]))
        many_lines = chance.choice([0, 0, 0.02, 0.2])
        newline = chance.choice(["\n"] * 4 + ["\r\n"])
        lines = [delimiter.join(names)] if csv.has_header else []
        for _ in range(chance.choice([0, 1, 3, 10, 40, 120])):
            row = [
                self._csv_cell(
                    self._cell(name if name in FLAT else "s", wild),
                    delimiter,
                    many_lines if FLAT.get(name, TEXT) == TEXT else 0,
                )
                for name in names
            ]
            share = chance.random()
            if csv.ragged == "fill" and chance.random() < 0.05:
                row = chance.choice([row[:1], row[:-1], [*row, ""], [*row, " ", ""], [*row, '""']])
            elif share < wild * 0.2:
                row = row[:-1]
                if row and chance.random() < 0.3:
                    row[0] += "\udcff"  # not UTF-8, in a row that lacks a cell
            elif share < wild * 0.3:
                row.append("more")
            elif share < wild * 0.4:
                row = chance.choice([[""], ["  "], ["\t"], ["\x0c"]])
            lines.append(delimiter.join(row))
        odd_ends = ["\r", "\n", "\r\n", "\n\n", "\r\n\r\n", "\r\r\n", "\n \n"]
        text = chance.choice([*[""] * 12, "\n", "\r\n\n", " \n", "\r"])
        for line in lines:
            is_odd = chance.random() < max(wild * 0.02, self._breaks)
            text += line + (chance.choice(odd_ends) if is_odd else newline)
        if chance.random() < 0.08:  # a quote that nothing ends
            text += chance.choice(['"', 'x,"y', f'"a{delimiter}b\nc\n\nd'])
        return text.encode("utf-8", "surrogateescape")

    def _json_text(self, name: str, text: str) -> str:
        chance = self._chance
        if name in "lidfumq" and chance.random() < 0.95:
            return text or "null"
        if name == "b":
            return text or "null"
        if not text and chance.random() < 0.5:
            return "null"
        return json.dumps(text, ensure_ascii=chance.random() < 0.5)

    def _json_value(self, name: str) -> str:
        chance = self._chance
        wild = 0.3 * (name == self._focus) if self._focus else self._wild
        if chance.random() < wild * 0.5:
            return chance.choice(_ODD_VALUES)
        if name in GOOD:
            return self._json_text(name, self._cell(name, wild * 0.5))
        values = _NESTED_VALUES.get(name, _OTHER_VALUES)
        return values[0] if chance.random() > max(wild, 0.5) else chance.choice(values)

    def _json_line(self, fields: Sequence[str]) -> str:
        chance, wild = self._chance, self._wild
        names = [name for name in fields if chance.random() > wild * 0.2]
        if chance.random() < 0.2:
            chance.shuffle(names)
        if chance.random() < wild * 0.3:
            names.append(chance.choice(["extra", "ignored", "more"]))
        if names and chance.random() < wild * 0.1:
            names.append(chance.choice(names))
        between, colon = chance.choice([(",", ":"), (", ", ": ")])
        members = []
        for name in names:
            key = json.dumps(name)
            if chance.random() < wild * 0.05:
                key = '"' + "".join(f"\\u{ord(letter):04x}" for letter in name) + '"'
            members.append(f"{key}{colon}{self._json_value(name)}")
        text = "{" + between.join(members) + "}"
        if chance.random() >= wild * 0.3:
            return text
        middle = len(text) // 2
        return chance.choice(
            [
                *(text + text, text + " " + text, text[:middle] + "\n" + text[middle:], text[:-1]),
                *(text + ",", "[" + text + "]", "null", "", "   ", "\t", "[]", "1", '"x"'),
                *(text + " null", text + "/*c*/", " " + text + " ", text + "\r", text + "\x0c"),
                *("\ufeff" + text, text.replace(",", ",\r"), text[:-1] + ",}", "{" + text),
                *(text.replace('"', "'"), text + "\x00", "\x00", "garbage"),
            ]
        )

    def _lines_file(self, fields: Sequence[str], *, are_submissions: bool) -> bytes:
        chance, wild = self._chance, self._wild
        count = chance.choice([0, 1, 3, 10, 40, 120])
        lines = [self._json_line(fields) for _ in range(count)]
        if are_submissions:
            odd = ["", "\t", "a\tb\t", "ä\t", "u\r\t", " \t"]
            for number, line in enumerate(lines):
                begin = f"id{number}\t"
                if chance.random() < max(wild, 0.05):
                    begin = chance.choice(["u" * chance.randint(1, 5) + "\t"] * 20 + odd)
                lines[number] = begin + line
        newline = chance.choice(["\n"] * 4 + ["\r\n"])
        return "".join(line + newline for line in lines).encode("utf-8", "surrogatepass")

    def _spoiled(self, content: bytes) -> bytes:
        """Return a content with some bytes spoiled, a begin or an end of another form."""
        chance, wild = self._chance, self._wild
        data = bytearray(content)
        while data and chance.random() < wild * 0.3:
            at = chance.randrange(len(data))
            data[at:at] = chance.choice(_ODD_BYTES)
        content = bytes(data)
        if chance.random() < 0.3:
            content = content[:-1]
        if chance.random() < 0.1:
            content = b"\xef\xbb\xbf" + content
        is_cut = chance.random() < wild * 0.1
        return content[: chance.randrange(len(content) + 1)] if is_cut else content
