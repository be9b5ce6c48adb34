"""Functions of texts and bytes."""

from __future__ import annotations

from lakebed.model.formulas.functions_base import FunctionCall, SqlFunction, declarer, simple, taken
from lakebed.model.formulas.functions_values import decode_choice
from lakebed.model.formulas.typed import (
    BOOLEAN,
    BYTES,
    INT,
    TEXT,
    Typed,
    is_whole,
    joined,
    places,
)
from lakebed.model.schema import ListOf

declare = declarer("Texts and bytes")


def _concat(call: FunctionCall) -> Typed:
    values = call.values(0, 1_000)
    if values and all(isinstance(value.type, ListOf) for value in values):
        values = call.compiler.in_one_type(values, call.node)
        return joined(_chain(values), values, values[0].type)
    if values and all(value.type == BYTES for value in values):
        return joined(_chain(values), values, BYTES)
    texts = [taken(value, "text", call) for value in values]
    return joined("('' || " + _chain(texts) + ")" if texts else "''", texts, TEXT)


def _chain(values: list[Typed]) -> str:
    return "(" + " || ".join(f"{{{number}}}" for number in range(len(values))) + ")"


def _concat_ws(call: FunctionCall) -> Typed:
    separator, *values = [
        value if isinstance(value.type, ListOf) else taken(value, "text", call)
        for value in call.values(1, 1_000)
    ]
    if any(value.type not in (TEXT, ListOf(TEXT)) for value in (separator, *values)):
        raise call.refused("it takes texts and arrays of texts")
    lists = ", ".join(
        f"{{{number}}}" if isinstance(value.type, ListOf) else f"[{{{number}}}]"
        for number, value in enumerate(values, 1)
    )
    if not any(isinstance(value.type, ListOf) for value in values):
        return joined(
            f"concat_ws({places([separator, *values])}, NULL)", [separator, *values], TEXT
        )
    template = f"list_concat(CAST([] AS VARCHAR[]), {lists})"
    if isinstance(separator.constant, str):
        template = f"coalesce(array_to_string({template}, {{0}}), '')"
    else:
        template = f"lakebed_joined({{0}}, {template})"
    return joined(template, [separator, *values], TEXT)


def _of_text_or_bytes(of_text: str, of_bytes: str) -> SqlFunction:
    """Return a function to a number of a text, or of bytes."""

    def call_it(call: FunctionCall) -> Typed:
        (value,) = call.values(1)
        if value.type == BYTES:
            return joined(of_bytes, [value], INT)
        return joined(of_text, [taken(value, "text", call)], INT)

    return call_it


def _hex(call: FunctionCall) -> Typed:
    (value,) = call.values(1)
    if value.type == BYTES or not is_whole(value.type):
        return joined(
            "hex({0})", [value if value.type == BYTES else taken(value, "text", call)], TEXT
        )
    return joined("hex({0})", [taken(value, "bigint", call)], TEXT)


def _trim(name: str) -> SqlFunction:
    """Return a function that takes letters off a text: spaces, or those of its first argument."""

    def call_it(call: FunctionCall) -> Typed:
        texts = [taken(value, "text", call) for value in call.values(1, 2)]
        if len(texts) == 1:
            return joined(f"{name}({{0}}, ' ')", texts, TEXT)
        return joined(f"{name}({{1}}, {{0}})", texts, TEXT)

    return call_it


def _elt(call: FunctionCall) -> Typed:
    number, *values = call.values(2, 1_000)
    number = taken(number, "int", call)
    if all(value.type == BYTES for value in values):
        raise call.refused("of bytes")
    texts = [taken(value, "text", call) for value in values]
    branches = " ".join(f"WHEN {place} THEN {{{place}}}" for place in range(1, len(values) + 1))
    template = (
        f"CASE {{0}} {branches} ELSE CASE WHEN {{0}} IS NOT NULL THEN "
        "error('there is no value of this number') END END"
    )
    return joined(template, [number, *texts], TEXT, raises=True)


def _levenshtein(call: FunctionCall) -> Typed:
    values = call.values(2, 3)
    parts = [taken(value, "text", call) for value in values[:2]]
    distance = joined("CAST(spark_levenshtein({0}, {1}) AS INTEGER)", parts, INT)
    if len(values) == 2:
        return distance
    if values[2].constant is None:
        raise call.refused("the threshold is not a literal")
    most = taken(values[2], "int", call)
    return joined(
        "CASE WHEN {0} <= {1} THEN {0} WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN -1 END",
        [distance, most],
        INT,
    )


def _is_utf8(value: Typed) -> bool:
    return isinstance(value.constant, str) and value.constant.upper() in ("UTF-8", "UTF8")


def _encode(call: FunctionCall) -> Typed:
    text, charset = call.values(2)
    if not _is_utf8(charset):
        raise call.refused("only UTF-8, as a literal")
    return joined("encode({0})", [taken(text, "text", call)], BYTES)


def _decode(call: FunctionCall) -> Typed:
    if len(call.arguments) > 2:
        return decode_choice(call)
    data, charset = call.values(2)
    if not _is_utf8(charset) or data.type != BYTES:
        raise call.refused("only bytes, and UTF-8 as a literal")
    return joined("decode({0})", [data], TEXT, raises=True)


