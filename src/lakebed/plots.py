"""Three charts of a dataset for notebooks, drawn with matplotlib (`lakebed[plot]`).

Each function takes plain records and returns the Axes it has drawn on; none opens a window.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lakebed.commit import Commit, File
from lakebed.errors import MissingDependencyError
from lakebed.work.defaults import READ_BEST_BYTES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_PARTITIONS = 40
_MAX_LABEL = 40
_SIZES = {
    "1 KiB": 1 << 10,
    "32 KiB": 1 << 15,
    "1 MiB": 1 << 20,
    "32 MiB": 1 << 25,
    "1 GiB": 1 << 30,
}


def file_sizes(files: Sequence[File], ax: Axes | None = None) -> Axes:
    """Draw a histogram of file sizes, with the band of the best sizes.

    Args:
        files: Files from `Dataset.files`; files of unknown size are left out.
        ax: Axes to draw on; a new figure if None.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    axes = _axes(ax)
    sizes = [max(file.size_bytes, 1) for file in files if file.size_bytes is not None]
    axes.set_xscale("log", base=2)
    axes.axvspan(*READ_BEST_BYTES, alpha=0.2, label="64 to 256 MiB: read best")
    edges = [1 << power for power in range(8, 35)]
    axes.hist(sizes, bins=edges)
    axes.set_xticks(list(_SIZES.values()), list(_SIZES))
    axes.set(xlabel="size", ylabel="data files", title="Data files by size")
    axes.legend()
    return axes


def partitions(files: Sequence[File], ax: Axes | None = None) -> Axes:
    """Draw the bytes of each batch in each of the largest partitions.

    Args:
        files: Files from `Dataset.files`.
        ax: Axes to draw on; a new figure if None.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    axes = _axes(ax)

    from matplotlib.ticker import MaxNLocator

    sizes: Counter[str] = Counter()
    parts: dict[tuple[str, int], int] = defaultdict(int)
    for file in files:
        sizes[file.partition] += file.size_bytes or 0
        parts[file.partition, file.batch_id or 0] += file.size_bytes or 0
    paths = [path for path, _ in sizes.most_common(MAX_PARTITIONS)]
    batches = sorted({batch_id for path, batch_id in parts if path in paths})
    field = [[parts.get((path, batch_id), 0) for batch_id in batches] for path in paths]
    if field:
        image = axes.imshow(field, aspect="auto")
        axes.figure.colorbar(image, ax=axes, label="bytes")
    axes.set_yticks(range(len(paths)), [_label(path) for path in paths])
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(
        xlabel="batch, oldest first", ylabel="partition", title="Live bytes by partition and batch"
    )
    return axes


def commits(history: Sequence[Commit], ax: Axes | None = None) -> Axes:
    """Draw commits over time, on a line for each operation, sized by number of rows.

    Args:
        history: Commits from `Dataset.history`.
        ax: Axes to draw on; a new figure if None.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    axes = _axes(ax)
    most = max((commit.row_count for commit in history), default=0)
    for operation in dict.fromkeys(commit.operation for commit in history):
        same = [commit for commit in history if commit.operation == operation]
        axes.scatter(
            [commit.committed_at for commit in same],  # type: ignore[arg-type]
            [operation] * len(same),
            s=[20 + 180 * commit.row_count / (most or 1) for commit in same],
        )
    title = f"Commits; the largest has {most:,} rows" if history else "Commits"
    axes.set(xlabel="committed at (UTC)", ylabel="operation", title=title)
    axes.tick_params(axis="x", rotation=30)
    return axes


class Plots:
    """The charts of one dataset, such as `dataset.inspect.plot.file_sizes()`.

    Each method takes `ax=` and returns the Axes.
    """

    def __init__(
        self, files: Callable[[], Sequence[File]], history: Callable[[], Sequence[Commit]]
    ) -> None:
        """Use `Dataset.inspect.plot` instead. Data is read when a chart is drawn."""
        self._files = files
        self._history = history

    def file_sizes(self, ax: Axes | None = None) -> Axes:
        """Draw a histogram of file sizes."""
        return file_sizes(self._files(), ax)

    def partitions(self, ax: Axes | None = None) -> Axes:
        """Draw the bytes of each batch in each of the largest partitions."""
        return partitions(self._files(), ax)

    def commits(self, ax: Axes | None = None) -> Axes:
        """Draw the commits over time."""
        return commits(self._history(), ax)


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as exc:
        raise MissingDependencyError.for_extra("matplotlib", "plot", "A picture") from exc
    # A separate figure, which neither a window nor pyplot's global list keeps alive.
    return Figure(layout="constrained").subplots()


def _label(path: str) -> str:
    text = path or "(all)"
    shown = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    return shown if len(shown) <= _MAX_LABEL else "…" + shown[-_MAX_LABEL:]
