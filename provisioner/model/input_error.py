"""One clear error for bad input: where it is, what is wrong, and what to do about it."""

from __future__ import annotations


class InputError(Exception):
    """Something that a person wrote cannot be used. The command line exits with code 2.

    `source` is a file name or option, `where` a line or field in it ("line 12", "releases.x.pins").
    """

    def __init__(self, source: str, where: str, problem: str, remedy: str) -> None:
        super().__init__(f"{source}{', ' + where if where else ''}: {problem}. {remedy}")
        self.source, self.where, self.problem, self.remedy = source, where, problem, remedy
