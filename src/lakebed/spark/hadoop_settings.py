"""The settings by which Spark's own reader opens what Lakebed was given keys for."""

from __future__ import annotations

from lakebed.common.redaction import StorageOptions
from lakebed.spark.attached_tables import HasStore


def hadoop_options(repository: HasStore, *, prefix: str = "spark.hadoop.") -> dict[str, str]:
    """Return the settings by which Spark opens a repository as Lakebed does.

    Lakebed never writes what it was given into the configuration of a session: whoever runs code
    there could read it. Those who want Spark's own connector to have the same endpoint and the same
    keys hand them over by this:

        settings = lakebed.spark.hadoop_options(repository)
        spark = lakebed.spark.session.local_session(settings=settings)

    They are of the one bucket or account, so that others stay as they were. What the environment
    says, and what a profile of AWS says, connectors look for by themselves.

    Args:
        repository: Which was opened with storage options.
        prefix: What the name of each begins with: `spark.hadoop.` for a session that is to start,
            empty for `spark.conf.set` of one that runs, before it has asked the bucket first.

    Returns:
        Names and values; the display hides secrets. Empty for a directory.

    Cost:
        No request.
    """
    settings = repository.store.hadoop_settings()
    return StorageOptions({f"{prefix}{name}": value for name, value in settings.items()})
