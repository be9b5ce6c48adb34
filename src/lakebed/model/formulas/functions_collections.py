"""Functions of arrays, maps and structs, some with a function as argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakebed.errors import InvalidInputError
from lakebed.model.formulas.casts import cast
from lakebed.model.formulas.functions_base import FunctionCall, SqlFunction, declarer, taken
from lakebed.model.formulas.typed import (
    BOOLEAN,
    INT,
    LONG,
    TEXT,
    Typed,
    common_type,
    duck_name,
    duck_text,
    duck_type,
    is_atomic,
    is_float,
    is_whole,
    joined,
    places,
)
from lakebed.model.schema import Field, ListOf, MapOf, Struct, Type, check_map_key

declare = declarer("Arrays, maps and structs")


# Arguments


def _list(value: Typed, call: FunctionCall) -> tuple[Typed, Type]:
    """Return an array with the type of its elements."""
    if not isinstance(value.type, ListOf):
        raise call.refused(f"{call.name} takes an array, not {value.type}")
    return value, value.type.element


def _map(value: Typed, call: FunctionCall) -> tuple[Typed, MapOf]:
    if not isinstance(value.type, MapOf):
        raise call.refused(f"{call.name} takes a map, not {value.type}")
    return value, value.type


def _with_element(array: Typed, value: Typed, call: FunctionCall) -> tuple[Typed, Typed]:
    """Return an array and a value, in types that fit to each other."""
    array, element = _list(array, call)
    if value.type is None:
        return array, cast(value, element)
    kind = common_type(element, value.type)
    if kind is None:
        raise call.refused(f"an array of {element} has no {value.type}")
    return cast(array, ListOf(kind)), cast(value, kind)


def _with_one_zero(array: Typed) -> Typed:
    """Return an array of numbers whose -0.0 is 0.0, as in the results of sets of Spark."""
    if isinstance(array.type, ListOf) and is_float(array.type.element):
        zero = f"CAST(0 AS {duck_type(array.type.element)})"
        return joined(f"list_transform({{0}}, lambda v_: v_ + {zero})", [array], array.type)
    return array


def _two_lists(call: FunctionCall) -> list[Typed]:
    values = [_list(value, call)[0] for value in call.values(2)]
    return [_with_one_zero(value) for value in call.compiler.in_one_type(values, call.node)]


def _variable(name: str, kind: Type | None) -> Typed:
    return Typed(sql=f"v_{name.encode().hex()}", type=kind)


def _lambda(call: FunctionCall, place: int, kinds: Sequence[Type]) -> tuple[str, Typed]:
    """Return the names of a lambda's variables as DuckDB reads them, and its body."""
    node = call.arguments[place]
    names = [part.name for part in getattr(node, "expressions", ())]
    variables = [_variable(name, kind) for name, kind in zip(names, kinds, strict=False)]
    body = call.compiler.lambda_of(node, variables)
    if body is None or len(set(names)) != len(names):
        raise call.refused(f"the argument {place + 1} is not a function such as x -> x + 1")
    return ", ".join(variable.sql for variable in variables), body


def _bound(call: FunctionCall, place: int, values: Sequence[Typed]) -> Typed:
    """Return the body of a lambda whose variables are these expressions."""
    body = call.compiler.lambda_of(call.arguments[place], values)
    if body is None:
        raise call.refused(f"the argument {place + 1} is not a function of {len(values)} values")
    return body


def _variables_of(call: FunctionCall, place: int) -> int:
    return len(getattr(call.arguments[place], "expressions", ()))


# Arrays


def _array(call: FunctionCall) -> Typed:
    values = call.compiler.in_one_type(call.values(1, 10_000), call.node)
    if values[0].type is None:
        raise call.refused("the elements have no type")
    return joined(f"[{places(values)}]", values, ListOf(values[0].type))


def _of_list(template: str, gives: Callable[[Type], Type], *, raises: bool = False) -> SqlFunction:
    """Return a function of one array."""

    def call_it(call: FunctionCall) -> Typed:
        array, element = _list(call.values(1)[0], call)
        return joined(template, [array], gives(element), raises=raises)

    return call_it


