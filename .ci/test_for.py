"""Picks the tests that can notice a change of given files: `make test-for FILES="provisioner/…"`.

The import graph is read from the sources, in seconds and without importing anything. A test module
is picked if it imports a changed module, directly or through at most `HOPS` others; a helper of the
tests counts as a module of the program does. A changed test module picks itself.
Nearest tests run first. Without files, those are taken that git sees changed against main.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOPS = 1  # through more, the composition root joins everything with everything
MOST = 30  # test modules; more are for `make test`


def list_sources() -> dict[str, Path]:
    """Return every module by the name under which others import it."""
    named: dict[str, Path] = {}
    for file in (ROOT / "provisioner").rglob("*.py"):
        parts = file.relative_to(ROOT).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    for file in (ROOT / "tests").rglob("*.py"):
        named.setdefault(file.stem, file)  # tests are no packages: bare names
    return named


IMPORTS = re.compile(
    rb"^[ \t]*(?:from ([\w.]+) import (\([^)]*\)|[^\n]*)|import ([\w.]+))", re.MULTILINE
)


def read_imports(file: Path, named: dict[str, Path]) -> set[Path]:
    """Return the modules of the repository that a file names in an import, wherever it stands."""
    found: set[Path] = set()
    for match in IMPORTS.finditer(file.read_bytes()):
        origin, names, plain = (part.decode() if part else "" for part in match.groups())
        wanted = [f"{origin}.{name}" for name in re.findall(r"\w+", names)]
        found |= {named[name] for name in (*wanted, origin, plain) if name in named}
    return found - {file}


def pick(changed: list[Path]) -> list[Path]:
    """Return the test modules that reach a changed file, nearest first."""
    named = list_sources()
    importers: dict[Path, set[Path]] = defaultdict(set)
    for file in set(named.values()) | set((ROOT / "tests").rglob("test_*.py")):
        for imported in read_imports(file, named):
            importers[imported].add(file)
    reached, front = list(changed), set(changed)
    for _ in range(HOPS + 1):
        front = {by for file in front for by in importers[file]} - set(reached)
        reached += sorted(front)
    return [file for file in reached if file.name.startswith("test_") and file.exists()]


def main() -> int:
    words, _, options = " ".join(sys.argv[1:]).partition("--")
    names = words.split()
    if not names:
        seen = ("git", "diff", "--name-only", "--merge-base", "main")
        names = subprocess.run(
            seen, cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.split()
    changed = [(ROOT / name).resolve() for name in names if name.endswith(".py")]
    tests = pick(changed)
    if not tests:
        print(f"no test module imports {names or 'anything changed'} in {HOPS + 1} steps")
        return 0
    if len(tests) > MOST:
        print(f"{len(tests)} test modules reach these files; running the nearest {MOST}")
    chosen = [str(file.relative_to(ROOT)) for file in tests[:MOST]]
    print("\n".join(chosen))
    pytest = Path(sys.executable).with_name("pytest")
    return subprocess.run(
        [pytest, "-q", *chosen, *options.split()], cwd=ROOT, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
