"""An S3 service on this machine, for this run of the tests."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator

import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class _QuietHandler(WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Keep a line for each request out of the output of the tests."""


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """Serve S3 on a free port of 127.0.0.1, one request at a time.

    moto does not exclude its own threads from each other; one at a time, its conditions hold.
    """
    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, app, threaded=False, request_handler=_QuietHandler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def s3_options(s3_endpoint: str) -> dict[str, str]:
    """Return the storage options that lead to the service; it has two buckets."""
    versioning = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
    for path, body in [("lake", b""), ("versioned", b""), ("versioned?versioning", versioning)]:
        request = urllib.request.Request(f"{s3_endpoint}/{path}", data=body, method="PUT")
        request.add_header("Content-Type", "application/xml")  # a form would be sent elsewhere
        with urllib.request.urlopen(request) as answer:
            assert answer.status == 200
    return {
        "endpoint": s3_endpoint,
        "allow_http": "true",
        "region": "us-east-1",
        "access_key_id": "testing",
        "secret_access_key": "testing",
        "max_retries": "0",
    }
