"""Where cases of repair and notices to tenants are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from provisioner.model.case import Case, Notice

Row = tuple[str, str, Mapping[str, Any]]  # of the journal: kind, node, detail


class CaseBook(Protocol):
    """Cases and notices, on disk when a method returns. A case carries the generation read."""

    async def open_cases(self) -> Sequence[Case]: ...
    async def open_case(self, node: str) -> Case | None: ...
    async def case(self, case_id: str) -> Case | None: ...
    async def cases(self, node: str = "", limit: int = 1000) -> Sequence[Case]:
        """Cases of a node, or of all; the newest first."""
        ...

    async def add_case(
        self, case: Case, *, notices: Sequence[Notice] = (), journal: Sequence[Row] = (), now: float
    ) -> Case | None:
        """A new case; None if the node has an open one already."""
        ...

    async def save_case(
        self, case: Case, *, notices: Sequence[Notice] = (), journal: Sequence[Row] = (), now: float
    ) -> Case:
        """The case with its generation raised; `StaleWrite` if it changed since it was read."""
        ...

    async def story(self, node: str, since: float, limit: int) -> Sequence[Mapping[str, Any]]:
        """The node's rows of the journal since a time, in order; the first `limit`."""
        ...

    async def tenancy(self, after: int, limit: int) -> Sequence[Mapping[str, Any]]:
        """The journal's rows that say whom nodes served, after a number, in order."""
        ...

    async def notices(self, tenant: str = "", *, unsent: bool = False) -> Sequence[Notice]: ...
    async def put_notice(self, notice: Notice) -> None:
        """A new notice, or what became of it."""
        ...
