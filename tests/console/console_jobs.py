"""The daily jobs of the console: each is done in Chromium, and its clicks are counted.

A module `*_jobs.py` beside this one adds jobs with `@job(...)`; `test_console_jobs.py` does each of
them and holds console_jobs.md equal to the counts (RECORD_GOLDEN=1 writes it anew); a generated
page shows it.
"""

from __future__ import annotations

import importlib
import re
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from chromium import Looker
from console_site import Site

PAGE = Path(__file__).with_name("console_jobs.md")
BEGIN, END = "<!-- jobs: begin -->", "<!-- jobs: end -->"
# a press of a pointer, Enter, and a choice from a list (to open it and to choose)
COUNTER = """() => {
    const first = window.presses === undefined;
    window.presses = 0;
    if (!first) return;
    const add = (kind, size) => addEventListener(kind, (e) => { presses += size(e); }, true);
    add('pointerdown', (e) => (e.isTrusted ? 1 : 0));
    add('keydown', (e) => (e.isTrusted && e.key === 'Enter' ? 1 : 0));
    add('change', (e) => (e.target.tagName === 'SELECT' ? 2 : 0));
}"""


@dataclass(frozen=True)
class Job:
    """One job. `do` begins on the first page of its role and leaves when its result was seen."""

    area: str
    name: str
    role: str
    do: Callable[[Looker, Site], None]


_JOBS: list[Job] = []
MODULES = tuple(
    f"{name}_jobs"
    for name in ("campaign", "case", "home", "node", "page", "inventory", "machine", "tenant")
)


def job(area: str, name: str, role: str = "operator") -> Callable[..., Callable[..., None]]:
    """Add a function to the table of jobs."""

    def add(do: Callable[[Looker, Site], None]) -> Callable[[Looker, Site], None]:
        _JOBS.append(Job(area, name, role, do))
        return do

    return add


@lru_cache(maxsize=1)
def list_jobs() -> tuple[Job, ...]:
    """Return the jobs of all modules, by area in the order of `MODULES`: some need earlier ones."""
    there = {path.stem for path in Path(__file__).parent.glob("*_jobs.py")}
    assert there == {*MODULES, Path(__file__).stem, f"test_{Path(__file__).stem}"}
    for name in MODULES:
        importlib.import_module(name)
    return tuple(sorted(_JOBS, key=lambda job: MODULES.index(job.do.__module__)))


def count_clicks(looker: Looker, site: Site, wanted: Job) -> int:
    """Do a job from the first page of its role on and return its clicks."""
    looker.to(*(("fleet", "Fleet") if wanted.role == "tenant" else ("home", "Home")))
    looker.run(COUNTER)
    wanted.do(looker, site)
    return int(looker.run("() => window.presses"))


def format_table(clicks: Mapping[str, int]) -> str:
    """Return the table of the page, with the median."""
    rows = [f"| {j.area} | {j.name} | {j.role} | {clicks[j.name]} |" for j in list_jobs()]
    median = statistics.median(clicks.values())
    head = ["| area | job | role | clicks |", "|---|---|---|---|"]
    return "\n".join([*head, *rows, "", f"{len(rows)} jobs; the median is {median:g} clicks."])


def replace_table(page: str, table: str) -> str:
    """Return the page with another table between its marks."""
    pattern = f"{re.escape(BEGIN)}.*{re.escape(END)}"
    return re.sub(pattern, f"{BEGIN}\n{table}\n{END}", page, flags=re.DOTALL)
