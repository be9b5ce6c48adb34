"""Endpoints, from which routes and the OpenAPI document are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

Handler = Callable[[Request], Response]

CONTENT = "content"  # instead of the name of a JSON schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter in the URL of a request.

    Attributes:
        name: Name of the parameter.
        place: The part of the URL that contains it.
        meaning: Description for the OpenAPI document.
        is_required: True if clients must give it.
        type: Type in the JSON schema.
    """

    name: str
    place: Literal["path", "query"]
    meaning: str
    is_required: bool = False
    type: Literal["string", "integer"] = "string"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An endpoint of one path, for GET and HEAD.

    Attributes:
        path: Path with parameters in braces.
        name: Unique among endpoints.
        meaning: Description of the response.
        handler: The function that handles requests.
        schema: Schema of the response: a name of the JSON schemas, or `CONTENT`; None for a
            redirection.
        parameters: Parameters of the request.
        errors: Mapping from status to error codes.
    """

    path: str
    name: str
    meaning: str
    handler: Handler
    schema: str | None
    parameters: tuple[Parameter, ...] = ()
    errors: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    def routes(self) -> list[Route]:
        """Return the routes: a final slash is optional."""
        # An id of an old archive may contain a slash, which arrives decoded.
        path = self.path.replace("{file_id}", "{file_id:path}")
        paths = [path] if path == "/" else list(dict.fromkeys([path, path.removesuffix("/")]))
        return [
            Route(spelling, self.handler, methods=["GET"], name=self.name) for spelling in paths
        ]
