"""Storage options that are given once, instead of with each call.

They come from the variable `LAKEBED_STORAGE_OPTIONS` and from a file, and what a call gives goes
before both. What they leave open is left to the cloud's own defaults.

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
from lakebed.store.user_files import find_user_file

OPTIONS_VARIABLE = "LAKEBED_STORAGE_OPTIONS"
CONFIG_VARIABLE = "LAKEBED_CONFIG"

_TABLE = "storage"
_EXAMPLE = '[storage."s3://bucket"]'
_SECTION = re.compile(r"([a-z][a-z0-9+.-]+)://")
_LOCAL = frozenset({"file", "memory"})
# Names of one setting; of two, the one that is given nearer to the call holds.
_SAME = {"endpoint_url": "endpoint", "endpoint_url_s3": "endpoint", "default_region": "region"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredOptions:
    """The options of a store, with where they come from.

    Attributes:
        options: All of them.
        sources: Where those that the call did not give come from, with their names.
    """

    options: StorageOptions
    sources: Mapping[str, tuple[str, ...]]

    @property
    def note(self) -> str:
        """Where to look if an option is wrong; empty if the call gave all."""
        texts = [f"{', '.join(names)} from {source}" for source, names in self.sources.items()]
        return f"Storage options were taken beside those of the call: {'; '.join(texts)}." * bool(
            texts
        )


def configured_options(url: str, given: Mapping[str, str]) -> ConfiguredOptions:
    """Return the options of a store: of the call, then of the environment, then of the file.

    Who asks is said in one place: where options of one of them hold credentials, the credentials
    of the next are left out, so that a key is not joined with a token of another one.

    Args:
        url: Of the store; of sections that fit, the longest goes first.
        given: What the call gives.

    Raises:
        InvalidInputError: The variable or the file cannot be read; no value is shown.
    """
    url = _normalised(url)
    service = SERVICES.get(url.partition(":")[0])
    options, sources = StorageOptions(given), dict[str, tuple[str, ...]]()
    for source, sections in _sources():
        for prefix in sorted((one for one in sections if _fits(url, one)), key=len, reverse=True):
            missing = _missing(options, sections[prefix], service)
            options = StorageOptions({**missing, **options})
            if missing:
                sources[source] = (*sources.get(source, ()), *sorted(missing))
    return ConfiguredOptions(options=options, sources=sources)


_Sections = Mapping[str, StorageOptions]


def _sources() -> Iterator[tuple[str, _Sections]]:
    """Yield what is to be asked in turn: a name for errors, and options by the URLs they are for."""
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
                hint="Write key=value,key=value, or JSON if a value holds a comma.",
            )
        return {"": StorageOptions({name.strip(): value.strip() for name, _, value in pairs})}
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        # Not as the cause: it holds the text, secrets included.
        raise InvalidInputError(
            f"{OPTIONS_VARIABLE} begins as JSON, and is none.",
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
                f"{CONFIG_VARIABLE} is {named!r}, which names no home directory: {exc}",
                hint="Give the path without '~'.",
            ) from exc
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return find_user_file(f"{folder}/lakebed/config.toml")


def _of_file(path: Path) -> _Sections:
    import tomllib  # here: most have no such file

    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as exc:
        problem = exc.strerror if isinstance(exc, OSError) else _place_of(exc)
        raise InvalidInputError(
            f"The file {path} cannot be read: {problem}.",
            hint=f"It is TOML, with sections such as {_EXAMPLE}; {CONFIG_VARIABLE} names another.",
        ) from None
    unknown = sorted(set(document) - {_TABLE})
    if unknown or not isinstance(document.get(_TABLE, {}), Mapping):
        raise InvalidInputError(
            f"The file {path} holds {unknown or _TABLE}, which means nothing to Lakebed.",
            hint=f"Write sections such as {_EXAMPLE}.",
        )
    return _checked(document.get(_TABLE, {}), str(path))


def _place_of(exc: Exception) -> str:
    """Return the line and the column of an error of TOML, and nothing of what stands there."""
    place = re.search(r"\(at [^)]*\)$", str(exc))
    return f"no TOML {place[0]}" if place else "no TOML"


def _checked(document: Mapping[str, Any], source: str) -> _Sections:
    sections = dict[str, StorageOptions]()
    for prefix, options in document.items():
        match = _SECTION.match(refuse_credentials(prefix).lower())
        if match is None or match[1] in _LOCAL or not isinstance(options, Mapping):
            raise InvalidInputError(
                f"{source} holds {prefix!r}, which is no section of a store.",
                hint=f"Sections are named by the URLs that they are for, such as {_EXAMPLE} or "
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
            f"The options {odd} of {source} are neither texts nor numbers nor truth values.",
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
    """Return those of `more` that `options` say nothing of."""
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
    """Whether the name says of which service it is, and it is not this one."""
    return any(
        name.lower().startswith(other.option_prefix)
        for other in SERVICES.values()
        if other is not service
    )
