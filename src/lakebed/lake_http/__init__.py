"""A lake and an archive for people with a browser. Needs the extra `serve`."""

from lakebed.lake_http.server import create_app, serve

__all__ = ["create_app", "serve"]
