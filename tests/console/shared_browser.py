"""The browser that all tests of this folder use in one process, and the site of most of them.

A start of Chromium with its driver, and one of a site, cost more than most tests. They begin with
the first test that asks, and end with the last test of this folder before one of another folder:
loops of other tests do not run beside Playwright's (`conftest.py`).
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from chromium import Looker, chromium
from console_site import Site
from playwright.sync_api import Browser

CLONE_NEWNET = 0x40000000


@contextmanager
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


class SharedBrowser:
    """Each part is started by the first who asks for it."""

    def __init__(self) -> None:
        self._stack: ExitStack | None = None
        self._browser: Browser | None = None
        self._site: Site | None = None
        self._operator: Looker | None = None

    def enter_network(self) -> ExitStack:
        """Stand in the browser's network; return what ends with it."""
        if self._stack is None:
            self._stack = ExitStack()
            self._stack.enter_context(own_network())
        return self._stack

    def get_browser(self) -> Browser:
        stack = self.enter_network()
        if self._browser is None:
            if shutil.which("chromium") is None:
                pytest.skip("there is no Chromium: apt-get install chromium")
            self._browser = stack.enter_context(chromium())
        return self._browser

    def get_site(self) -> Site:
        stack = self.enter_network()
        if self._site is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            self._site = stack.enter_context(Site(Path(folder)))
        return self._site

    def get_operator(self) -> Looker:
        """An operator who is signed in at the shared site, before an empty page."""
        if self._operator is None:
            site = self.get_site()
            self._operator = Looker(self.get_browser(), site.url, site.tokens["operator"])
        return self._operator

    def close(self) -> None:
        """End everything; a later test begins it anew."""
        stack, self._stack = self._stack, None
        self._browser = self._site = self._operator = None
        if stack is not None:
            stack.close()


SHARED = SharedBrowser()
