"""Damage every object of each kind in each way, and record what became of it.

cd tests && python -m damage --results FILE            all objects of all lakes, every byte of a head
                                                       and of a data file of each kind: half an hour
cd tests && python -m damage --results FILE --few      one object of each kind, 100 flips of a file
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from damage.flips import FILES, flip_bits
from damage.matrix import DAMAGES, damages, tried
from damage.silent import reason_of

FEW_FLIPS = 100  # of a file


def _main() -> None:
    parser = argparse.ArgumentParser(prog="damage", description=__doc__)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--few", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for damage in damages(thorough=not given.few, ways=DAMAGES):
        outcome = tried(damage)
        rows.append(
            {
                "kind": damage.kind.name,
                "how": damage.how,
                "lake": damage.lake,
                "first_error": outcome.first_error,
                "errors": outcome.errors,
                "others": sorted(outcome.others),
                "check": outcome.check,
                "deep": outcome.deep,
                "is_repaired": outcome.is_repaired,
                "deleted": len(outcome.deleted),
                "written": outcome.written,
                "reason": reason_of(damage.kind.name, damage.how),
            }
        )
        sys.stdout.write(f"{damage.kind.name}, {damage.how}: {outcome.first_error}\n")
    count = FEW_FLIPS if given.few else None
    # Threads only wait: the flips are made by processes.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        flips = dict(zip(FILES, pool.map(lambda name: _flips(name, count), FILES), strict=True))
    document = {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "day": time.strftime("%Y-%m-%d"),
        "rows": rows,
        "flips": flips,
    }
    given.results.parent.mkdir(parents=True, exist_ok=True)
    given.results.write_text(json.dumps(document), encoding="utf-8")


def _flips(name: str, count: int | None) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        found = flip_bits(name, Path(folder), count)
    sys.stdout.write(f"flips of a {name}: {dict(found.counts)}\n")
    sys.stdout.writelines(f"  {flip}\n" for flip in found.wrong)
    return {"size": found.size, "counts": found.counts}


if __name__ == "__main__":
    _main()
