"""Exports of telemetry trees from views, by the repository that they are in."""

from typing import Any

from lakebed import Repository, TelemetryExport, View


def exported(view: View, *arguments: Any, **options: Any) -> TelemetryExport:
    return Repository(view.plan().store).trees.export(view, *arguments, **options)
