"""The archive over HTTP, compatible with clients of `datalake`. Needs the extra `serve`."""

from lakebed.archive.http.server import create_app, serve

__all__ = ["create_app", "serve"]
