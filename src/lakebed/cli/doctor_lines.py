"""What the verb doctor has found, as lines of one table."""

from __future__ import annotations

DoctorLine = dict[str, str | None]

COLUMNS = ("name", "status", "value", "detail")


def doctor_line(name: str, status: str, value: str | None, detail: str | None = None) -> DoctorLine:
    """Return a line: what was looked at, how it is, and what there is to know of it."""
    return {"name": name, "status": status, "value": value, "detail": detail}
