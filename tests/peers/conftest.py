"""The program in this process, as the tests of the command line start it."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "cli")]
