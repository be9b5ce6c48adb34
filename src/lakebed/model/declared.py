"""Checks as values: what `lakebed.checks` makes, and what a descriptor declares and stores.

A check in a descriptor has a name and is stored as a table, in the spelling of a pipeline's TOML.
Stored tables are untrusted: each is read into one of the classes here, or refused.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError, PredicateError, SchemaMismatchError
from lakebed.model.names import check_dataset_name, nearest
from lakebed.model.predicate import NullCheck, Predicate, all_of, bind
from lakebed.model.schema import ListOf, MapOf, Primitive, Schema, Struct, Type, dotted_types
from lakebed.model.values import TIMES

if TYPE_CHECKING:
    from lakebed.model.descriptor import DatasetDescriptor

Of = Literal["batch", "dataset"]
OnFailure = Literal["refuse", "reject", "quarantine", "warn"]
ON_FAILURE: tuple[OnFailure, ...] = get_args(OnFailure)

MOST_CHECKS = 64
_MOST_CHARACTERS = 10_000  # of a condition
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_AGE = re.compile(r"([0-9]{1,9}) ?([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LONGEST = dt.timedelta(days=365_250)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A condition on rows, keys, references or a batch.

    Attributes:
        of: `batch` to examine the new rows, `dataset` for the dataset after the commit. None for
            the dataset if it is a declared check of keys, else for the batch.
        on_failure: Action of a write whose declared check fails: `refuse` the whole write, `reject`
            the failing rows, send them to `quarantine`, or only `warn`.
    """

    of: Of | None = None
    on_failure: OnFailure = "refuse"

    is_of_rows: ClassVar[bool] = False
    is_of_batch: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.of not in (None, "batch", "dataset"):
            raise InvalidInputError(
                f"A check cannot be of {self.of!r}.", hint="Give 'batch' or 'dataset'."
            )
        if self.on_failure not in ON_FAILURE:
            raise InvalidInputError(
                f"on_failure is {shown(self.on_failure)}.",
                hint=f"Give {', '.join(map(repr, ON_FAILURE))}.",
            )

    def to_table(self) -> dict[str, Any]:
        """Return the table that declares the check; see `check_from_table`."""
        table = self._own_table()
        if self.of is not None:
            table["of"] = self.of
        if self.on_failure != "refuse":
            table["on_failure"] = self.on_failure
        return table

    def _own_table(self) -> dict[str, Any]:
        raise InvalidInputError(
            f"The check {self} cannot be declared with a dataset: it is a function.",
            hint="Declare a condition, or give the function to the commit of a staged batch, as one of its checks.",
        )

    def check_declared(self, schema: Schema) -> None:
        """Check that a dataset of a schema can declare the check.

        Raises:
            InvalidInputError: It cannot; the message has the reason.
            SchemaMismatchError: The schema lacks a column.
            PredicateError: A condition cannot be parsed.
        """

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return the check of the same columns under new names, given by their former ones."""
        new_names: dict[str, Any] = {
            name: tuple(_renamed(column, names) for column in value)
            if isinstance(value, tuple)
            else _renamed(value, names)
            for name in ("columns", "column")
            if (value := getattr(self, name, None)) is not None
        }
        return replace(self, **new_names)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCount(Check):
    """Bounds on the number of rows; see `lakebed.checks.row_count`."""

    min: int | None = None
    max: int | None = None

    is_of_batch: ClassVar[bool] = True

    def __str__(self) -> str:
        bounds = (("min", self.min), ("max", self.max))
        given = ", ".join(f"{name}={bound}" for name, bound in bounds if bound is not None)
        return f"row_count({given})"

    def _own_table(self) -> dict[str, Any]:
        bounds = {"min_rows": self.min, "max_rows": self.max}
        return {name: bound for name, bound in bounds.items() if bound is not None}

    def check_declared(self, schema: Schema) -> None:  # noqa: ARG002 - it names no column
        """Check that a dataset can declare the check; see `Check.check_declared`."""
        _check_of_batch(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotNull(Check):
    """Columns without null; see `lakebed.checks.not_null`."""

    columns: tuple[str, ...]

    is_of_rows: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"not_null({', '.join(self.columns)})"

    def _own_table(self) -> dict[str, Any]:
        return {"not_null": list(self.columns)}

    def check_declared(self, schema: Schema) -> None:
        """Check that a dataset can declare the check; see `Check.check_declared`."""
        _check_of_batch(self)
        for name in self.columns:
            _type_of(name, schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique(Check):
    """No two rows have the same key; see `lakebed.checks.unique`."""

    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"unique({', '.join(self.columns)})"

    def _own_table(self) -> dict[str, Any]:
        return {"unique": list(self.columns)}

    def check_declared(self, schema: Schema) -> None:
        """Check that a dataset can declare the check; see `Check.check_declared`."""
        for name in self.columns:
            _check_key(name, schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition(Check):
    """A condition is true of every row; see `lakebed.checks.condition`."""

    sql: str

    is_of_rows: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"condition({self.sql!r})"

    def _own_table(self) -> dict[str, Any]:
        return {"rows": self.sql}

    def check_declared(self, schema: Schema) -> None:
        """Check that a dataset can declare the check; see `Check.check_declared`."""
        _check_of_batch(self)
        predicate_of(self, schema)

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return the condition on the same columns under new names."""
        from lakebed.model.sql_predicates import with_columns_renamed

        sql = with_columns_renamed(self.sql, names)
        return self if sql is None else replace(self, sql=sql)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference(Check):
    """Each value exists in a column of another dataset; see `lakebed.checks.reference`."""

    column: str
    dataset: str
    target: str

    def __str__(self) -> str:
        return f"reference({self.column} -> {self.dataset}.{self.target})"

    def _own_table(self) -> dict[str, Any]:
        return {"reference": f"{self.column} -> {self.dataset}.{self.target}"}

    def check_declared(self, schema: Schema) -> None:
        """Check that a dataset can declare the check; see `Check.check_declared`."""
        _check_of_batch(self)
        _check_key(self.column, schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCountWithin(Check):
    """The batch is about as large as the last ones; see `lakebed.checks.row_count_within`."""

    share: float
    of_last: int = 10

    is_of_batch: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"row_count_within({self.share:g}, of_last={self.of_last})"

    def _own_table(self) -> dict[str, Any]:
        return {"row_count_within": self.share, "of_last": self.of_last}

    def check_declared(self, schema: Schema) -> None:  # noqa: ARG002 - it names no column
        """Check that a dataset can declare the check; see `Check.check_declared`."""
        _check_of_batch(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh(Check):
    """The newest time of the batch is recent; see `lakebed.checks.fresh`."""

    column: str
    within: dt.timedelta

    is_of_batch: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"fresh({self.column}, within={_age_text(self.within)})"

    def _own_table(self) -> dict[str, Any]:
        return {"column": self.column, "within": _age_text(self.within)}

    def check_declared(self, schema: Schema) -> None:
        """Check that a dataset can declare the check; see `Check.check_declared`."""
        _check_of_batch(self)
        kind = _type_of(self.column, schema)
        if not (isinstance(kind, Primitive) and kind.kind in TIMES):
            raise InvalidInputError(
                f"{self} needs a column of times, and {self.column!r} is of type {kind}.",
                hint="Give a column of dates or timestamps.",
            )


def _check_of_batch(check: Check) -> None:
    if check.of == "dataset":
        raise InvalidInputError(
            f"The check {check} cannot be declared of the dataset.",
            hint="Leave out of: each write checks its rows, and so all rows are checked.",
        )


def _type_of(name: str, schema: Schema) -> Type:
    types = dotted_types(schema)
    if name not in types:
        raise SchemaMismatchError(
            f"A check names an unknown column: {shown(name)}.",
            hint=nearest(name, types)
            or f"Columns are: {', '.join(schema.names)}. Drop the check of a column together with "
            "the column.",
        )
    return types[name]


def _check_key(name: str, schema: Schema) -> None:
    kind = _type_of(name, schema)
    if isinstance(kind, Struct | ListOf | MapOf) or "." in name:
        raise InvalidInputError(
            f"Column {name!r} of type {kind} cannot be a key of a check.",
            hint="Name top-level columns of single values.",
        )


def _renamed(column: str, names: Mapping[str, str]) -> str:
    root, dot, inner = column.partition(".")
    return names.get(column) or f"{names.get(root, root)}{dot}{inner}"


def predicate_of(check: Check, schema: Schema) -> Predicate:
    """Return the condition of a check of rows, bound to the fields of a schema.

    Raises:
        PredicateError: It cannot be parsed, or names a column that is not a field.
    """
    from lakebed.model.sql_predicates import parse_sql

    types = dotted_types(schema)
    if isinstance(check, NotNull):
        return all_of([NullCheck(name, negated=True) for name in check.columns])
    assert isinstance(check, Condition)  # the only other check of rows
    try:
        return bind(parse_sql(check.sql, types), types)
    except PredicateError as exc:
        raise PredicateError(
            f"The check {check} cannot be used: {exc.message}",
            hint=f"{exc.hint} A check of rows names fields, not partition fields.".lstrip(),
        ) from exc


def check_declared(checks: Mapping[str, Check], schema: Schema) -> None:
    """Check that a dataset of a schema can declare checks.

    Raises:
        InvalidInputError: A name or a check cannot be declared; the message has the reason.
        SchemaMismatchError: The schema lacks a column.
        PredicateError: A condition cannot be parsed.
    """
    check_form(checks)
    for check in checks.values():
        check.check_declared(schema)


def check_form(checks: Mapping[str, Check]) -> None:
    """Check the names, the number and the actions of declared checks, without parsing conditions.

    Raises:
        InvalidInputError: A name is not an identifier, there are too many, or an action does not
            fit its check.
    """
    if len(checks) > MOST_CHECKS:
        raise InvalidInputError(
            f"A dataset cannot declare {len(checks)} checks.", hint=f"Declare up to {MOST_CHECKS}."
        )
    for name, check in checks.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidInputError(
                f"{shown(name)} is not a valid name of a check.",
                hint="Use up to 64 letters, digits and '_'; the first is not a digit.",
            )
        if not isinstance(check, Check):
            raise InvalidInputError(
                f"Check {name!r} is a {type(check).__name__}.",
                hint='Make it with lakebed.checks, such as checks.condition("delay >= -120").',
            )
        check.to_table()  # a function has no table
        if check.on_failure in ("reject", "quarantine") and not check.is_of_rows:
            raise InvalidInputError(
                f"Check {name!r}, {check}, cannot {check.on_failure} rows: it is not a condition on "
                "single rows.",
                hint="Choose 'refuse' or 'warn' as its on_failure.",
            )
        if isinstance(check, Condition) and len(check.sql) > _MOST_CHARACTERS:
            raise InvalidInputError(
                f"The condition of check {name!r} has {len(check.sql):,} characters.",
                hint=f"Use up to {_MOST_CHARACTERS:,}, in several checks if needed.",
            )


def rows_checked(descriptor: DatasetDescriptor) -> dict[str, Check]:
    """Return the declared checks of single rows, by name."""
    return {name: check for name, check in descriptor.checks.items() if check.is_of_rows}


def parse_within(text: object) -> dt.timedelta:
    """Read a duration such as `90m` or `2h`, or take a timedelta.

    Raises:
        InvalidInputError: It has another form, is not positive, or cannot be stored as such a text.

    >>> parse_within("2h")
    datetime.timedelta(seconds=7200)
    """
    given = text
    if isinstance(text, str):
        match = _AGE.fullmatch(text.strip())
        try:
            given = dt.timedelta(**{_UNITS[match[2]]: int(match[1])}) if match else None
        except OverflowError:
            given = None
    if (
        not isinstance(given, dt.timedelta)
        or not dt.timedelta() < given <= _LONGEST
        or given % dt.timedelta(seconds=1)
        or not _AGE.fullmatch(_age_text(given))
    ):
        raise InvalidInputError(
            f"within is {shown(text)}.", hint="Give a number and s, m, h, d or w, such as '2h'."
        )
    return given


def _age_text(age: dt.timedelta) -> str:
    seconds = int(age.total_seconds())
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def split_reference(text: object) -> tuple[str, str]:
    """Return dataset and column of `airports.code`.

    Raises:
        InvalidInputError: The text has another form.
        InvalidNameError: The name of the dataset is not legal.
    """
    dataset, dot, column = text.partition(".") if isinstance(text, str) else ("", "", "")
    if not dot or not column:
        raise InvalidInputError(
            f"{shown(text)} does not name a column of a dataset.", hint="Write 'airports.code'."
        )
    return check_dataset_name(dataset), column


def check_from_table(name: str, table: object) -> Check:
    """Read a check from the table that declares it; see `lakebed.checks.from_table`.

    Raises:
        InvalidInputError: The table has an unknown key, or a value of a wrong type.
    """
    given = {"rows": table} if isinstance(table, str) else table
    if not isinstance(given, Mapping):
        raise InvalidInputError(
            f"Check {name!r} is {shown(table)}.", hint=f"Write a table, such as {_EXAMPLE}."
        )
    kinds = [key for key in _READERS if key in given]
    if not kinds:
        raise InvalidInputError(
            f"Check {name!r} has none of the keys {', '.join(_READERS)}.",
            hint=f"Write, for example, {_EXAMPLE}.",
        )
    kind = kinds[0]
    known = (*_KEYS[kind], "of", "on_failure")
    for key in given:
        if key not in known:
            raise InvalidInputError(
                f"Check {name!r} has an unknown key {shown(key)}.",
                hint=nearest(str(key), known) or f"Beside {kind!r} it can have {', '.join(known)}.",
            )
    common = {key: given[key] for key in ("of", "on_failure") if key in given}
    try:
        return _READERS[kind](given, common)
    except InvalidInputError as exc:
        raise type(exc)(f"Check {name!r} cannot be read: {exc.message}", hint=exc.hint) from exc


_EXAMPLE = '{rows = "delay >= -120", on_failure = "quarantine"}'
_Reader = Callable[[Mapping[str, Any], dict[str, Any]], Check]


def _text(given: Mapping[str, Any], key: str) -> str:
    value = given.get(key, None)
    if not isinstance(value, str) or not value.strip():
        raise InvalidInputError(f"{key} is {shown(value)}.", hint="Give text.")
    return value


def _names(given: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = given[key]
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or len(names) > 1_000:
        raise InvalidInputError(f"{key} is {shown(value)}.", hint="Give a list of columns.")
    for column in names:
        if not isinstance(column, str) or not column:
            raise InvalidInputError(f"{key} has {shown(column)}.", hint="Give names of columns.")
    return tuple(names)


def _count(given: Mapping[str, Any], key: str, least: int = 0) -> int | None:
    if key not in given:
        return None
    value = given[key]
    if isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63:
        return value
    raise InvalidInputError(f"{key} is {shown(value)}.", hint="Give a whole number of rows.")


def _read_reference(given: Mapping[str, Any], common: dict[str, Any]) -> Check:
    text = _text(given, "reference")
    column, arrow, target = (part.strip() for part in text.partition("->"))
    if not arrow or not column:
        raise InvalidInputError(
            f"reference is {shown(text)}.", hint="Write 'airport -> airports.code'."
        )
    dataset, name = split_reference(target)
    return Reference(column=column, dataset=dataset, target=name, **common)


def _read_within(given: Mapping[str, Any], common: dict[str, Any]) -> Check:
    share = given["row_count_within"]
    if not isinstance(share, int | float) or isinstance(share, bool) or not 0 < share < 1_000:
        raise InvalidInputError(
            f"row_count_within is {shown(share)}.", hint="Give a share, such as 0.5 for ± 50 %."
        )
    of_last = _count(given, "of_last", least=1)
    if of_last is not None and of_last > 1_000:
        raise InvalidInputError(f"of_last is {of_last}.", hint="Give up to 1000 batches.")
    return RowCountWithin(share=float(share), of_last=10 if of_last is None else of_last, **common)


def _read_row_count(given: Mapping[str, Any], common: dict[str, Any]) -> Check:
    return RowCount(min=_count(given, "min_rows"), max=_count(given, "max_rows"), **common)


_READERS: Mapping[str, _Reader] = {
    "rows": lambda given, common: Condition(sql=_text(given, "rows"), **common),
    "not_null": lambda given, common: NotNull(columns=_names(given, "not_null"), **common),
    "unique": lambda given, common: Unique(columns=_names(given, "unique"), **common),
    "reference": _read_reference,
    "row_count_within": _read_within,
    "min_rows": _read_row_count,
    "max_rows": _read_row_count,
    "within": lambda given, common: Fresh(
        column=_text(given, "column"), within=parse_within(given["within"]), **common
    ),
}
_KEYS: Mapping[str, tuple[str, ...]] = {
    "rows": ("rows",),
    "not_null": ("not_null",),
    "unique": ("unique",),
    "reference": ("reference",),
    "row_count_within": ("row_count_within", "of_last"),
    "min_rows": ("min_rows", "max_rows"),
    "max_rows": ("max_rows",),
    "within": ("column", "within"),
}


def checks_from_table(table: object) -> dict[str, Check]:
    """Read named checks; see `lakebed.checks.from_table`.

    Raises:
        InvalidInputError: A table or a name is not valid; the message names the check.
    """
    if not isinstance(table, Mapping):
        raise InvalidInputError(
            f"Checks are {shown(table)}.", hint="They map names to tables, as in [checks] of TOML."
        )
    if len(table) > MOST_CHECKS:
        raise InvalidInputError(
            f"A dataset cannot declare {len(table)} checks.", hint=f"Declare up to {MOST_CHECKS}."
        )
    checks = {name: check_from_table(str(name), one) for name, one in table.items()}
    check_form(checks)
    return checks


def to_tables(checks: Mapping[str, Check]) -> dict[str, Any]:
    """Return the tables of named checks, as a descriptor stores them."""
    return {name: check.to_table() for name, check in checks.items()}
