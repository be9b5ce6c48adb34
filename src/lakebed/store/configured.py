"""Storage options that are configured once, instead of with each call.

They come from the variable `LAKEBED_STORAGE_OPTIONS` and from a file; options of a call take
precedence over both. The cloud's own defaults fill in the rest.

    LAKEBED_STORAGE_OPTIONS='endpoint=http://minio:9000,allow_http=true'
    LAKEBED_STORAGE_OPTIONS='{"s3://lake": {"endpoint": "http://minio:9000"}}'

    # ~/.config/lakebed/config.toml, or the file that LAKEBED_CONFIG names
    [storage."s3://lake"]
    endpoint = "http://minio:9000"
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakebed.common.redaction import StorageOptions, is_option_name
from lakebed.errors import InvalidInputError
from lakebed.model.locations import refuse_credentials
from lakebed.store.object_options import SERVICE_ALIASES, SERVICES, Service
from lakebed.store.profile import find_user_file

OPTIONS_VARIABLE = "LAKEBED_STORAGE_OPTIONS"
CONFIG_VARIABLE = "LAKEBED_CONFIG"

_TABLE = "storage"
_EXAMPLE = '[storage."s3://bucket"]'
_SECTION = re.compile(r"([a-z][a-z0-9+.-]+)://")
_LOCAL = frozenset({"file", "memory"})
# Other names of a setting; among several, the one closest to the call takes precedence.
_SAME = {"endpoint_url": "endpoint", "endpoint_url_s3": "endpoint", "default_region": "region"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredOptions:
    """The options of a store and their sources.

    Attributes:
        options: All options, those of the call included.
        sources: Names of the options that the call did not give, by source.
    """

    options: StorageOptions
    sources: Mapping[str, tuple[str, ...]]

    @property
    def note(self) -> str:
        """Text that names the sources, for errors; empty if the call gave all options."""
        texts = [f"{', '.join(names)} from {source}" for source, names in self.sources.items()]
        return f"Storage options not given by the call: {'; '.join(texts)}." * bool(texts)


def configured_options(url: str, given: Mapping[str, str]) -> ConfiguredOptions:
    """Return the options of a store: from the call, then the environment, then the file.

    Credentials come from one source only: if a source has some, those of the next sources are
    ignored, so that a key is not combined with another key's token.

    Args:
        url: URL of the store; the longest matching section takes precedence.
        given: Options of the call.

    Raises:
        InvalidInputError: The variable or the file cannot be read; the message shows no values.
    """
    url = _normalised(url)
    service = SERVICES.get(url.partition(":")[0])
    options, sources = StorageOptions(given), dict[str, tuple[str, ...]]()
    for source, sections in _sources():
        matching = [prefix for prefix in sections if _fits(url, prefix)]
        for prefix in sorted(matching, key=len, reverse=True):
            missing = _missing(options, sections[prefix], service)
            options = StorageOptions({**missing, **options})
            if missing:
                sources[source] = (*sources.get(source, ()), *sorted(missing))
    return ConfiguredOptions(options=options, sources=sources)


_Sections = Mapping[str, StorageOptions]


def _sources() -> Iterator[tuple[str, _Sections]]:
    """Yield each source in order: its name for errors, and its options by URL prefix."""
    text = os.environ.get(OPTIONS_VARIABLE, "").strip()
    if text:
        yield OPTIONS_VARIABLE, _of_variable(text)
    path = _config_path()
    if path is not None:
        yield str(path), _of_file(path)


def _of_variable(text: str) -> _Sections:
    if not text.startswith("{"):
        pairs = [part.partition("=") for part in text.split(",") if part.strip()]
        if not all(is_option_name(name.strip()) and sign for name, sign, _ in pairs):
            raise InvalidInputError(
                f"A part of {OPTIONS_VARIABLE} is not of the form key=value.",
                hint="Write key=value,key=value, or JSON if a value contains a comma.",
            )
        return {"": StorageOptions({name.strip(): value.strip() for name, _, value in pairs})}
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        # Without the cause, which contains the text, secrets included.
        raise InvalidInputError(
            f"{OPTIONS_VARIABLE} begins with '{{' but is not valid JSON.",
            hint='Write {"key": "value"}, or key=value,key=value.',
        ) from None
    if all(isinstance(value, Mapping) for value in document.values()):
        return _checked(document, OPTIONS_VARIABLE)
    return {"": _flat(document, OPTIONS_VARIABLE)}


def _config_path() -> Path | None:
    named = os.environ.get(CONFIG_VARIABLE)
    if named:
        try:
            return Path(named).expanduser()
        except RuntimeError as exc:
            raise InvalidInputError(
                f"{CONFIG_VARIABLE} is {named!r}, whose home directory was not found: {exc}",
                hint="Give the path without '~'.",
            ) from exc
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return find_user_file(f"{folder}/lakebed/config.toml")


def _of_file(path: Path) -> _Sections:
    import tomllib  # here: most users have no such file

    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as exc:
        problem = exc.strerror if isinstance(exc, OSError) else _position_of(exc)
        raise InvalidInputError(
            f"The file {path} cannot be read: {problem}.",
            hint=f"Write TOML with sections such as {_EXAMPLE}, or set {CONFIG_VARIABLE} to "
            "another file.",
        ) from None
    unknown = sorted(set(document) - {_TABLE})
    if unknown or not isinstance(document.get(_TABLE, {}), Mapping):
        raise InvalidInputError(
            f"The file {path} has {unknown or _TABLE}, which Lakebed does not know.",
            hint=f"Write sections such as {_EXAMPLE}.",
        )
    return _checked(document.get(_TABLE, {}), str(path))


def _position_of(exc: Exception) -> str:
    """Return the line and the column of a TOML error, without the text there."""
    position = re.search(r"\(at [^)]*\)$", str(exc))
    return f"not valid TOML {position[0]}" if position else "not valid TOML"


def _checked(document: Mapping[str, Any], source: str) -> _Sections:
    sections = dict[str, StorageOptions]()
    for prefix, options in document.items():
        match = _SECTION.match(refuse_credentials(prefix).lower())
        if match is None or match[1] in _LOCAL or not isinstance(options, Mapping):
            raise InvalidInputError(
                f"{source} has {prefix!r}, which is not a section for a store.",
                hint=f"Name each section by the URL that it is for, such as {_EXAMPLE} or "
                '[storage."gs://"].',
            )
        sections[_normalised(prefix)] = _flat(options, source)
    return sections


def _flat(options: Mapping[str, Any], source: str) -> StorageOptions:
    odd = sorted(
        name for name, value in options.items() if not isinstance(value, str | int | float)
    )
    if odd:
        raise InvalidInputError(
            f"The options {odd} of {source} are not strings, numbers or booleans.",
            hint='Write them as key = "value".',
        )
    return StorageOptions(
        {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in options.items()
        }
    )


def _normalised(url: str) -> str:
    scheme, separator, rest = url.partition(":")
    scheme = scheme.lower()
    return f"{SERVICE_ALIASES.get(scheme, scheme)}{separator}{rest}".rstrip("/")


def _fits(url: str, prefix: str) -> bool:
    return not prefix or f"{url}/".startswith(f"{prefix}/")


def _missing(
    options: Mapping[str, str], more: Mapping[str, str], service: Service | None
) -> dict[str, str]:
    """Return the options of `more` that `options` do not set."""
    if service is None:
        return {name: value for name, value in more.items() if name not in options}
    known = {_setting(service, name) for name in options}
    has_credentials = not service.credentials.isdisjoint(known)
    return {
        name: value
        for name, value in more.items()
        if (setting := _setting(service, name)) not in known
        and not (has_credentials and setting in service.credentials)
        and not _is_of_another(service, name)
    }


def _setting(service: Service, name: str) -> str:
    bare = service.bare(name)
    return _SAME.get(bare, bare)


def _is_of_another(service: Service, name: str) -> bool:
    """Return whether the name has the prefix of another service."""
    return any(
        name.lower().startswith(other.option_prefix)
        for other in SERVICES.values()
        if other is not service
    )