def _array_distinct(call: FunctionCall) -> Typed:
    array, _ = _list(call.values(1)[0], call)
    return joined("spark_distinct({0})", [_with_one_zero(array)], array.type)


def _of_element(template: str, kind: Type | None = None) -> SqlFunction:
    """Return a function of an array and a value that may be an element of it."""

    def call_it(call: FunctionCall) -> Typed:
        array, value = call.values(2)
        array, value = _with_element(array, value, call)
        return joined(template, [array, value], array.type if kind is None else kind)

    return call_it


def _of_lists(template: str, kind: Type | None = None) -> SqlFunction:
    """Return a function of two arrays of one type."""

    def call_it(call: FunctionCall) -> Typed:
        values = _two_lists(call)
        return joined(template, values, values[0].type if kind is None else kind)

    return call_it


def _size(call: FunctionCall) -> Typed:
    (value,) = call.values(1)
    if isinstance(value.type, MapOf):
        return joined("CAST(cardinality({0}) AS INTEGER)", [value], INT)
    return joined("CAST(len({0}) AS INTEGER)", [_list(value, call)[0]], INT)


def _array_join(call: FunctionCall) -> Typed:
    array, *texts = call.values(2, 3)
    array, element = _list(array, call)
    if element != TEXT:
        raise call.refused("it takes an array of texts")
    parts = [array, *(taken(text, "text", call) for text in texts)]
    if len(parts) == 2:
        return joined("lakebed_joined({1}, {0})", parts, TEXT)
    template = (
        "CASE WHEN {2} IS NOT NULL THEN "
        "lakebed_joined({1}, list_transform({0}, lambda v_: coalesce(v_, {2}))) END"
    )
    return joined(template, parts, TEXT)


def _array_repeat(call: FunctionCall) -> Typed:
    value, count = call.values(2)
    if value.type is None:
        raise call.refused("the elements have no type")
    template = "list_transform(range(CAST({1} AS BIGINT)), lambda v_: {0})"
    return joined(template, [value, taken(count, "int", call)], ListOf(value.type))


def _array_insert(call: FunctionCall) -> Typed:
    array, place, value = call.values(3)
    array, value = _with_element(array, value, call)
    template = "spark_insert({0}, CAST({1} AS BIGINT), {2})"
    return joined(template, [array, taken(place, "int", call), value], array.type, raises=True)


def _slice(call: FunctionCall) -> Typed:
    array, *numbers = call.values(3)
    array, _ = _list(array, call)
    parts = [array, *(taken(number, "int", call) for number in numbers)]
    return joined("spark_slice({0}, {1}, {2})", parts, array.type, raises=True)


def _sort_array(call: FunctionCall) -> Typed:
    array, *rest = call.values(1, 2)
    array, element = _list(array, call)
    if not is_atomic(element):
        raise call.refused("it sorts values without parts")
    if rest and not isinstance(rest[0].constant, bool):
        raise call.refused("the order is true or false, as a literal")
    return _sorted(array, is_up=not rest or rest[0].constant is True, nulls_first=True)


def _sorted(array: Typed, *, is_up: bool, nulls_first: bool) -> Typed:
    """Return an array in order; with NULLs at the end where it is less and less."""
    nulls_first = nulls_first and is_up
    if isinstance(array.type, ListOf) and is_float(array.type.element):
        # The order of 0.0 and -0.0, which are equal, stays as it is.
        words = f"'{'up' if is_up else 'down'}', '{'start' if nulls_first else 'end'}'"
        template = f"CAST(lakebed_sorted({{0}}, {words}) AS {duck_type(array.type)})"
        return joined(template, [array], array.type)
    order = f"'{'ASC' if is_up else 'DESC'}', 'NULLS {'FIRST' if nulls_first else 'LAST'}'"
    return joined(f"list_sort({{0}}, {order})", [array], array.type)


