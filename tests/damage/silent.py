"""What is not noticed, or not by a read, and why."""

from __future__ import annotations

from damage.matrix import DAMAGES

_OLDER = (
    "The head is the state, so an older copy of it is that older version, and the commits after it "
    "are lost. `check` notes files of later batches. Never put a head back while there is another."
)
_OTHER_FILE = (
    "Reads compare pages with their checksums, and not files with theirs: a whole other data file "
    "under the key is read. `check` names it by its size, `check --deep` by its SHA-256, and no "
    "rewrite reads it."
)
_EXPLAINS = "It explains, and nothing depends on it."
_OF_OTHERS = "Lakebed does not read it: other tools do. The next publication writes it again."
_TABLE = (
    "Readers of the dataset do not need it: other tools do. A publication notices it, and writes the "
    "table again; `publish` with `check` states what it would write."
)
_JSON = (
    "The entries of Lakebed in a JSON head have a checksum, and unknown keys are refused. A flip in what "
    "only other tools read changes no answer. Heads in msgpack, and trees, have a checksum of all bytes."
)
_GIVEN_UP = "Without its manifest, a staged batch counts as given up: it is not listed any more."
_LEFT_OUT = (
    "A batch whose manifest cannot be read is left out of lists, with a warning in the log. Its files "
    "stay, and `check` names it."
)
_UNLISTED = "A table whose note cannot be read is left out of lists. A cleanup stops, and `check` names the note."
_NOTE = (
    "Only the note records that there is such a table. Without it, a cleanup may delete files that "
    "the table still shows; publish again."
)

_ROWS = frozenset(
    {
        "all rows",
        "by the index",
        "by a range",
        "count",
        "another partition",
        "older version",
        "version before",
    }
)
_ALL = _ROWS | {
    "open",
    "files",
    "plan",
    "history",
    "batches",
    "files of a run",
    "raw files",
    "published",
    "Delta",
    "Iceberg",
}

# Probes that may give another answer without an error, by kind and damage.
SILENT: dict[tuple[str, str], frozenset[str]] = {
    ("head, JSON", "older copy"): _ALL,
    ("head, msgpack", "older copy"): _ALL,
    ("head, tree", "older copy"): _ALL,
    ("head of the quarantine", "older copy"): frozenset({"quarantine"}),
    ("data file", "swapped"): _ROWS,
    ("manifest of a staged batch", "lost"): frozenset({"batches", "staged"}),
    **{
        ("manifest of a staged batch", how): frozenset({"batches", "staged"})
        for how in ("flipped bit", "cut", "emptied")
    },
    ("ready signal", "lost"): frozenset({"signal"}),
    ("ready signal", "flipped bit"): frozenset({"signal"}),
    **{("Delta log", how): frozenset({"Delta"}) for how in DAMAGES},
    **{("Iceberg metadata", how): frozenset({"Iceberg"}) for how in DAMAGES},
    **{("Iceberg manifest or list", how): frozenset({"Iceberg"}) for how in DAMAGES},
    ("note of a published table", "lost"): frozenset({"published", "Delta", "Iceberg"}),
    ("note of a published table", "swapped"): frozenset({"published", "Delta", "Iceberg"}),
    ("note of a published table", "flipped bit"): frozenset({"published"}),
    ("note of a published table", "cut"): frozenset({"published"}),
    ("note of a published table", "emptied"): frozenset({"published"}),
    ("note of a published table", "older copy"): frozenset({"published"}),
}

# Reasons why neither a read nor a check notices it, or only with another answer.
UNNOTICED: dict[tuple[str, str], str] = {
    ("head, JSON", "older copy"): _OLDER,
    ("head, msgpack", "older copy"): _OLDER,
    ("head, tree", "older copy"): _OLDER,
    ("data file", "swapped"): _OTHER_FILE,
    ("head, JSON", "flipped bit"): _JSON,
    ("head of the quarantine", "flipped bit"): _JSON,
    ("head of the quarantine", "older copy"): _OLDER,
    ("manifest of a staged batch", "flipped bit"): _LEFT_OUT,
    ("manifest of a staged batch", "lost"): _GIVEN_UP,
    ("manifest of a staged batch", "cut"): _LEFT_OUT,
    ("manifest of a staged batch", "emptied"): _LEFT_OUT,
    ("manifest of a committed batch", "*"): _EXPLAINS,
    ("log of a cleanup", "*"): _EXPLAINS,
    ("certificate of an erasure", "*"): _EXPLAINS,
    ("note of a published table", "flipped bit"): _UNLISTED,
    ("note of a published table", "cut"): _UNLISTED,
    ("note of a published table", "emptied"): _UNLISTED,
    ("note of a published table", "lost"): _NOTE,
    ("note of a published table", "swapped"): _NOTE,
    ("note of a published table", "older copy"): _NOTE,
    ("ready signal", "lost"): "The view counts as not signalled, as before the signal.",
    ("ready signal", "flipped bit"): "It is a time as text, so a flip may be another time.",
    ("index file for other tools", "flipped bit"): _OF_OTHERS,
    ("schema file for other tools", "flipped bit"): _OF_OTHERS,
    ("schema file for other tools", "older copy"): _OF_OTHERS,
    ("Delta log", "*"): _TABLE,
    ("Iceberg metadata", "*"): _TABLE,
    ("Iceberg manifest or list", "*"): _TABLE,
    ("Kartothek head", "*"): _OF_OTHERS,
}


def reason_of(kind: str, how: str) -> str:
    """Return why a damage is not noticed; an empty text if it must be."""
    return UNNOTICED.get((kind, how)) or UNNOTICED.get((kind, "*"), "")
