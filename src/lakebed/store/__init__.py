"""Bytes under keys: directories, memory, object stores and HDFS behind one small interface."""

from lakebed.store.base import ObjectInfo, ObjectStat, Store, StoredObject, validate_key
from lakebed.store.locate import open_store

__all__ = ["ObjectInfo", "ObjectStat", "Store", "StoredObject", "open_store", "validate_key"]