def _array_sort(call: FunctionCall) -> Typed:
    if len(call.arguments) != 1:
        raise call.refused("it takes no function that compares")
    array, element = _list(call.values(1)[0], call)
    if not is_atomic(element):
        raise call.refused("it sorts values without parts")
    return _sorted(array, is_up=True, nulls_first=False)


def _sequence(call: FunctionCall) -> Typed:
    values = call.values(2, 3)
    if not all(is_whole(value.type) for value in values):
        raise call.refused("it takes whole numbers here")
    kind = call.compiler.in_one_type(values, call.node)[0].type
    assert kind is not None  # they are numbers
    parts = [cast(value, LONG) for value in values]
    step = "{2}" if len(parts) == 3 else "CASE WHEN {0} <= {1} THEN 1 ELSE -1 END"
    template = f"CAST(spark_sequence({{0}}, {{1}}, {step}) AS {duck_type(kind)}[])"
    return joined(template, parts, ListOf(kind), raises=True)


def _flatten(call: FunctionCall) -> Typed:
    array, element = _list(call.values(1)[0], call)
    if not isinstance(element, ListOf):
        raise call.refused("it takes an array of arrays")
    return joined("CASE WHEN list_count({0}) = len({0}) THEN flatten({0}) END", [array], element)


def _reverse(call: FunctionCall) -> Typed:
    (value,) = call.values(1)
    if isinstance(value.type, ListOf):
        return joined("list_reverse({0})", [value], value.type)
    return joined("spark_reverse({0})", [taken(value, "text", call)], TEXT)


def _arrays_zip(call: FunctionCall) -> Typed:
    values = [_list(value, call)[0] for value in call.values(1, 100)]
    names = _field_names(call, lambda number: str(number - 1))
    zipped = f"list_zip({places(values)})"
    fields = _packed(names, [f"v_z[{number}]" for number in range(1, len(values) + 1)], call)
    given = " AND ".join(f"{{{number}}} IS NOT NULL" for number in range(len(values)))
    kind = Struct(
        tuple(
            Field(name=name, type=value.type.element)
            for name, value in zip(names, values, strict=True)
            if isinstance(value.type, ListOf)
        )
    )
    template = f"CASE WHEN {given} THEN list_transform({zipped}, lambda v_z: {fields}) END"
    return joined(template, values, ListOf(kind))


# Elements


def _element(of_list: str, *, raises: bool) -> SqlFunction:
    """Return a function to an element of an array by its number, or to a value of a map by its key."""

    def call_it(call: FunctionCall) -> Typed:
        whole, key = call.values(2)
        if isinstance(whole.type, MapOf) and call.name != "get":
            return _value_of(whole, key, call)
        array, element = _list(whole, call)
        if not is_whole(key.type):
            raise call.refused("an element has a whole number")
        return joined(of_list, [array, taken(key, "int", call)], element, raises=raises)

    return call_it


def _value_of(whole: Typed, key: Typed, call: FunctionCall) -> Typed:
    whole, kind = _map(whole, call)
    return joined("map_extract_value({0}, {1})", [whole, _key(key, kind, call)], kind.value)


def _key(key: Typed, kind: MapOf, call: FunctionCall) -> Typed:
    """Return a key in the type of a map's keys."""
    if key.type is None or is_float(kind.key):
        raise call.refused("the key has no exact type")
    return taken(key, "any", call) if key.type == kind.key else _converted_key(key, kind, call)


def _converted_key(key: Typed, kind: MapOf, call: FunctionCall) -> Typed:
    if not (
        is_whole(key.type) and is_whole(kind.key) and common_type(key.type, kind.key) == kind.key
    ):
        raise call.refused(f"the keys are {kind.key}, not {key.type}")
    return cast(key, kind.key)


# Functions of functions


