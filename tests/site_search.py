"""Rank the pages of the built site for questions that users type; `make docs` runs it.

The site searches by lunr in the browser, with weights of its theme. The same algorithm runs here:
the package lunr, and what Material for MkDocs 9 does around it (tokens, wildcards, weights of
pages whose words all match, one result for each page).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

SITE = Path(__file__).parents[1] / "build" / "site"
LAST_RANK = 3
# What a user types, and the pages that answer it. The first ten were tried by a new user.
QUESTIONS = {
    "merge into": ("merge",),
    "s3 credentials profile": ("object-stores",),
    "concurrent writers conflict": ("concurrency",),
    "retention": ("cleanup",),
    "airflow": ("schedulers",),
    "vacuum": ("cleanup",),
    "delete rows": ("views", "erase"),
    "time travel": ("time-travel",),
    "rename column": ("evolution",),
    "small files": ("maintenance",),
    "upsert": ("merge",),
    "gdpr": ("erase",),
    "dbt": ("limits",),
    "describe history": ("time-travel",),
    "change data feed": ("time-travel", "from-delta"),
    "bad lines quarantine": ("ingest",),
    "optimize": ("maintenance",),
    "restore": ("batches",),
    "partition by hour": ("partitioning",),
    "read with pandas": ("read-from", "without-spark"),
    "create table from dataframe": ("getting-started", "reading-and-writing"),
    "export parquet": ("read-from",),
    "schema evolution add column": ("evolution",),
    "exactly once streaming": ("streaming",),
    "null primary key": ("merge",),
    "rollback": ("batches",),
    "compact": ("maintenance",),
    "lock": ("concurrency",),
    "checkpoint": ("streaming",),
    "hive partition": ("hive",),
    "jupyter": ("without-spark", "getting-started"),
    "migrate delta table": ("from-delta", "delta-iceberg"),
    "java not found": ("troubleshooting",),
    "read with spark": ("spark",),
    "spark sql view": ("spark",),
    "bloom filter": ("indices",),
    "explain plan": ("indices",),
    "import csv": ("come-and-go", "reading-and-writing"),
    "convert iceberg to delta": ("come-and-go", "delta-iceberg"),
    "exit code": ("command-line",),
    "progress bar": ("maintenance",),
    "column names with spaces": ("reading-and-writing",),
    "idempotent job retry": ("schedulers", "batches"),
    "databricks": ("clusters",),
    "kerberos": ("hdfs",),
    "compare delta lake iceberg": ("alternatives",),
    "environment variables": ("environment",),
    "high cardinality partition": ("dimensions",),
}


class SiteSearch:
    """The search of a built site."""

    def __init__(self, index: dict[str, Any]) -> None:
        from lunr.builder import Builder
        from lunr.stop_word_filter import stop_word_filter

        config = index["config"]
        self.documents = {doc["location"]: doc for doc in index["docs"]}
        self.separator = re.compile(config["separator"])
        builder = Builder()
        builder.b(0)
        builder.ref("location")
        if "stopWordFilter" in config["pipeline"]:
            builder.pipeline.add(stop_word_filter)
        for name, field in config["fields"].items():
            builder.field(name, field.get("boost", 1), self._extractor(name))
        for doc in index["docs"]:
            builder.add(doc, {"boost": doc.get("boost", 1)})
        self.index = builder.build()
        self.is_stop_word = lambda term: stop_word_filter(term) is None

    def _extractor(self, name: str) -> Any:
        def tokens(doc: dict[str, Any]) -> list[str] | None:
            value = doc.get(name)
            if value is None:
                return None
            texts = value if isinstance(value, list) else [value]
            sections = (section for text in texts for section in re.split(r"<[^>]*>", text))
            return [word for section in sections for word in self.words(section)]

        return tokens

    def words(self, text: str) -> list[str]:
        """Return the words of a text, as the site divides it."""
        return [word.lower() for word in self.separator.split(text) if word]

    def pages(self, question: str) -> list[str]:
        """Return the pages that answer a question, the best first."""
        terms = [word for part in question.split() for word in self.words(part)]
        scores = {}
        for found in self.index.search(" ".join(f"{term}*" for term in terms)):
            matched = list(found["match_data"].metadata)
            hits = [term for term in terms if any(one.startswith(term) for one in matched)]
            asked = [term for term in terms if term in hits or not self.is_stop_word(term)]
            is_page = "#" not in found["ref"]
            boost = is_page + len(set(hits)) / len(set(asked))
            scores[found["ref"]] = found["score"] * (1 + boost**2)
        ranked = sorted(scores, key=lambda ref: -scores[ref])
        return list(dict.fromkeys(ref.partition("#")[0] for ref in ranked))


def read_index(site: Path = SITE) -> dict[str, Any]:
    """Return the search index of a built site."""
    return json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))


def rank_of(pages: list[str], answers: tuple[str, ...]) -> int | None:
    """Return the place of the first page that answers a question, from 1."""
    names = [page.removesuffix(".html") for page in pages]
    return min((names.index(answer) + 1 for answer in answers if answer in names), default=None)


def main() -> int:
    """Print the rank of each answer; 1 if one is too far down."""
    search = SiteSearch(read_index())
    missed = []
    for question, answers in QUESTIONS.items():
        pages = search.pages(question)
        rank = rank_of(pages, answers)
        sys.stdout.write(f"{rank or '-':>3}  {question:<30} {', '.join(pages[:3])}\n")
        if rank is None or rank > LAST_RANK:
            missed.append(question)
    if missed:
        sys.stderr.write(f"Not among the first {LAST_RANK}: {', '.join(missed)}\n")
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
