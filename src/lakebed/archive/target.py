"""Target paths of fetched files, made from their metadata, inside one folder."""

from __future__ import annotations

from pathlib import Path

from lakebed.archive.content import using
from lakebed.archive.metadata import FileMetadata
from lakebed.archive.template import fill
from lakebed.archive.times import to_iso
from lakebed.errors import InvalidInputError

DEFAULT_TEMPLATE = "{id}"

_MAX_COMPONENT_BYTES = 255


def target_path(folder: Path, template: str, metadata: FileMetadata) -> Path:
    """Return the path in `folder` for a file, and make its directories.

    Raises:
        InvalidInputError: The template is wrong, or the path leads out of the folder, even by a
            symbolic link, or cannot be made.
    """
    relative = _relative_path(template, metadata)
    target = folder / relative
    with using(target):
        folder.mkdir(parents=True, exist_ok=True)
        root = folder.resolve()
        # Check before anything is made, and again when it exists.
        _check_inside(root, target.parent, template)
        target.parent.mkdir(parents=True, exist_ok=True)
        _check_inside(root, target.parent, template)
        if target.is_dir():
            msg = f"{target} is a directory."
            raise InvalidInputError(msg, hint="Add something to the template, such as {id}.")
    return target


def _relative_path(template: str, metadata: FileMetadata) -> str:
    values = {name: _text_of(value) for name, value in metadata.items()}
    values["start_iso"] = to_iso(metadata.start)
    values["end_iso"] = "None" if metadata.end is None else to_iso(metadata.end)
    relative = fill(template, values)
    parts = relative.split("/")
    for part in parts:
        is_bad = part in {"", ".", ".."} or "\\" in part or not part.isprintable()
        if is_bad or len(part.encode(errors="replace")) > _MAX_COMPONENT_BYTES:
            msg = f"Template {template!r} makes {relative!r}, which is not a path in the folder."
            hint = "Separate names by one '/'; no name may be empty, '.', '..' or have a backslash."
            raise InvalidInputError(msg, hint=hint)
    return relative


def _text_of(value: object) -> str:
    return str(value).lstrip("/")


def _check_inside(root: Path, directory: Path, template: str) -> None:
    if not directory.resolve().is_relative_to(root):
        msg = f"Template {template!r} leads out of {root} by a link."
        raise InvalidInputError(msg, hint="Fetch into a folder without such links.")