def _indexed(call: FunctionCall, place: int, element: Type) -> tuple[str, Typed]:
    """Return a lambda of an element, or of an element and its number from 0."""
    node = call.arguments[place]
    names = [part.name for part in getattr(node, "expressions", ())]
    if len(names) < 2:
        return _lambda(call, place, [element])
    value, number = _variable(names[0], element), _variable(names[1], INT)
    shifted = Typed(sql=f"CAST({number.sql} - 1 AS INTEGER)", type=INT)
    body = _bound(call, place, [value, shifted])
    return f"{value.sql}, {number.sql}", body


def _condition(body: Typed, call: FunctionCall) -> Typed:
    if body.type is None:
        return cast(body, BOOLEAN)
    if body.type != BOOLEAN:
        raise call.refused("the function does not give true or false")
    return body


def _with_list(call: FunctionCall, count: int = 2) -> tuple[Typed, Type]:
    if len(call.arguments) != count:
        raise call.refused(f"{call.name} takes {count} arguments")
    return _list(call.compiler.read(call.arguments[0]), call)


def _filter(call: FunctionCall) -> Typed:
    array, element = _with_list(call)
    variables, body = _indexed(call, 1, element)
    template = f"list_filter({{0}}, lambda {variables}: {{1}})"
    return joined(template, [array, _condition(body, call)], array.type)


def _transform(call: FunctionCall) -> Typed:
    array, element = _with_list(call)
    variables, body = _indexed(call, 1, element)
    if body.type is None:
        raise call.refused("the values have no type")
    return joined(
        f"list_transform({{0}}, lambda {variables}: {{1}})", [array, body], ListOf(body.type)
    )


def _of_all(template: str) -> SqlFunction:
    """Return a function that asks for the elements which a condition holds for."""

    def call_it(call: FunctionCall) -> Typed:
        array, element = _with_list(call)
        variables, body = _lambda(call, 1, [element])
        if body.may_raise:
            raise call.refused("the condition may raise an error, which Spark may not reach")
        tested = f"list_transform({{0}}, lambda {variables}: {{1}})"
        return joined(template.format(tested), [array, _condition(body, call)], BOOLEAN)

    return call_it


def _aggregate(call: FunctionCall) -> Typed:
    if len(call.arguments) not in (3, 4):
        raise call.refused("it takes 3 or 4 arguments")
    array, element = _list(call.compiler.read(call.arguments[0]), call)
    start = call.compiler.read(call.arguments[1])
    if start.type is None:
        raise call.refused("the start has no type")
    variables, body = _lambda(call, 2, [start.type, element])
    if body.type is not None and body.type != start.type:
        raise call.refused(f"the start is {start.type}, and the function gives {body.type}")
    kind = duck_type(start.type)
    template = (
        f"CASE WHEN {{0}} IS NOT NULL THEN list_reduce({{0}}, lambda {variables}: "
        f"CAST({{1}} AS {kind}), CAST({{2}} AS {kind})) END"
    )
    result = joined(template, [array, body, start], start.type)
    if len(call.arguments) == 3:
        return result
    finished = _bound(call, 3, [result])
    sql = f"CASE WHEN {array.sql} IS NOT NULL THEN {finished.sql} END"
    return Typed(sql=sql, type=finished.type, may_raise=finished.may_raise or result.may_raise)


def _zip_with(call: FunctionCall) -> Typed:
    if len(call.arguments) != 3:
        raise call.refused("it takes 3 arguments")
    lists = [_list(call.compiler.read(argument), call) for argument in call.arguments[:2]]
    values = [
        Typed(sql=f"v_z[{number}]", type=element) for number, (_, element) in enumerate(lists, 1)
    ]
    body = _bound(call, 2, values)
    if body.type is None:
        raise call.refused("the values have no type")
    template = (
        "CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN "
        "list_transform(list_zip({0}, {1}), lambda v_z: {2}) END"
    )
    return joined(template, [*(array for array, _ in lists), body], ListOf(body.type))


# Maps


def _map_type(key: Type | None, value: Type | None, call: FunctionCall) -> MapOf:
    if key is None or value is None or is_float(key):
        raise call.refused("the keys or values have no exact type")
    try:
        return MapOf(value, key=check_map_key(key, "map"))
    except InvalidInputError as exc:
        raise call.refused(exc.message) from exc


