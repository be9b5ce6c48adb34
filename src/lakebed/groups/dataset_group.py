"""Base class of the groups of calls of a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

from lakebed.common.former_names import refuse_former_call

if TYPE_CHECKING:
    from lakebed.dataset import Dataset


class DatasetGroup:
    """Calls of a dataset on one subject."""

    _NAME: ClassVar[str]

    def __init__(self, dataset: Dataset) -> None:
        """Use the property of the dataset instead."""
        self._dataset = dataset

    def __repr__(self) -> str:
        calls = ", ".join(name for name in dir(self) if not name.startswith("_"))
        return f"<{self._NAME} of {self._dataset!r}: {calls}>"


class FormerMethod(DatasetGroup):
    """A group that was a method before: a call of it raises an error with the new name."""

    def __call__(self, *_arguments: object, **_options: object) -> NoReturn:
        """Raise an error that names the new spelling.

        Raises:
            RenamedError: Always.
        """
        refuse_former_call("Dataset", self._NAME)
