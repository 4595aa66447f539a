"""Libraries that are imported when one of their names is used for the first time.

Some libraries cost more memory and time than all of our own code around them, and a daemon without
nodes never uses them. A module that uses one names it twice: for the type checker, and as a
`LateModule`:

    if TYPE_CHECKING:
        import asyncssh
    else:
        asyncssh = LateModule("asyncssh")

Only names looked up in functions work so: a base class or a decorator needs the library at once.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any


class LateModule(ModuleType):
    """Stands for the module of the same name, and imports it at the first use."""

    def __getattr__(self, name: str) -> Any:
        """Return the attribute of the module itself. Raises ImportError."""
        if name.startswith("__"):  # asked for by tools that look at modules, never by a user of it
            raise AttributeError(name)
        return getattr(import_module(self.__name__), name)
