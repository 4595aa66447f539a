"""The program in this process, as the tests of the command line start it; a peer's web server."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("cli", "peers")]
