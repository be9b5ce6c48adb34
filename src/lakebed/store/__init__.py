"""Bytes under keys: directories, memory and object stores behind one small promise."""

from lakebed.store.base import ObjectInfo, ObjectStat, Store, StoredObject, validate_key
from lakebed.store.locate import open_store

__all__ = ["ObjectInfo", "ObjectStat", "Store", "StoredObject", "open_store", "validate_key"]
