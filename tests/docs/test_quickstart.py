"""The quickstart notebook runs as it stands, offline and soon, and shows what it is kept with."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from quickstart import NOTEBOOK, run, shown


def cells() -> list[dict]:
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def test_notebook_is_kept_small_with_what_every_cell_shows_and_no_path_of_a_machine() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    outputs = [output for cell in cells() for output in cell.get("outputs", ())]

    assert len(text) < 200_000
    assert not re.search(r"/(tmp|work|root|Users|var)/|/home/(?!you\b)", text)
    assert {output["output_type"] for output in outputs} <= {"stream", "execute_result"}
    assert not any(output.get("name") == "stderr" for output in outputs)
    html = [output for output in outputs if "text/html" in output.get("data", {})]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert (len(html) >= 8, len(pictures)) == (True, 2)


@pytest.mark.spark
@pytest.mark.thorough
def test_notebook_runs_offline_within_a_minute_and_shows_what_it_is_kept_with(
    tmp_path: Path,
) -> None:
    nbformat = pytest.importorskip("nbformat", reason="Jupyter is not installed")
    pytest.importorskip("nbclient", reason="Jupyter is not installed")
    pytest.importorskip("ipykernel", reason="Jupyter is not installed")

    fresh, seconds = run(tmp_path)

    assert seconds < 60  # of the processor: others may be at work beside it
    kept = nbformat.read(NOTEBOOK, as_version=4)
    assert shown(fresh) == shown(kept), "It is stale: python tests/quickstart.py writes it anew."
