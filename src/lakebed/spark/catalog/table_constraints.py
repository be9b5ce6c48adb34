"""Constraints of SQL as declared checks, and declared checks as constraints.

A CHECK of SQL accepts a row whose condition is unknown, as of null. A condition of ours does not. So
the stored condition accepts unknown by name, such as `n > 0 OR n IS NULL`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lakebed.errors import InvalidInputError, LakebedError
from lakebed.model.declared import Check, Condition, NotNull, predicate_of
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.predicate import FALSE, TRUE, Predicate, all_of, any_of, complement, negate
from lakebed.model.schema import Schema, Type, dotted_types
from lakebed.spark.jvm_filters import said_by_jvm
from lakebed.spark.types import struct_type

if TYPE_CHECKING:
    from lakebed.spark.catalog.session_jvm import Jvm
    from lakebed.state.state import State


def with_constraint(
    jvm: Jvm, old: DatasetDescriptor, constraint: Any, statement: str
) -> DatasetDescriptor:
    """Return a descriptor with another check.

    Args:
        jvm: The JVM of the session.
        old: The descriptor.
        constraint: Constraint of the JVM.
        statement: Name of the statement, for the error.

    Raises:
        InvalidInputError: The constraint is not a CHECK, its condition cannot be a check of ours, or
            the name is taken.
    """
    name = str(constraint.name())
    if name in old.checks:
        raise InvalidInputError(
            f"{statement}: there is a check {name!r}, {old.checks[name]}.",
            hint=f"Choose another name, or write DROP CONSTRAINT {name} before.",
        )
    return old.with_check(name, _check_of(jvm, constraint, old.schema, statement))


def _check_of(jvm: Jvm, constraint: Any, schema: Schema, statement: str) -> Check:
    if constraint.getClass().getSimpleName() != "Check":
        raise InvalidInputError(
            f"{statement}: the catalog does not take the constraint {constraint.toDDL()}.",
            hint="Leave it out. Checks of keys and references are declared in Python, by "
            "checks.unique and checks.reference.",
        )
    frame = jvm.spark.createDataFrame([], struct_type(schema)).where(constraint.predicateSql())
    condition = jvm.find_condition(frame)
    types = dotted_types(schema)
    failing = None if condition is None else _find_exact(jvm, condition, types, is_negated=True)
    if failing is None:
        raise InvalidInputError(
            f"{statement}: the condition {constraint.predicateSql()} cannot be a check.",
            hint="Compare columns with constants, by =, <, IN, BETWEEN, LIKE 'x%' and IS NULL, "
            "joined by AND, OR and NOT.",
        )
    return Condition(sql=str(complement(failing)))


def _find_exact(
    jvm: Jvm, condition: Any, types: Mapping[str, Type], *, is_negated: bool = False
) -> Predicate | None:
    """Return the predicate that is true where a filter of the JVM is true, or is false if negated."""
    match condition.productPrefix():
        case "AlwaysTrue":
            return FALSE if is_negated else TRUE
        case "AlwaysFalse":
            return TRUE if is_negated else FALSE
        case "Not":
            return _find_exact(jvm, condition.child(), types, is_negated=not is_negated)
        case "And" | "Or" as operator:
            sides = [
                _find_exact(jvm, side, types, is_negated=is_negated)
                for side in (condition.left(), condition.right())
            ]
            known = [side for side in sides if side is not None]
            if len(known) < len(sides):
                return None
            return all_of(known) if (operator == "And") != is_negated else any_of(known)
    return said_by_jvm(jvm.sql.sources.Not(condition) if is_negated else condition, types)


def constraints_of(jvm: Jvm, state: State) -> Any:
    """Return the conditions that each row fulfils, as constraints of the JVM.

    Spark tests them on the rows of its statements. So those are left out that do not refuse a
    write, and those that rows of the table may fail.
    """
    make = jvm.connector.catalog.constraints.Constraint
    valid = getattr(jvm.connector.catalog.constraints, "Constraint$ValidationStatus").VALID
    standing = state.standing_of_checks()
    return jvm.to_array(
        make,
        [
            make.check(name)
            .predicateSql(text)
            .enforced(True)  # noqa: FBT003 - Spark's signature
            .validationStatus(valid)
            .build()
            for name, text in _texts_of(state.descriptor)
            if standing[name] == "passed"
        ],
    )


def _texts_of(descriptor: DatasetDescriptor) -> Iterable[tuple[str, str]]:
    for name, check in descriptor.checks.items():
        if not isinstance(check, Condition | NotNull) or check.on_failure != "refuse":
            continue
        try:
            condition = predicate_of(check, descriptor.schema)
        except LakebedError:
            continue  # of a newer release
        accepts_unknown = complement(negate(condition)) == condition
        yield name, str(condition if accepts_unknown else complement(complement(condition)))
