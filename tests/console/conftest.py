"""One browser, one site and one signed-in operator for the tests of the console."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from chromium import Looker
from console_site import Site
from playwright.sync_api import Browser
from shared_browser import SHARED

HERE = Path(__file__).parent


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None]:
    """End the browser after the last test here: Playwright's loop is gone before other tests run
    loops of their own."""
    yield
    if nextitem is None or nextitem.path.parent != HERE:
        SHARED.close()


@pytest.fixture(scope="module")
def own_network() -> None:
    """What is started from now on stands in the browser's network."""
    SHARED.enter_network()


@pytest.fixture(scope="module")
def site() -> Site:
    """The filled site that tests share: each leaves it as it was, or counts what is there."""
    return SHARED.get_site()


@pytest.fixture(scope="module")
def browser() -> Browser:
    return SHARED.get_browser()


@pytest.fixture
def look() -> Iterator[Looker]:
    """A signed-in operator before the fleet, on a page of its own."""
    with SHARED.get_operator().open_page() as looker:
        yield looker
        assert looker.complaints == []
