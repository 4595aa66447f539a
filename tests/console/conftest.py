"""One filled site and one headless Chromium for the tests of the console."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Looker, chromium
from console_site import Site
from playwright.sync_api import Browser

# the browser is a module's: Playwright's loop is gone before other tests run loops of their own

CLONE_NEWNET = 0x40000000


@pytest.fixture(scope="module")
def own_network() -> Iterator[None]:
    """A loopback of our own: Chromium gives up every request under way when an interface comes or
    goes, and other tests plug cables. Threads and programs started meanwhile stand in it too."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY)
    try:
        if libc.unshare(CLONE_NEWNET):
            yield
            return
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        yield
        assert libc.setns(before, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
    finally:
        os.close(before)


@pytest.fixture(scope="module")
def site(own_network: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(Path(tmp_path_factory.mktemp("site"))) as served:
        yield served


@pytest.fixture(scope="module")
def browser(own_network: None) -> Iterator[Browser]:
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
