"""Hadoop settings that give Spark's own reader the credentials of a repository."""

from __future__ import annotations

from lakebed.common.redaction import StorageOptions
from lakebed.spark.attached_tables import HasStore


def hadoop_options(repository: HasStore, *, prefix: str = "spark.hadoop.") -> dict[str, str]:
    """Return the settings by which Spark opens a repository as Lakebed does.

    Lakebed never writes its credentials into the configuration of a session: code that runs there
    could read them. To give Spark's own connector the same endpoint and the same keys:

        settings = lakebed.spark.hadoop_options(repository)
        spark = lakebed.spark.session.local_session(settings=settings)

    The settings are those of the one bucket or account, so others are not affected. Connectors read
    the environment and a profile of AWS themselves.

    Args:
        repository: A repository that was opened with storage options.
        prefix: Start of the name of each setting: `spark.hadoop.` for a new session,
            empty for `spark.conf.set` of a running one, before it first accesses the bucket.

    Returns:
        Names and values; the display hides secrets. Empty for a directory.

    Cost:
        No request.
    """
    settings = repository.store.hadoop_settings()
    return StorageOptions({f"{prefix}{name}": value for name, value in settings.items()})
