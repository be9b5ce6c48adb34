"""Changes that a client asks for, applied to the metadata of an Iceberg table by pyiceberg. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV1
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSortOrderUpdate,
    RemovePropertiesUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    TableUpdate,
    update_table_metadata,
)

_LAST_ADDED = -1
_SIZED = re.compile(r"(?:bucket|truncate)\[([0-9]+)\]")


def apply_updates(
    base: TableMetadata, updates: Sequence[TableUpdate], location: str | None
) -> TableMetadata:
    """Return metadata with updates, as Iceberg's own catalogs apply them.

    pyiceberg takes the ids of new schemas, specs and orders from the request. Those were chosen by a
    client that may not have seen the newest metadata: an equal one is used again, and others get the
    next free id. -1 stands for the one that the request has added last.
    """
    known = _Known(base)
    renumbered = tuple(one for update in updates for one in known.renumber(update))
    metadata = update_table_metadata(
        base, renumbered, enforce_validation=location is None, metadata_location=location
    )
    if not isinstance(base, TableMetadataV1) and not isinstance(metadata, TableMetadataV1):
        # pyiceberg takes the number of the last snapshot, although it may be smaller.
        last = max(base.last_sequence_number, metadata.last_sequence_number)
        metadata = metadata.model_copy(update={"last_sequence_number": last})
    # Validates what the models of pyiceberg were copied with.
    return TableMetadataUtil.parse_raw(metadata.model_dump_json(exclude_none=True))


class _Known:
    """The schemas, partition specs and sort orders of a table, while updates are applied to it."""

    def __init__(self, base: TableMetadata) -> None:
        is_empty = base.last_column_id < 0  # the table is being created
        self._schemas: list[Schema] = [] if is_empty else list(base.schemas)
        self._specs: list[PartitionSpec] = [] if is_empty else list(base.partition_specs)
        self._orders: list[SortOrder] = [] if is_empty else list(base.sort_orders)
        self._properties = {} if is_empty else dict(base.properties)
        self._added: dict[str, tuple[int, int]] = {}  # id in the request, and in the table

    def renumber(self, update: TableUpdate) -> list[TableUpdate]:
        """Return the updates that stand for one of a request."""
        match update:
            case AddSchemaUpdate():
                return self._add_schema(update.schema_)
            case SetCurrentSchemaUpdate():
                return [
                    SetCurrentSchemaUpdate.model_construct(
                        schema_id=self._id("schema", update.schema_id)
                    )
                ]
            case AddPartitionSpecUpdate():
                return self._add_spec(update.spec)
            case SetDefaultSpecUpdate():
                return [
                    SetDefaultSpecUpdate.model_construct(spec_id=self._id("spec", update.spec_id))
                ]
            case AddSortOrderUpdate():
                return self._add_order(update.sort_order)
            case SetDefaultSortOrderUpdate():
                order_id = self._id("order", update.sort_order_id)
                return [SetDefaultSortOrderUpdate.model_construct(sort_order_id=order_id)]
            case SetPropertiesUpdate():
                self._properties |= update.updates
            case RemovePropertiesUpdate():
                removals = [name for name in update.removals if name in self._properties]
                return [RemovePropertiesUpdate(removals=removals)]
        return [update]

    def _id(self, what: str, given: int) -> int:
        if what not in self._added:
            if given == _LAST_ADDED:
                raise ValueError(f"it makes the {what} current that it has added, and adds none")
            return given
        asked, own = self._added[what]
        return own if given in (_LAST_ADDED, asked) else given

    def _add_schema(self, schema: Schema) -> list[TableUpdate]:
        same = next(
            (
                one
                for one in self._schemas
                if one.as_struct() == schema.as_struct()
                and one.identifier_field_ids == schema.identifier_field_ids
            ),
            None,
        )
        if same is not None:
            self._added["schema"] = schema.schema_id, same.schema_id
            return []
        number = max((one.schema_id for one in self._schemas), default=-1) + 1
        new = schema.model_copy(update={"schema_id": number})
        self._schemas.append(new)
        self._added["schema"] = schema.schema_id, number
        return [AddSchemaUpdate.model_construct(schema_=new)]

    def _add_spec(self, spec: PartitionSpec) -> list[TableUpdate]:
        same = next((one for one in self._specs if one.fields == spec.fields), None)
        if same is not None:
            self._added["spec"] = spec.spec_id, same.spec_id
            return []
        self._check_sources(spec.fields)
        number = max((one.spec_id for one in self._specs), default=-1) + 1
        new = PartitionSpec(*spec.fields, spec_id=number)
        self._specs.append(new)
        self._added["spec"] = spec.spec_id, number
        return [AddPartitionSpecUpdate(spec=new)]

    def _check_sources(self, fields: Iterable[PartitionField | SortField]) -> None:
        """Check that fields refer to columns and have transforms that other clients can read."""
        columns = {column for schema in self._schemas for column in schema.field_ids}
        for field in fields:
            if field.source_id not in columns:
                msg = f"there is no column of the id {field.source_id}"
                raise ValueError(msg)
            parsed = _SIZED.fullmatch(str(field.transform))
            if parsed is not None and not 0 < int(parsed[1]) < 1 << 31:
                msg = f"the transform {field.transform} has no valid size"
                raise ValueError(msg)

    def _add_order(self, order: SortOrder) -> list[TableUpdate]:
        same = next((one for one in self._orders if one.fields == order.fields), None)
        if same is not None:
            self._added["order"] = order.order_id, same.order_id
            return []
        self._check_sources(order.fields)
        # 0 is the order of a table without one.
        number = max((one.order_id for one in self._orders), default=0) + 1 if order.fields else 0
        new = SortOrder(*order.fields, order_id=number)
        self._orders.append(new)
        self._added["order"] = order.order_id, number
        return [AddSortOrderUpdate.model_construct(sort_order=new)]
