"""The server of this process for calls from the JVM of a classic session, closed to other processes.

PySpark starts it without a token: any process of the machine can call the Python objects that the
JVM holds. The server and the client in the JVM both know tokens, so both get the same one.
"""

from __future__ import annotations

import secrets
import threading
from typing import Any

_lock = threading.Lock()
_CLIENT = "py4j.CallbackClient"  # the class that declares the token; others inherit it


def start_callbacks(gateway: Any) -> str:
    """Start the server for calls from the JVM, unless it runs, and give it a token.

    Args:
        gateway: The gateway of a Spark context.

    Returns:
        Why the server takes calls without a token; empty if it refuses them.

    Cost:
        Some calls into the JVM; one attribute if it was called before.
    """
    from py4j.java_gateway import JavaObject
    from py4j.protocol import Py4JError
    from pyspark.java_gateway import ensure_callback_server_started

    with _lock:
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]  # pyspark's
        parameters = gateway.callback_server_parameters
        if parameters.auth_token is not None:
            return ""
        token = secrets.token_hex(32)
        try:
            # No public method: a client that gets a new port forgets its token.
            client = JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()
            class_ = client.getClass()
            while class_.getName() != _CLIENT:
                class_ = class_.getSuperclass()
            field = class_.getDeclaredField("authToken")
            field.setAccessible(True)
            field.set(client, token)
        except (Py4JError, AttributeError) as exc:
            return f"the JVM takes no token: {str(exc).splitlines()[0]}"
        parameters.auth_token = token
        return ""
