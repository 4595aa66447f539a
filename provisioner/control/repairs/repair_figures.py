"""Read the sources of the repair figures: cases, and the journal's rows of tenants' service.

They are not stored: each request is read page by page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.planning.repair.repair_report import RepairReport, make_report
from provisioner.ports.cases import CaseRepository

PAGE = 1000  # rows of the journal at a time
CASES_MAX = 100_000


async def compute_figures(book: CaseRepository, since: float, until: float) -> RepairReport:
    """Return the report of cases opened between two times, and of tenants' service meanwhile."""
    rows: list[Mapping[str, Any]] = []
    after = 0
    while page := await book.list_tenancy(after, PAGE):
        rows += page
        after = int(page[-1]["seq"])
    return make_report(await book.list(limit=CASES_MAX), rows, since, until)
