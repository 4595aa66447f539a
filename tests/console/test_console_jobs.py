"""Every daily job is done by clicks in a real Chromium, as often as console_jobs.md says."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from chromium import Looker
from console_jobs import BEGIN, END, PAGE, count_clicks, format_table, list_jobs, replace_table
from console_site import Site
from shared_browser import SHARED, Kept

MEDIAN_MAX = 3
CLICKS_MAX = 4  # of every job


@pytest.fixture(scope="module")
def site(own_network: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The console's site with leaves, so that a tenant's network has lines."""
    chosen = {"api_tenant_power": ("on", "off", "cycle")}
    with Site(Path(tmp_path_factory.mktemp("site")), leaves=True, chosen=chosen) as served:
        yield served


@pytest.fixture(scope="module")
def kept(site: Site) -> Iterator[dict[str, Kept]]:
    def open_as(role: str) -> Looker:
        return Looker(SHARED.get_browser(), site.url, site.tokens[role])

    made = {role: Kept(partial(open_as, role)) for role in ("operator", "approver", "tenant")}
    yield made
    for page in made.values():
        page.drop()


@pytest.fixture
def people(kept: dict[str, Kept]) -> dict[str, Looker]:
    """A person of each role, signed in once for all jobs."""
    return {role: page.lend() for role, page in kept.items()}


@pytest.fixture(scope="module")
def clicks() -> dict[str, int]:
    """The counts, filled by the tests of the module in their order."""
    return {}


@pytest.mark.parametrize("area", dict.fromkeys(j.area for j in list_jobs()))
def test_the_jobs_of_an_area_are_done_with_as_many_clicks_as_the_page_says(
    area: str, people: dict[str, Looker], site: Site, clicks: dict[str, int]
) -> None:
    """One test for an area: some jobs go on with what an earlier one of it left."""
    text = PAGE.read_text(encoding="utf-8")
    for wanted in (j for j in list_jobs() if j.area == area):
        person = people[wanted.role]
        person.complaints.clear()
        try:
            number = clicks[wanted.name] = count_clicks(person, site, wanted)
        except Exception as error:
            error.add_note(f"while this job was done: {wanted.name}")
            raise

        row = f"| {wanted.area} | {wanted.name} | {wanted.role} | {number} |"
        assert os.environ.get("RECORD_GOLDEN") or row in text, row
        assert number <= CLICKS_MAX, wanted.name
        assert person.complaints == [], wanted.name


def test_the_page_lists_each_job_once_and_the_median_is_small(clicks: dict[str, int]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    if os.environ.get("RECORD_GOLDEN"):
        text = replace_table(text, format_table(clicks))
        PAGE.write_text(text, encoding="utf-8")
    table = text.partition(BEGIN)[2].partition(END)[0]
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| \w+ \| \d+ \|$", table, flags=re.MULTILINE)
    median = re.search(r"the median is ([\d.]+) clicks", table)

    assert rows == [j.name for j in list_jobs()]
    assert median is not None
    assert float(median.group(1)) <= MEDIAN_MAX
