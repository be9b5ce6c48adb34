"""An endpoint, from which its route is made and its part of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

Handler = Callable[[Request], Response]

CONTENT = "content"  # in the place of the name of a JSON schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """Something that a client says in the URL.

    Attributes:
        name: Its name.
        place: Where it stands.
        meaning: What it says.
        is_required: Whether it must be there.
        type: Of JSON schema.
    """

    name: str
    place: Literal["path", "query"]
    meaning: str
    is_required: bool = False
    type: Literal["string", "integer"] = "string"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """What can be asked under one path, by GET and HEAD.

    Attributes:
        path: With parameters in braces.
        name: Unique among endpoints.
        meaning: What the answer is.
        handler: Who answers.
        schema: Of the answer: a name of the JSON schemas, or `CONTENT`; None for a redirection.
        parameters: What the client says.
        errors: Status to codes.
    """

    path: str
    name: str
    meaning: str
    handler: Handler
    schema: str | None
    parameters: tuple[Parameter, ...] = ()
    errors: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    def routes(self) -> list[Route]:
        """Return its routes: a final slash may be left out."""
        # An id of old archives may hold a slash, which comes decoded.
        path = self.path.replace("{file_id}", "{file_id:path}")
        paths = [path] if path == "/" else list(dict.fromkeys([path, path.removesuffix("/")]))
        return [
            Route(spelling, self.handler, methods=["GET"], name=self.name) for spelling in paths
        ]
