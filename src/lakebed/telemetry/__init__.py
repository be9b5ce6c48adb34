"""Telemetry of what Lakebed does, for OpenTelemetry and OpenLineage. Off until it is enabled."""

from typing import TYPE_CHECKING

from lakebed.common.lazy import lazily as _lazily

if TYPE_CHECKING:
    from lakebed.telemetry.run_events import disable_lineage as disable_lineage
    from lakebed.telemetry.run_events import enable_lineage as enable_lineage
    from lakebed.telemetry.spans import LakebedInstrumentor as LakebedInstrumentor
    from lakebed.telemetry.spans import disable as disable
    from lakebed.telemetry.spans import enable as enable
else:
    __getattr__, __dir__, __all__ = _lazily(
        __name__,
        {
            "LakebedInstrumentor": "lakebed.telemetry.spans",
            "disable": "lakebed.telemetry.spans",
            "disable_lineage": "lakebed.telemetry.run_events",
            "enable": "lakebed.telemetry.spans",
            "enable_lineage": "lakebed.telemetry.run_events",
        },
    )
