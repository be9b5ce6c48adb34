"""Statements that change datasets, with the views of a session; Connect is in test_connect."""

from pathlib import Path
from typing import Any

import pytest
import session_statements

pytestmark = pytest.mark.spark


def test_statements_read_views_and_change_datasets(spark: Any, tmp_path: Path) -> None:
    assert session_statements.run(spark, str(tmp_path)) == session_statements.EXPECTED
