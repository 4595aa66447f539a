"""One clear error for bad input: its place, the problem, and the remedy."""

from __future__ import annotations


class InputError(Exception):
    """An input written by a person that cannot be used. The command line exits with code 2.

    `source` is a file name or option, `where` a line or field in it ("line 12", "releases.x.pins").
    """

    def __init__(self, source: str, where: str, problem: str, remedy: str) -> None:
        super().__init__(f"{source}{', ' + where if where else ''}: {problem}. {remedy}")
        self.source = source
        self.where = where
        self.problem = problem
        self.remedy = remedy
