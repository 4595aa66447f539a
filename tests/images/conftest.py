"""The image's tools and the plug-in for the ramdisk live in images/, outside the package."""

from __future__ import annotations

import sys
from pathlib import Path

import ironic_python_agent.config  # noqa: F401  registers options that its modules read

ROOT = Path(__file__).parents[2]
for folder in (ROOT, ROOT / "images" / "hardware_manager"):
    sys.path.insert(0, str(folder))
