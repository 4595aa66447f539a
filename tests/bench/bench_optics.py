"""What the series of optics cost: one value of 524,288 host ports in five minutes, for a month.

A sample of leaves is written for a whole day and scaled; the last line is JSON.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from provisioner.integrations.optics.series import LeafSeries, encode

PORTS = 524_288
PER_LEAF = 64
LOOKS = 288
SAMPLE = int(sys.argv[1]) if len(sys.argv) > 1 else 64


def main() -> None:
    rng = random.Random(1)
    at = datetime(2026, 5, 1, tzinfo=UTC).timestamp()
    scale = PORTS / PER_LEAF / SAMPLE
    spent = 0.0
    size = largest = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(SAMPLE):
            leaf = Path(folder) / f"leaf{number}"
            names = [f"swp{n}" for n in range(PER_LEAF)]
            levels = [rng.uniform(-2, 1.5) for _ in names]
            looks = [
                [round(level + rng.gauss(0, 0.1), 2) for level in levels] for _ in range(LOOKS)
            ]
            series = LeafSeries(leaf, ("rx_dbm",))
            began = time.process_time()
            for look, values in enumerate(looks):
                codes = {
                    n: bytes((encode("rx_dbm", v),)) for n, v in zip(names, values, strict=True)
                }
                series.append(at + 300 * look, codes)
            largest += sum(f.stat().st_size for f in leaf.iterdir())
            series.close_day(datetime(2026, 5, 1, tzinfo=UTC).date(), lambda *_: None)
            spent += time.process_time() - began
            size += sum(f.stat().st_size for f in leaf.iterdir())
    row = {
        "ports": PORTS,
        "sampled_leaves": SAMPLE,
        "cores": round(spent * scale / 86_400, 4),
        "gb_a_month": round((size * 30 + largest) * scale / 1e9, 3),
        "cores_max": 0.1,
        "gb_a_month_max": 4.0,
    }
    row["ok"] = row["cores"] <= 0.1 and row["gb_a_month"] <= 4.0
    sys.stdout.write(json.dumps(row) + "\n")
    sys.exit(0 if row["ok"] else 1)


if __name__ == "__main__":
    main()