def _new_map(call: FunctionCall) -> Typed:
    values = call.values(2, 10_000)
    if len(values) % 2:
        raise call.refused("a key has no value")
    keys = call.compiler.in_one_type(values[::2], call.node)
    items = call.compiler.in_one_type(values[1::2], call.node)
    template = f"MAP([{places(keys)}], [{places(items, len(keys))}])"
    return joined(
        template, [*keys, *items], _map_type(keys[0].type, items[0].type, call), raises=True
    )


def _map_from_arrays(call: FunctionCall) -> Typed:
    (keys, key), (values, value) = (_list(part, call) for part in call.values(2))
    template = "CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN MAP({0}, {1}) END"
    return joined(template, [keys, values], _map_type(key, value, call), raises=True)


def _map_from_entries(call: FunctionCall) -> Typed:
    entries, element = _list(call.values(1)[0], call)
    if not isinstance(element, Struct) or len(element.fields) != 2:
        raise call.refused("it takes an array of structs of two fields")
    key, value = element.fields
    template = (
        "CASE WHEN list_count({0}) = len({0}) THEN "
        f"MAP(list_transform({{0}}, lambda v_: struct_extract(v_, {duck_text(key.name)})), "
        f"list_transform({{0}}, lambda v_: struct_extract(v_, {duck_text(value.name)}))) END"
    )
    return joined(template, [entries], _map_type(key.type, value.type, call), raises=True)


def _of_map(template: str, gives: Callable[[MapOf], Type]) -> SqlFunction:
    def call_it(call: FunctionCall) -> Typed:
        whole, kind = _map(call.values(1)[0], call)
        return joined(template, [whole], gives(kind))

    return call_it


def _map_contains_key(call: FunctionCall) -> Typed:
    whole, key = call.values(2)
    whole, kind = _map(whole, call)
    template = "CASE WHEN {1} IS NOT NULL THEN map_contains({0}, {1}) END"
    return joined(template, [whole, _key(key, kind, call)], BOOLEAN)


def _map_concat(call: FunctionCall) -> Typed:
    values = [_map(value, call)[0] for value in call.values(1, 1_000)]
    values = call.compiler.in_one_type(values, call.node)
    given = " AND ".join(f"{{{number}}} IS NOT NULL" for number in range(len(values)))
    keys = ", ".join(f"map_keys({{{number}}})" for number in range(len(values)))
    items = ", ".join(f"map_values({{{number}}})" for number in range(len(values)))
    template = f"CASE WHEN {given} THEN MAP(list_concat({keys}), list_concat({items})) END"
    return joined(template, values, values[0].type, raises=len(values) > 1)


def _of_entries(
    build: Callable[[Typed, Typed, FunctionCall], tuple[str, MapOf]], *, raises: bool
) -> SqlFunction:
    """Return a function of a map, and of a function of its keys and values."""

    def call_it(call: FunctionCall) -> Typed:
        if len(call.arguments) != 2:
            raise call.refused("it takes 2 arguments")
        whole, kind = _map(call.compiler.read(call.arguments[0]), call)
        key = Typed(sql="struct_extract(v_e, 'key')", type=kind.key)
        value = Typed(sql="struct_extract(v_e, 'value')", type=kind.value)
        body = _bound(call, 1, [key, value])
        template, gives = build(body, whole, call)
        return joined(template, [whole, body], gives, raises=raises)

    return call_it


def _filtered_map(body: Typed, whole: Typed, call: FunctionCall) -> tuple[str, MapOf]:
    _condition(body, call)
    return (
        "map_from_entries(list_filter(map_entries({0}), lambda v_e: {1}))",
        _map(whole, call)[1],
    )


def _changed_keys(body: Typed, whole: Typed, call: FunctionCall) -> tuple[str, MapOf]:
    kind = _map_type(body.type, _map(whole, call)[1].value, call)
    keys = "list_transform(map_entries({0}), lambda v_e: {1})"
    return f"CASE WHEN {{0}} IS NOT NULL THEN MAP({keys}, map_values({{0}})) END", kind


