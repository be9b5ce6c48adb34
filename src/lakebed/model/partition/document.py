"""Partition strategies as Kite's JSON."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping

from lakebed.errors import InvalidNameError, PartitionSpecError
from lakebed.model.partition.function import PartitionFunction
from lakebed.model.partition.registry import FUNCTIONS, build_function

_HEAD = ("type", "source", "name")
# Kite's names that differ from ours.
_KITE = {"dateFormat": "date_format"}


def functions_from_json(text: str) -> tuple[PartitionFunction, ...]:
    """Read Kite's JSON form.

    Raises:
        PartitionSpecError: The text is not JSON, or not of that form.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise PartitionSpecError(
            f"The partition strategy is not JSON: {text[:80]!r}.", hint=str(exc)
        ) from exc
    return functions_from_document(document)


def functions_from_document(document: object) -> tuple[PartitionFunction, ...]:
    """Read Kite's JSON form, parsed.

    Raises:
        PartitionSpecError: The document is not of that form; the message names the place.
    """
    if not isinstance(document, list):
        raise PartitionSpecError(
            f"A partition strategy must be a JSON array, not {reprlib.repr(document)}.",
            hint='For example [{"type": "date", "source": "ts", "name": "dt"}].',
        )
    return tuple(_read(entry, f"[{position}]") for position, entry in enumerate(document))


def _read(document: object, place: str) -> PartitionFunction:
    if not isinstance(document, Mapping) or not isinstance(document.get("type"), str):
        raise PartitionSpecError(
            f"{place}: a partition function must be an object with a type, "
            f"not {reprlib.repr(document)}.",
            hint='For example {"type": "date", "source": "ts", "name": "dt"}.',
        )
    type_name = _type_name(document)
    name = document.get("name")
    if name is not None and not isinstance(name, str):
        raise PartitionSpecError(f"{place}.name: {reprlib.repr(name)} is not text.")
    if type_name in FUNCTIONS and not FUNCTIONS[type_name].takes_source:
        source = _source_of_provided(document, name, place)
    else:
        source = _source(document, place)
    parameters = {key: value for key, value in document.items() if key not in _HEAD}
    try:
        return build_function(type_name, source, parameters, name)
    except (PartitionSpecError, InvalidNameError) as exc:
        raise type(exc)(f"{place}: {exc.message}", hint=exc.hint) from exc


def _type_name(document: Mapping[str, object]) -> str:
    type_name = str(document["type"])
    if type_name == "range" and "size" in document:
        return "fixed_range"
    return _KITE.get(type_name, type_name)


def _source(document: Mapping[str, object], place: str) -> str:
    source = document.get("source")
    # Kite reads a number as its text.
    if isinstance(source, bool) or not isinstance(source, str | int):
        raise PartitionSpecError(
            f"{place}.source: partition function {document['type']!r} has no source.",
            hint='Add "source", the name of a field.',
        )
    return str(source)


def _source_of_provided(document: Mapping[str, object], name: str | None, place: str) -> str:
    if name is None or "source" in document:
        raise PartitionSpecError(
            f"{place}: a provided partition field has a name and no source.",
            hint='For example {"type": "provided", "name": "version", "values": "int"}.',
        )
    return name
