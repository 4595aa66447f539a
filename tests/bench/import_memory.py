"""What a daemon's imports add to its resident memory, by package; `bench_idle.py` runs it.

Prints JSON: MiB of Python itself, of its own library, of ours, and of each other package of more
than half a MiB. Memory is read at the begin and the end of each module, without what it imports.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20
SHOWN_MIB = 0.5
inner: list[float] = []  # of modules whose import is under way: what those below them took
taken: Counter[str] = Counter()


def read_mib() -> float:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE_MIB


def measured(load: Callable[..., Any], name_of: Callable[[Any], str]) -> Callable[..., Any]:
    """Return a loader's method that counts what it takes for the package of its module."""

    def run(loader: object, module: Any) -> Any:
        before = read_mib()
        inner.append(0.0)
        try:
            return load(loader, module)
        finally:
            own = read_mib() - before
            below = inner.pop()
            top = name_of(module).partition(".")[0]
            taken["stdlib" if top in sys.stdlib_module_names else top] += own - below
            if inner:
                inner[-1] += own

    return run


def main() -> None:
    """Import what `provisioner serve` does, and print what it took."""
    python = read_mib()

    def name(module: ModuleType) -> str:
        return module.__name__

    for loader in (SourceFileLoader, ExtensionFileLoader):
        loader.exec_module = measured(loader.exec_module, name)  # type: ignore[method-assign]
    create = measured(ExtensionFileLoader.create_module, lambda spec: spec.name)
    ExtensionFileLoader.create_module = create  # type: ignore[method-assign]
    import provisioner.cli.serve.serve  # noqa: F401

    shown = {k: round(v, 1) for k, v in taken.most_common() if v > SHOWN_MIB}
    sys.stdout.write(json.dumps({"python": round(python, 1), **shown}))


if __name__ == "__main__":
    main()
