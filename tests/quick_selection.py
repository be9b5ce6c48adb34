"""Print what `make quick` runs: a core of fast tests, and the modules that test what has changed.

A change since `main`, committed or not, is tested by the modules of tests that have its name or
import it; pages and examples by `tests/docs`, the Makefile by `test_makefile.py`.
"""

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]

# What most changes break first; it leaves out slow modules, which a change to their source adds.
# All of it takes a third of a minute on two cores.
CORE = """
    batches/test_rerun.py batches/test_rollback_and_diff.py cli/test_errors.py
    model/test_descriptor.py model/test_layout.py model/test_predicate.py plan/test_plan.py
    state/test_apply.py state/test_conflicts.py state/test_transaction.py test_dataset.py
    test_errors.py test_repository.py test_selection.py test_view.py work/test_cleanup.py
    work/test_deletion.py
""".split()

_IMPORT = re.compile(r"^ *from ([\w.]+) import (?:\(([^)]*)\)|(.*))|^ *import ([\w.]+)", re.M)


def modules_for(changed: Iterable[str]) -> set[str]:
    """Return the modules of tests, and folders of them, that test the given files."""
    files = {PurePosixPath(file) for file in changed}
    found = {path for path in files if path.parts[0] == "tests" and path.name.startswith("test_")}
    sources = {path for path in files if path.suffix == ".py" and path.parts[0] in ("src", "tests")}
    if sources:
        modules = {_module_of(path) for path in sources}
        names = {f"test_{path.stem}.py" for path in sources if path.parts[0] == "src"}
        for path in ROOT.glob("tests/**/test_*.py"):
            if path.name in names or not modules.isdisjoint(_imports_of(path)):
                found.add(PurePosixPath(path.relative_to(ROOT).as_posix()))
    if any(path.parts[0] in ("docs", "examples") or path.suffix == ".md" for path in files):
        found.add(PurePosixPath("tests/docs"))
    if any(path.name in ("Makefile", "run") or path.suffix == ".txt" for path in files):
        found.add(PurePosixPath("tests/test_makefile.py"))
    return {str(path) for path in found if (ROOT / path).exists()}


def _module_of(path: PurePosixPath) -> str:
    """Return the name by which tests import a file."""
    parts = path.with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports_of(path: Path) -> set[str]:
    """Return the modules that a module of tests imports, and what may be one."""
    found = set()
    for match in _IMPORT.finditer(path.read_text(encoding="utf-8")):
        module, several, few, plain = match.groups()
        if plain:
            found.add(plain)
            continue
        names = re.findall(r"\w+", several or few)
        found |= {module, *(f"{module}.{name}" for name in names)}
    return found


def changed_files() -> list[str]:
    """Return the files that differ from `main`, or on `main` itself from the commit before."""
    head = _git("rev-parse", "HEAD")
    bases = (_git("merge-base", "HEAD", branch) for branch in ("origin/main", "main"))
    base = next((base for base in bases if base and base != head), None) or _git(
        "rev-parse", "HEAD~1"
    )
    if not base:
        return []
    untracked = _git("ls-files", "--others", "--exclude-standard", "--", "src", "tests", "docs")
    return [*_git("diff", "--name-only", base).splitlines(), *untracked.splitlines()]


def _git(*arguments: str) -> str:
    """Return what git prints, or nothing where it fails, as in a source distribution."""
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


if __name__ == "__main__":
    core = {f"tests/{name}" for name in CORE}
    sys.stdout.write("\n".join(sorted(core | modules_for(changed_files()))) + "\n")
