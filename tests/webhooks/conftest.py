"""Puts this folder on the path: `receiver` is shared by its tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
