"""One browser, one site and one signed-in operator for the tests of the console."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import Looker
from console_site import Site
from playwright.sync_api import Browser
from shared_browser import SHARED, Kept

HERE = Path(__file__).parent


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None]:
    """End the browser after the last test here: Playwright's loop is gone before other tests run
    loops of their own."""
    yield
    if nextitem is None or nextitem.path.parent != HERE:
        SHARED.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Count failures: what a failed test left (a dialog, an ended session, a crashed page or a dead
    browser) is nothing that the next test begins with."""
    report = yield
    SHARED.failures += report.failed
    return report


@pytest.fixture(autouse=True)
def _alive() -> None:
    SHARED.revive()


@pytest.fixture(scope="module")
def own_network() -> None:
    """What is started from now on stands in the browser's network."""
    SHARED.enter_network()


@pytest.fixture
def site() -> Site:
    """The filled site that tests share: each leaves it as it was, or counts what is there."""
    return SHARED.get_site()


@pytest.fixture
def browser() -> Browser:
    return SHARED.get_browser()


@pytest.fixture
def look() -> Iterator[Looker]:
    """A signed-in operator before the fleet, on a page of its own."""
    with SHARED.get_operator().open_page() as looker:
        yield looker
        assert looker.complaints == []


@pytest.fixture(scope="module")
def kept_page() -> Iterator[Kept]:
    page = Kept(lambda: SHARED.get_operator().open_page())
    yield page
    page.drop()


@pytest.fixture
def walker(kept_page: Kept) -> Looker:
    """A signed-in operator's page that the tests of a module share, never loaded anew."""
    return kept_page.lend()
