"""Draw the results of `run.py` as one picture beside them; matplotlib is in the peers' environment."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

path = Path(sys.argv[1])
rows = json.loads(path.read_text())["local"]
titles = list(dict.fromkeys(row["what"] for row in rows))
figure, axes = plt.subplots(
    1, len(titles), figsize=(4.2 * len(titles), 3.8), sharey=True, squeeze=False
)
for axis, title in zip(axes[0], titles, strict=True):
    for name in dict.fromkeys(row["system"] for row in rows):
        points = [
            (row["files"], row["seconds"])
            for row in rows
            if (row["what"], row["system"]) == (title, name)
        ]
        if points:
            axis.plot(*zip(*points, strict=True), marker="o", label=name)
    axis.set(title=title, xlabel="data files", xscale="log", yscale="log")
    axis.grid(visible=True, alpha=0.3)
axes[0, 0].set_ylabel("seconds, fresh process")
axes[0, 0].legend()
figure.tight_layout()
figure.savefig(path.with_suffix(".png"), dpi=120)
