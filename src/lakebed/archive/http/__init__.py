"""The archive over HTTP, as the clients of `datalake` know it. Needs the extra `serve`."""

from lakebed.archive.http.server import create_app, serve

__all__ = ["create_app", "serve"]
