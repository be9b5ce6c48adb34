"""A program of a user whose verbs run by Spark, while faults are planted; see `standalone.Driver`.

Each verb writes rows of which the test knows the keys, and answers with the version and the id of
its commit, if it makes one.
"""

from __future__ import annotations

import datetime as dt
import functools
import time

import planted_faults
from cluster import driver

import lakebed
from lakebed.errors import LakebedError

RUN = "monday"
TASKS = 4
# The driver writes no rows by itself.
SCATTERED = lakebed.WriteOptions(cluster=True)
IN_PLACE = lakebed.WriteOptions(cluster=False)
_SCHEMA = "n bigint, part string, text string"
# It runs in workers, which lack this module.
_WATCHED = """
def run(batches):
    import planted_faults
    for batch in batches:
        yield batch
        planted_faults.strike("before", "/data/")
        planted_faults.strike("after", "/data/")
"""


class Functions(driver.Functions):
    """What it can be asked for. The rows of a verb are those of some ranges of numbers."""

    def frame(self, rows, op, part):
        frames = [self.spark.range(*bounds, 1, TASKS) for bounds in rows]
        frame = functools.reduce(lambda one, other: one.union(other), frames)
        return frame.selectExpr(
            "id AS n", f"concat('{part}', id % {TASKS}) AS part", f"'{op}' AS text"
        )

    def into(self, dataset, write=IN_PLACE):
        return self.dataset(dataset).with_options(write=write)

    def append(self, dataset, rows, op, part, again=False):
        return self._append(self.into(dataset), self.frame(rows, op, part), again)

    def append_scattered(self, dataset, rows, op, part, again=False):
        return self._append(self.into(dataset, SCATTERED), self.frame(rows, op, part), again)

    def append_natively(self, dataset, rows, op, part, again=False):
        names = {}
        exec(_WATCHED, names)
        frame = self.frame(rows, op, part).mapInArrow(names["run"], _SCHEMA)
        return self._append(self.dataset(dataset), frame, again)

    def _append(self, into, frame, again):
        return _told(into.rerun(frame, RUN, replace_all=True) if again else into.append(frame, RUN))

    def overwrite(self, dataset, rows, op, part, again=False):
        return _told(self.into(dataset).overwrite(self.frame(rows, op, part), run=RUN))

    def rerun(self, dataset, rows, op, part, again=False):
        return _told(
            self.into(dataset).rerun(self.frame(rows, op, part), "target", replace_all=True)
        )

    def merge(self, dataset, rows, op, part, again=False):
        frame = self.frame(rows, op, part)
        return _told(self.into(dataset).merge(frame, on=["n"], run=RUN).commit)

    def save(self, dataset, rows, op, part, again=False):
        writer = self.frame(rows, op, part).write.format("lakebed").option("run", RUN)
        if again:
            writer.mode("overwrite").option("overwriteMode", "run").save(dataset)
        else:
            writer.mode("append").save(dataset)

    def epoch(self, dataset, rows, op, part, again=False):
        return _told(self.into(dataset).sink(self.frame(rows, op, part), 7, query="q"))

    def for_each_batch(self, dataset, folder, again=False):
        self._stream(folder).foreachBatch(self.into(dataset).sink).start().awaitTermination()

    def stream(self, dataset, folder, again=False):
        self._stream(folder).format("lakebed").start(dataset).awaitTermination()

    def _stream(self, folder):
        files = self.spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", "1")
        rows = files.json(f"{folder}/in").repartition(2)
        writer = rows.writeStream.option("checkpointLocation", f"{folder}/checkpoint")
        return writer.trigger(availableNow=True)

    def ingest(self, dataset, folder, again=False):
        source = lakebed.FromFiles(paths=f"{folder}/in/*.jsonl")
        ingest = lakebed.Ingest(name=RUN, into=dataset, source=source)
        ingest.run(spark=self.spark)

    def compact(self, dataset, again=False):
        self.dataset(dataset).compact(spark=self.spark)

    def erase(self, dataset, again=False):
        done = self.dataset(dataset).erase("text = 'target'", reason="asked for", grace="0s")
        assert done.is_finished, done.left

    def attempt(self, verb, arguments):
        """Return the outcome of a verb, as its caller sees it."""
        try:
            answer = {"answer": getattr(self, verb)(**arguments)}
        except LakebedError as exc:
            answer = {"code": str(exc.code), "error": f"{type(exc).__name__}: {exc}"}
        except Exception as exc:  # noqa: BLE001 - Spark has many
            answer = {"code": "spark", "error": f"{type(exc).__name__}: {exc}"[-2000:]}
        self.settle()
        return answer

    def settle(self):
        """Wait until no task runs, such as an attempt that has lost."""
        tracker = self.spark.sparkContext._jsc.sc().statusTracker()
        end = time.monotonic() + dt.timedelta(minutes=2).total_seconds()
        while any(one.numRunningTasks() for one in tracker.getExecutorInfos()):
            assert time.monotonic() < end
            time.sleep(0.05)


def _told(commit):
    return None if commit is None else [commit.version, str(commit.commit_id)]


if __name__ == "__main__":
    planted_faults.plant()
    driver.main(Functions)
