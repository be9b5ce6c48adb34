"""The cache of the process, as the rooms above the store know it."""

from lakebed.store.cache import MAX_CACHE_BYTES, PROCESS_CACHE, Cache, cached_get, is_cached

__all__ = ["MAX_CACHE_BYTES", "PROCESS_CACHE", "Cache", "cached_get", "is_cached"]
