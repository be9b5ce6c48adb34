"""Buckets of hash codes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakebed.errors import PartitionSpecError
from lakebed.model.hashing import HASHABLE, java_hash, java_hash_array
from lakebed.model.partition.function import PartitionFunction, kind_of
from lakebed.model.schema import Kind, Primitive, Type
from lakebed.model.values import Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Hash(PartitionFunction):
    """Java's hash code modulo a number of buckets, as Kite computes it."""

    buckets: int

    type_name = "hash"
    kinds = HASHABLE
    required = ("buckets",)

    def __post_init__(self) -> None:
        # The two-argument form: slots=True creates a new class, which bare super() does not find.
        super(Hash, self).__post_init__()
        whole = isinstance(self.buckets, int) and not isinstance(self.buckets, bool)
        if not whole or not 1 <= self.buckets < 2**31:
            raise PartitionSpecError(
                f"{self.call} cannot have {self.buckets!r} buckets.",
                hint="Give a whole number of at least 1.",
            )

    @property
    def cardinality(self) -> int:
        """The number of buckets."""
        return self.buckets

    def result_type(self, source: Type) -> Type:  # noqa: ARG002 - see PartitionFunction
        """Return int."""
        return Primitive(Kind.INT)

    def value(self, value: Scalar, source: Type) -> Scalar:
        """Return the bucket, 0 to `buckets` - 1."""
        return (java_hash(value, kind_of(source)) & 0x7FFFFFFF) % self.buckets

    def array(self, array: pa.Array, source: Type) -> pa.Array:
        """Return the buckets."""
        valid = array.is_valid()
        codes = java_hash_array(array.drop_null(), kind_of(source))
        buckets = ((codes & np.uint32(0x7FFFFFFF)) % np.uint32(self.buckets)).astype(np.int32)
        if array.null_count == 0:
            return pa.array(buckets, pa.int32())
        spread = np.zeros(len(array), dtype=np.int32)
        mask = valid.to_numpy(zero_copy_only=False)
        spread[mask] = buckets
        return pa.array(spread, pa.int32(), mask=~mask)
