"""The page of functions lists those of the table, and is written from it.

`python tests/docs/test_functions.py` writes the page again.
"""

from __future__ import annotations

from pathlib import Path

from lakebed.model.formulas.functions import FUNCTIONS, NOTES, REFUSED, SUBJECTS

PAGE = Path(__file__).parents[2] / "docs" / "functions.md"
_HEAD = """# Functions

*Also known as:* built-in functions, SQL functions, expressions without Spark.

Conditions and values are written in Spark's SQL. Where no Spark runs, Lakebed computes them itself.
The functions of this page then give what Spark 4.3 gives in its ANSI mode with the time zone UTC: the
same value, the same type, NULL in the same rows, and an error for the same rows. Tests compare each of
them with Spark, row by row, on values at the edges of their types.

A function that is not computed, or an argument that is not, is refused by name before any row is
read. Compute such a value in Spark.

- Some functions of numbers have another last bit in each library of mathematics, and in Java from
  machine to machine. They are marked in the table.
- Errors that Spark gives for a whole query, such as one of memory, are not part of this.
- Dates beyond the year 5,800,000 and times beyond 290,000 are errors.

"""


def page() -> str:
    """Return the page as the table has it."""
    parts = [_HEAD]
    for subject in sorted(set(SUBJECTS.values())):  # not by which module was imported first
        names = [name for name in FUNCTIONS if SUBJECTS[name] == subject]
        rows = [f"| `{_shown(name)}` | {NOTES.get(name, 'the same')} |" for name in names]
        parts.append(
            "\n".join(
                [
                    f"## {subject}",
                    "",
                    "| Function | Without Spark |",
                    "| --- | --- |",
                    *rows,
                    "",
                    "",
                ]
            )
        )
    parts.append("## With Spark alone\n\n| Reason | Functions |\n| --- | --- |\n")
    for reason in dict.fromkeys(REFUSED.values()):
        names = ", ".join(f"`{name}`" for name, its in sorted(REFUSED.items()) if its == reason)
        parts.append(f"| {reason} | {names} |\n")
    return "".join(parts)


def _shown(name: str) -> str:
    return name.replace("|", "\\|")


def test_the_page_is_that_of_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "python tests/docs/test_functions.py writes it"
    )


def test_each_function_has_a_subject() -> None:
    assert set(SUBJECTS) == set(FUNCTIONS)
    assert set(NOTES) <= set(FUNCTIONS)
    assert len(FUNCTIONS) >= 250


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
