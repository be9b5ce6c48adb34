"""The OpenAPI document, made from the endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

from lakebed.archive.http.endpoint import CONTENT, Endpoint, Parameter
from lakebed.archive.http.gate import OPEN_PATHS

_SECURITY = "token"


def _object(properties: Mapping[str, Any], *optional: str) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": required}


_TEXT = {"type": "string"}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_MS = {"type": "integer", "description": "Milliseconds since the epoch."}
_MS_OR_NULL = {"type": ["integer", "null"], "description": "Null for a file of one moment."}
_FOUND = {
    "url": {**_TEXT, "description": "URL of the content in the storage."},
    "http_url": {**_TEXT, "description": "URL of the content at the server."},
    "metadata": {"$ref": "#/components/schemas/Metadata"},
}

SCHEMAS: Mapping[str, Any] = {
    "Error": _object({"code": _TEXT, "message": _TEXT}),
    "Health": {"type": "object"},
    "Spec": {"type": "object"},
    "Environment": _object({"data": _object({"build": _object({"version": _TEXT})})}),
    "Storage": _object(
        {
            "storage_url": {
                **_TEXT_OR_NULL,
                "description": "URL that clients can push to, if there is one.",
            }
        }
    ),
    "Metadata": _object(
        {
            "version": {"const": 0},
            "id": {},
            "where": _TEXT,
            "what": _TEXT,
            "work_id": _TEXT_OR_NULL,
            "path": _TEXT,
            "hash": {},
            "start": _MS,
            "end": _MS_OR_NULL,
            "start_iso": _TEXT,
            "end_iso": _TEXT_OR_NULL,
        }
    ),
    "Latest": _object(_FOUND),
    "Record": _object({**_FOUND, "create_time": _MS, "size": {"type": "integer"}}),
    "Page": _object(
        {
            "records": {"type": "array", "items": {"$ref": "#/components/schemas/Record"}},
            "next": {**_TEXT_OR_NULL, "description": "The next page; null on the last one."},
        }
    ),
}


def openapi_document(endpoints: Iterable[Endpoint], *, needs_token: bool) -> dict[str, Any]:
    """Return the OpenAPI document of endpoints."""
    components: dict[str, Any] = {"schemas": dict(SCHEMAS)}
    if needs_token:
        components["securitySchemes"] = {_SECURITY: {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lakebed archive",
            "description": "Raw files with metadata records, found by time or work id.",
            "version": version("lakebed"),
        },
        "paths": {
            endpoint.path: {
                method: _operation(endpoint, method, needs_token=needs_token)
                for method in ("get", "head")
            }
            for endpoint in endpoints
        },
        "components": components,
    }


def _operation(endpoint: Endpoint, method: str, *, needs_token: bool) -> dict[str, Any]:
    is_secured = needs_token and endpoint.path not in OPEN_PATHS
    errors = {**endpoint.errors, **({401: ("Unauthorized",)} if is_secured else {})}
    answers = _answers(endpoint, method)
    for status, codes in sorted(errors.items()):
        if status == 416 and method == "head":
            continue
        body = {} if method == "head" else _json("Error")
        answers[str(status)] = {"description": ", ".join(codes), **body}
    operation: dict[str, Any] = {
        "operationId": endpoint.name if method == "get" else f"{endpoint.name}_head",
        "summary": endpoint.meaning,
        "parameters": [_parameter(parameter) for parameter in endpoint.parameters],
        "responses": answers,
    }
    if is_secured:
        operation["security"] = [{_SECURITY: []}]
    return operation


def _answers(endpoint: Endpoint, method: str) -> dict[str, Any]:
    if endpoint.schema is None:
        return {"307": {"description": endpoint.meaning}}
    if method == "head":
        return {"200": {"description": "The headers only."}}
    if endpoint.schema == CONTENT:
        return {
            "200": {"description": "The whole content.", "content": {"*/*": {}}},
            "206": {"description": "The requested range.", "content": {"*/*": {}}},
        }
    return {"200": {"description": endpoint.meaning, **_json(endpoint.schema)}}


def _json(schema: str) -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{schema}"}
    return {"content": {"application/json": {"schema": reference}}}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.meaning,
        "required": parameter.is_required,
        "schema": {"type": parameter.type},
    }
