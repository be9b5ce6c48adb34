"""Runs examples/quickstart.ipynb; as a script it writes what the cells show into the notebook.

    python tests/quickstart.py

What depends on the machine, such as the directory, is not kept.
"""

from __future__ import annotations

import os
import re
import resource
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[1] / "examples" / "quickstart.ipynb"
HOME = "/home/you"
_CELL_S = 900  # a machine may be busy

# The kernel may not reach other machines; sockets of its own and of Spark are of this one.
_GUARD = """\
import sys

def _guard(event, arguments):
    if event == "socket.connect":
        address = arguments[1]
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise OSError(f"no network: {address}")

sys.addaudithook(_guard)
"""
# Of a session that lives for a minute: what it would gain by being compiled well it does not live for.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def run(directory: Path) -> tuple[Any, float]:
    """Return the notebook with what its cells show in a directory, and seconds of the processor."""
    import nbformat
    from nbclient import NotebookClient

    (directory / "guard").mkdir()
    (directory / "guard" / "sitecustomize.py").write_text(_GUARD, encoding="utf-8")
    work = directory / "work"
    work.mkdir()
    path = os.pathsep.join(filter(None, (f"{directory}/guard", os.environ.get("PYTHONPATH"))))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=_CELL_S,
        kernel_name="python3",
        coalesce_streams=True,
        resources={"metadata": {"path": work}},
    )
    before = _children_s()
    client.execute(env={**os.environ, "PYTHONPATH": path, "JAVA_TOOL_OPTIONS": _JAVA})
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it ran
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if not _is_of_java(output)]
        for output in cell.get("outputs", ()):
            for holder, name in _texts(output):
                holder[name] = holder[name].replace(str(work), HOME)
    return notebook, _children_s() - before


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _is_of_java(output: Any) -> bool:
    """Whether an output is only what the JVM says on stderr while it starts."""
    lines = output.text.splitlines() if output.get("name") == "stderr" else [""]
    return all(
        line.startswith(("WARNING: Using incubator", "Picked up JAVA_TOOL")) for line in lines
    )


def _texts(output: Any) -> list[tuple[Any, str]]:
    """Return where an output holds text."""
    data = output.get("data", {})
    return [
        *([(output, "text")] if "text" in output else []),
        *((data, name) for name in sorted(data) if name.startswith("text/")),
    ]


def shown(notebook: Any) -> list[list[tuple[str, str]]]:
    """Return what each cell shows, without numbers, ids and times, which differ each time."""
    return [
        [
            *(
                (name, _without_numbers(holder[name]))
                for output in outputs
                for holder, name in _texts(output)
            ),
            *(("image", "") for output in outputs if "image/png" in output.get("data", {})),
        ]
        for outputs in (cell.get("outputs", []) for cell in notebook.cells)
    ]


def _without_numbers(text: str) -> str:
    text = re.sub(r"\b[0-9a-f]{8,}\b|\d+(?:[.,:]\d+)*|\b[KM]?i?B\b", "0", text)
    # Sorted: tasks of Spark may end in another order.
    return " ".join(sorted(re.sub(r"[-+|,\s]+", " ", text).split()))


def main() -> None:
    import nbformat

    with tempfile.TemporaryDirectory() as directory:
        notebook, _ = run(Path(directory))
    nbformat.write(notebook, NOTEBOOK)


if __name__ == "__main__":
    main()
