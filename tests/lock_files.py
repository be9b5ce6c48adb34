"""The lock files of `locks/`: which versions they name, and with which hashes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "locks"


@dataclass(frozen=True)
class Pin:
    """One version of a package, and the hashes of its files."""

    requirement: Requirement
    hashes: tuple[str, ...]

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str:
        (specifier,) = self.requirement.specifier
        return specifier.version


def read_pins(path: Path) -> Iterator[Pin]:
    """Yield the pins of a lock file; anything else in it is an error."""
    lines = path.read_text().replace("\\\n", " ").splitlines()
    for line in lines:
        if line.startswith("#"):
            continue
        requirement, *options = line.split(" --hash=")
        yield Pin(Requirement(requirement), tuple(option.strip() for option in options))


def pinned_versions(name: str) -> dict[str, str]:
    """Return the versions that a lock file has for this Python, by name of the package."""
    return {
        pin.name: pin.version
        for pin in read_pins(FOLDER / f"{name}.txt")
        if pin.requirement.marker is None or pin.requirement.marker.evaluate()
    }


def write_constraints(name: str, path: Path) -> Path:
    """Write the versions of a lock file without hashes, as pip takes them beside a local wheel."""
    path.write_text("".join(f"{name}=={pin}\n" for name, pin in pinned_versions(name).items()))
    return path
