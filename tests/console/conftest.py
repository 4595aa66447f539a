"""One filled site and one headless Chromium for the tests of the console."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Looker, chromium
from console_site import Site
from playwright.sync_api import Browser

# the browser is a module's: Playwright's loop is gone before other tests run loops of their own


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(Path(tmp_path_factory.mktemp("site"))) as served:
        yield served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if shutil.which("chromium") is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with chromium() as started:
        yield started


@pytest.fixture
def look(site: Site, browser: Browser) -> Iterator[Looker]:
    """A signed-in operator before the fleet."""
    with Looker(browser, site.url, site.tokens["operator"]) as looker:
        yield looker
        assert looker.complaints == []
