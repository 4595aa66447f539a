"""The browser that all tests of this folder use in one process, and the site of most of them.

A start of Chromium with its driver, and one of a site, cost more than most tests. They begin with
the first test that asks, and end with the last test of this folder before one of another folder:
loops of other tests do not run beside Playwright's (`conftest.py`).
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import cast

import pytest
from chromium import Looker, chromium, find_chromium
from console_site import Site
from playwright.sync_api import Browser, Error

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
    """Each part is started by the first who asks for it, and anew after it died."""

    def __init__(self) -> None:
        self._network, self._rest = ExitStack(), ExitStack()  # the first outlives what stands in it
        self._inside = False
        self._browser: Browser | None = None
        self._site: Site | None = None
        self._operator: Looker | None = None
        # tests that failed: so far, when all was tried last, and when the operator signed in
        self.failures = self._tried = self._signed_in_at = 0

    def enter_network(self) -> None:
        """Stand in the browser's network from now on."""
        if not self._inside:
            self._network.enter_context(own_network())
            self._inside = True

    def get_browser(self) -> Browser:
        self.enter_network()
        if self._browser is None:
            if find_chromium() is None:
                pytest.skip("there is no Chromium: apt-get install chromium-headless-shell")
            self._browser = self._rest.enter_context(chromium())
        return self._browser

    def get_site(self) -> Site:
        self.enter_network()
        if self._site is None:
            folder = self._rest.enter_context(tempfile.TemporaryDirectory())
            self._site = self._rest.enter_context(Site(Path(folder)))
        return self._site

    def get_operator(self) -> Looker:
        """An operator who is signed in at the shared site, before an empty page."""
        if self._operator is None or self._signed_in_at != self.failures:
            site, self._signed_in_at = self.get_site(), self.failures
            self._operator = Looker(self.get_browser(), site.url, site.tokens["operator"])
        return self._operator

    def is_dead(self) -> bool:
        """Whether the browser, its driver or the site's loop ended under the tests."""
        if self._site is not None and not self._site.is_alive():
            return True
        if self._browser is None or self.failures == self._tried:
            return self._browser is not None and not self._browser.is_connected()
        self._tried = self.failures
        try:
            self._browser.new_context().close()
        except Error:
            return True
        return False

    def revive(self) -> None:
        """Begin anew where something died, so that a death fails one test and not all after it."""
        if self.is_dead():
            self._end_rest()

    def close(self) -> None:
        """End everything; a later test begins it anew."""
        self._end_rest()
        self._inside = False
        self._network.close()

    def _end_rest(self) -> None:
        dead, self._rest = self._rest, ExitStack()
        self._browser = self._site = self._operator = None
        try:
            dead.close()
        except Exception as error:  # what died cannot be closed well, and no test needs it
            warnings.warn(f"the shared browser or site ended badly: {error}", stacklevel=1)


SHARED = SharedBrowser()


class Kept:
    """A page that the tests of a module share while it is sound: after a test that failed, or with
    complaints, it is closed, and the next test has another. Otherwise all after it fail too."""

    def __init__(self, open_page: Callable[[], Looker]) -> None:
        self._open, self._looker, self._at = open_page, cast("Looker | None", None), 0

    def lend(self) -> Looker:
        """Return the page, a new one where the last is not sound."""
        if self._looker is not None and (self._at != SHARED.failures or self._looker.complaints):
            self.drop()
        if self._looker is None:
            self._looker, self._at = self._open().__enter__(), SHARED.failures
        return self._looker

    def drop(self) -> None:
        """Close it, as far as it still can be closed."""
        looker, self._looker = self._looker, None
        if looker is not None:
            with suppress(Exception):
                looker.__exit__(None, None, None)