def _changed_values(body: Typed, whole: Typed, call: FunctionCall) -> tuple[str, MapOf]:
    kind = _map_type(_map(whole, call)[1].key, body.type, call)
    values = "list_transform(map_entries({0}), lambda v_e: {1})"
    return f"CASE WHEN {{0}} IS NOT NULL THEN MAP(map_keys({{0}}), {values}) END", kind


def _map_zip_with(call: FunctionCall) -> Typed:
    if len(call.arguments) != 3:
        raise call.refused("it takes 3 arguments")
    (one, kind), (other, others) = (
        _map(call.compiler.read(argument), call) for argument in call.arguments[:2]
    )
    if kind.key != others.key or is_float(kind.key):
        raise call.refused("the keys have different types")
    key = Typed(sql="v_k", type=kind.key)
    values = [
        joined("map_extract_value({0}, v_k)", [one], kind.value),
        joined("map_extract_value({0}, v_k)", [other], others.value),
    ]
    body = _bound(call, 2, [key, *values])
    keys = "spark_distinct(list_concat(map_keys({0}), map_keys({1})))"
    template = (
        f"CASE WHEN {{0}} IS NOT NULL AND {{1}} IS NOT NULL THEN "
        f"MAP({keys}, list_transform({keys}, lambda v_k: {{2}})) END"
    )
    return joined(template, [one, other, body], _map_type(kind.key, body.type, call))


def _str_to_map(call: FunctionCall) -> Typed:
    text, *signs = call.values(1, 3)
    for sign in signs:
        if (
            not isinstance(sign.constant, str)
            or not sign.constant
            or set(sign.constant) & set("\\.[]{}()*+-?^$|")
        ):
            raise call.refused("the signs between are literals without a pattern")
    parts = [taken(text, "text", call), *signs]
    rest = ["','", "':'"][len(signs) :]
    template = f"lakebed_map_of_text({', '.join([places(parts), *rest])})"
    return joined(template, parts, MapOf(TEXT), raises=True)


# Structs


def _field_names(call: FunctionCall, default: Callable[[int], str]) -> list[str]:
    """Return the names of fields: of columns and of fields their own, of others by their number."""
    names = []
    for number, node in enumerate(call.arguments, 1):
        is_named = type(node).__name__ in ("Column", "Dot")
        names.append(getattr(node, "name", "") if is_named else default(number))
    return names


def _packed(names: Sequence[str], texts: Sequence[str], call: FunctionCall) -> str:
    if len({name.lower() for name in names}) != len(names) or not all(names):
        raise call.refused("two fields have one name")
    pairs = (f"{duck_name(name)} := {text}" for name, text in zip(names, texts, strict=True))
    packed = ", ".join(pairs)
    if "{" in "".join(names):
        raise call.refused("the name of a field has a brace")
    return f"struct_pack({packed})"


def _struct_of(names: Sequence[str], values: Sequence[Typed], call: FunctionCall) -> Typed:
    if any(value.type is None for value in values):
        raise call.refused("a field has no type")
    kind = Struct(
        tuple(
            Field(name=name, type=value.type)
            for name, value in zip(names, values, strict=True)
            if value.type is not None
        )
    )
    return joined(
        _packed(names, [f"{{{number}}}" for number in range(len(values))], call), values, kind
    )


def _struct(call: FunctionCall) -> Typed:
    names = _field_names(call, lambda number: f"col{number}")
    return _struct_of(names, call.values(1, 1_000), call)


def _named_struct(call: FunctionCall) -> Typed:
    values = call.values(2, 1_000)
    names = [value.constant for value in values[::2]]
    if len(values) % 2 or not all(isinstance(name, str) for name in names):
        raise call.refused("it takes a literal name before each value")
    return _struct_of([str(name) for name in names], values[1::2], call)


def _itself(element: Type) -> Type:
    return ListOf(element)


