"""What every benchmark says of the machine that its figures are of."""

from __future__ import annotations

import os
import platform


def told() -> dict[str, str | float]:
    """Its kind and cores, the load that it had, and the interpreter."""
    return {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }
