"""Dimension schemas that several tests read: those of Mozilla's telemetry, and one of its tests."""

import json
from typing import Any


def document(*dimensions: tuple[str, Any], version: int = 1) -> str:
    """Return telemetry_schema.json of some dimensions."""
    rules = [{"field_name": name, "allowed_values": allowed} for name, allowed in dimensions]
    return json.dumps({"version": version, "dimensions": rules})


TELEMETRY = document(
    (
        "reason",
        [
            "idle-daily",
            "saved-session",
            "android-anr-report",
            "ftu",
            "loop",
            "flash-video",
            "appusage",
            "main",
        ],
    ),
    ("appName", ["Firefox", "Fennec", "Thunderbird", "FirefoxOS", "B2G"]),
    ("appUpdateChannel", ["release", "beta", "nightly", "aurora"]),
    ("appVersion", "*"),
    ("appBuildID", "*"),
    ("submission_date", "*"),
)
NIGHTLY = document(
    ("reason", ["saved-session"]),
    ("appName", "*"),
    ("appUpdateChannel", ["nightly"]),
    ("appVersion", "*"),
    ("appBuildID", "*"),
    ("submission_date", ["20130908"]),
)
UNIFIED = document(
    ("submissionDate", "*"),
    ("sourceName", "*"),
    ("sourceVersion", "*"),
    ("docType", ["saved-session"]),
    ("appName", ["Firefox", "Fennec"]),
    ("appUpdateChannel", ["nightly", "release"]),
    ("appVersion", "*"),
    ("appBuildId", ["20130910160258"]),
    version=2,
)