def _to_binary(*, is_try: bool) -> SqlFunction:
    def call_it(call: FunctionCall) -> Typed:
        text, *formats = call.values(1, 2)
        text = taken(text, "text", call)
        if formats and _is_utf8(formats[0]):
            return joined("encode({0})", [text], BYTES)
        if formats and str(formats[0].constant).lower() != "hex":
            raise call.refused("only utf-8 and hex, as literals")
        if is_try:
            return joined("spark_unhex({0})", [text], BYTES)
        return joined(
            "spark_given(spark_unhex({0}), {0}, 'is not a hexadecimal text')",
            [text],
            BYTES,
            raises=True,
        )

    return call_it


# Measures
declare(
    "length char_length character_length len",
    _of_text_or_bytes("CAST(length({0}) AS INTEGER)", "CAST(octet_length({0}) AS INTEGER)"),
)
declare(
    "octet_length",
    _of_text_or_bytes("CAST(strlen({0}) AS INTEGER)", "CAST(octet_length({0}) AS INTEGER)"),
)
declare(
    "bit_length",
    _of_text_or_bytes("CAST(strlen({0}) * 8 AS INTEGER)", "CAST(octet_length({0}) * 8 AS INTEGER)"),
)
declare("ascii", simple("text", INT, "ascii({0})"))
declare("levenshtein", _levenshtein)
declare("soundex", simple("text", TEXT, "lakebed_soundex({0})"))
declare("luhn_check", simple("text", BOOLEAN, "lakebed_luhn({0})"))
declare("is_valid_utf8", simple("text", BOOLEAN, "({0} IS NOT NULL OR NULL)"))

# Search
declare("startswith", simple("text text", BOOLEAN, "starts_with({0}, {1})"))
declare("endswith", simple("text text", BOOLEAN, "suffix({0}, {1})"))
declare("contains", simple("text text", BOOLEAN, "contains({0}, {1})"))
declare("instr", simple("text text", INT, "CAST(instr({0}, {1}) AS INTEGER)"))
declare(
    "locate position",
    simple("text text int=1", INT, "CAST(spark_locate({0}, {1}, {2}) AS INTEGER)"),
)
declare("find_in_set", simple("text text", INT, "CAST(spark_find_in_set({0}, {1}) AS INTEGER)"))

# Parts
declare("substring substr", simple("text int int=2147483647", TEXT, "spark_part({0}, {1}, {2})"))
declare("left", simple("text int", TEXT, "spark_part({0}, 1, {1})"))
declare(
    "right",
    simple(
        "text int",
        TEXT,
        "CASE WHEN {1} <= 0 THEN left({0}, 0) ELSE spark_part({0}, -CAST({1} AS BIGINT), 2147483647) END",
    ),
)
declare("split_part", simple("text text int", TEXT, "spark_split_part({0}, {1}, {2})", raises=True))
declare("substring_index", simple("text text int", TEXT, "lakebed_substring_index({0}, {1}, {2})"))
declare("trim", _trim("trim"))
declare("ltrim", _trim("ltrim"))
declare("rtrim", _trim("rtrim"))
declare("btrim", simple("text text=chr(32)", TEXT, "trim({0}, {1})"))

# Changes
declare("upper ucase", simple("text", TEXT, "spark_upper({0})"))
declare("lower lcase", simple("text", TEXT, "spark_lower({0})"))
declare("initcap", simple("text", TEXT, "lakebed_titled({0})"))
declare("lpad", simple("text int text=chr(32)", TEXT, "spark_lpad({0}, {1}, {2})"))
declare("rpad", simple("text int text=chr(32)", TEXT, "spark_rpad({0}, {1}, {2})"))
declare("repeat", simple("text int", TEXT, "repeat({0}, {1})"))
declare("space", simple("int", TEXT, "repeat(' ', {0})"))
declare("replace", simple("text text text=''", TEXT, "replace({0}, {1}, {2})"))
declare("translate", simple("text text text", TEXT, "translate({0}, {1}, {2})"))
declare(
    "overlay",
    simple(
        "text text int int=-1",
        TEXT,
        "spark_overlay({0}, {1}, {2}, CASE WHEN {3} >= 0 THEN {3} WHEN {3} < 0 THEN length({1}) END)",
    ),
)

# Joins
declare("|| concat", _concat)
declare("concat_ws", _concat_ws)
declare("elt", _elt)

# Codes
declare(
    "chr char",
    simple("bigint", TEXT, "CASE WHEN {0} < 0 THEN '' ELSE chr(CAST({0} & 255 AS INTEGER)) END"),
)
declare("hex", _hex)
declare("unhex", simple("text", BYTES, "spark_unhex({0})"))
declare("base64", simple("binary", TEXT, "spark_base64({0})"))
declare("unbase64", simple("text", BYTES, "lakebed_unbase64({0})", raises=True))
declare("bin", simple("bigint", TEXT, "bin({0})"))
declare("encode", _encode, "UTF-8 alone")
declare("decode", _decode, "UTF-8 alone; or the choice `decode(x, a, b, …)`")
declare("to_binary", _to_binary(is_try=False), "from `hex` and `utf-8`")
declare("try_to_binary", _to_binary(is_try=True), "from `hex` and `utf-8`")
declare("make_valid_utf8 validate_utf8 try_validate_utf8", simple("text", TEXT, "{0}"))
declare("url_encode", simple("text", TEXT, "lakebed_url_encoded({0})"))
declare("url_decode", simple("text", TEXT, "lakebed_url_decoded({0})", raises=True))