# Arrays
declare("array", _array)
declare("size cardinality", _size)
declare("array_size", _of_list("CAST(len({0}) AS INTEGER)", lambda _: INT))
declare("array_contains", _of_element("spark_has({0}, {1})", BOOLEAN))
declare("array_position", _of_element("CAST(spark_position({0}, {1}) AS BIGINT)", LONG))
declare("array_append", _of_element("CASE WHEN {0} IS NOT NULL THEN list_append({0}, {1}) END"))
declare("array_prepend", _of_element("CASE WHEN {0} IS NOT NULL THEN list_prepend({1}, {0}) END"))
declare(
    "array_remove",
    _of_element(
        "CASE WHEN {1} IS NOT NULL THEN list_filter({0}, lambda v_: v_ IS NULL OR v_ <> {1}) END"
    ),
)
declare("array_insert", _array_insert)
declare("array_repeat", _array_repeat)
declare("array_compact", _of_list("list_filter({0}, lambda v_: v_ IS NOT NULL)", _itself))
declare("array_distinct", _array_distinct)
declare(
    "array_union",
    _of_lists(
        "CASE WHEN {0} IS NOT NULL AND {1} IS NOT NULL THEN spark_distinct(list_concat({0}, {1})) END"
    ),
)
declare("array_intersect", _of_lists("spark_common({0}, {1})"))
declare("array_except", _of_lists("spark_except({0}, {1})"))
declare("arrays_overlap", _of_lists("spark_overlap({0}, {1})", BOOLEAN))
declare("arrays_zip", _arrays_zip)
declare("array_join", _array_join, "of texts")
declare(
    "array_max",
    _of_list("list_extract({0}, list_position({0}, list_max({0})))", lambda element: element),
)
declare(
    "array_min",
    _of_list("list_extract({0}, list_position({0}, list_min({0})))", lambda element: element),
)
declare("slice", _slice)
declare("sort_array", _sort_array, "of values without parts")
declare("array_sort", _array_sort, "without a function that compares")
declare("sequence", _sequence, "of whole numbers")
declare("flatten", _flatten)
declare("reverse", _reverse)

# Elements
declare("[]", _element("spark_item({0}, {1})", raises=True))
declare("element_at", _element("spark_element({0}, {1})", raises=True))
declare("try_element_at", _element("spark_try_element({0}, {1})", raises=True))
declare(
    "get",
    _element(
        "CASE WHEN {1} >= 0 THEN list_extract({0}, CAST({1} AS BIGINT) + 1) END", raises=False
    ),
)

# Functions of functions
declare("filter", _filter)
declare("transform", _transform)
declare(
    "exists",
    _of_all(
        "CASE WHEN list_contains({0}, true) THEN true WHEN list_count({0}) = len({0}) THEN false END"
    ),
)
declare(
    "forall",
    _of_all(
        "CASE WHEN list_contains({0}, false) THEN false WHEN list_count({0}) = len({0}) THEN true END"
    ),
)
declare("aggregate reduce", _aggregate)
declare("zip_with", _zip_with)

# Maps
declare("map", _new_map)
declare("map_from_arrays", _map_from_arrays)
declare("map_from_entries", _map_from_entries)
declare("map_keys", _of_map("map_keys({0})", lambda kind: ListOf(kind.key)))
declare("map_values", _of_map("map_values({0})", lambda kind: ListOf(kind.value)))
declare(
    "map_entries",
    _of_map(
        "map_entries({0})",
        lambda kind: ListOf(
            Struct((Field(name="key", type=kind.key), Field(name="value", type=kind.value)))
        ),
    ),
)
declare("map_contains_key", _map_contains_key)
declare("map_concat", _map_concat)
declare("map_filter", _of_entries(_filtered_map, raises=False))
declare("transform_keys", _of_entries(_changed_keys, raises=True))
declare("transform_values", _of_entries(_changed_values, raises=False))
declare("map_zip_with", _map_zip_with)
declare("str_to_map", _str_to_map, "signs between pairs that are no pattern")

# Structs
declare("struct", _struct)
declare("named_struct", _named_struct)
