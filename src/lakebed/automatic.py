"""Publication after each commit, of datasets whose properties ask for it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from lakebed import delta, hive, iceberg
from lakebed.errors import InvalidInputError, LakebedError
from lakebed.state.after import PUBLISH
from lakebed.state.state import State
from lakebed.store.base import Store

if TYPE_CHECKING:
    from lakebed.hive.table import Mode

_log = logging.getLogger(__name__)

Options = Mapping[str, str]

# Properties come from storage, so they name no place where a process connects to or writes: that is
# for whoever runs it to say, as pyiceberg's configuration says what a catalog is.
METASTORE = "LAKEBED_METASTORE"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """A kind of table that a dataset can be published to.

    Attributes:
        name: `publish.<name>` is the property that asks for it, by `true`.
        options: `publish.<name>.<option>` are properties that say how.
        publish: Does it, with the options that are there.
    """

    name: str
    options: tuple[str, ...] = ()
    publish: Callable[[Store, str, Options], object]

    @property
    def property_names(self) -> tuple[str, ...]:
        """All that it knows."""
        name = f"{PUBLISH}{self.name}"
        return (name, *(f"{name}.{option}" for option in self.options))

    def options_in(self, properties: Mapping[str, str]) -> Options:
        """Return what properties say of how it is done."""
        said = {option: properties.get(f"{PUBLISH}{self.name}.{option}") for option in self.options}
        return {option: value for option, value in said.items() if value is not None}


def _to_hive(store: Store, dataset: str, options: Options) -> object:
    if "table" not in options:
        raise InvalidInputError(
            "The property 'publish.hive.table' is missing.",
            hint="Name the table by it, as database.table.",
        )
    how = hive.publication.PublishOptions(
        mode=cast("Mode | None", options.get("mode")), root=options.get("root")
    )
    metastore = os.environ.get(METASTORE)  # else that of the session that runs
    return hive.publication.publish(store, dataset, metastore, options["table"], how)


def _to_delta(store: Store, dataset: str, _options: Options) -> object:
    return delta.publication.publish(store, dataset)


def _to_iceberg(store: Store, dataset: str, options: Options) -> object:
    return iceberg.publication.publish(
        store,
        dataset,
        catalog=options.get("catalog"),
        table=options.get("table"),
        root=options.get("root"),
    )


# The quickest first: who waits for Hive need not wait for the others.
_TARGETS = (
    _Target(name="delta", publish=_to_delta),
    _Target(name="iceberg", options=("catalog", "table", "root"), publish=_to_iceberg),
    _Target(name="hive", options=("table", "mode", "root"), publish=_to_hive),
)


def publish(store: Store, state: State) -> None:
    """Publish a dataset to what its properties name, each by itself.

    What fails is a warning, and keeps no other target from being published to.
    """
    properties = state.descriptor.properties
    _warn_of_unknown(state.name, properties)
    for target in _TARGETS:
        if not _is_on(properties.get(f"{PUBLISH}{target.name}")):
            continue
        try:
            target.publish(store, state.name, target.options_in(properties))
        except Exception as exc:  # noqa: BLE001 - the commit was made, and others are to be told
            _log.warning(
                "not published after a commit dataset=%s to=%s: %s",
                state.name,
                target.name,
                f"{exc.message} {exc.hint}" if isinstance(exc, LakebedError) else repr(exc),
            )


def _is_on(value: str | None) -> bool:
    return value is not None and value.strip().lower() == "true"


def _warn_of_unknown(dataset: str, properties: Mapping[str, str]) -> None:
    known = [name for target in _TARGETS for name in target.property_names]
    for name in properties:
        if name.startswith(PUBLISH) and name not in known:
            _log.warning(
                "unknown property dataset=%s %s; known: %s", dataset, name, ", ".join(known)
            )
    for target in _TARGETS:
        value = properties.get(f"{PUBLISH}{target.name}", "false")
        if value.strip().lower() not in ("true", "false"):
            _log.warning(
                "property dataset=%s %s%s is %r; it is true or false",
                dataset,
                PUBLISH,
                target.name,
                value,
            )
