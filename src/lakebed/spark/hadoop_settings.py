"""The settings by which Spark's own reader opens what Lakebed was given keys for."""

from __future__ import annotations

from lakebed.common.redaction import StorageOptions
from lakebed.spark.attached_tables import HasStore


def hadoop_options(repository: HasStore, *, prefix: str = "spark.hadoop.") -> dict[str, str]:
    """Return the settings by which Spark opens a repository as Lakebed does.

    Lakebed never writes what it was given into the configuration of a session: code that runs
    there could read it. To give Spark's own connector the same endpoint and the same keys, hand
    them over by this:

        settings = lakebed.spark.hadoop_options(repository)
        spark = lakebed.spark.session.local_session(settings=settings)

    They are of the one bucket or account, so that others stay as they were. Connectors
    find settings of the environment and of a profile of AWS by themselves.

    Args:
        repository: A repository that was opened with storage options.
        prefix: Start of the name of each setting: `spark.hadoop.` for a session that is to start,
            empty for `spark.conf.set` of one that runs, before it has asked the bucket first.

    Returns:
        Names and values; the display hides secrets. Empty for a directory.

    Cost:
        No request.
    """
    settings = repository.store.hadoop_settings()
    return StorageOptions({f"{prefix}{name}": value for name, value in settings.items()})
