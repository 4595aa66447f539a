"""The program in this process, and PostgreSQL as other tests start it."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "cli"), str(TESTS / "real" / "postgres")]
