"""Debian's Chromium without a screen, and somebody who looks at the console with it.

`chromium-headless-shell` is the same engine without a desktop's window and costs half the CPU time;
where only `chromium` is installed, that one is started.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, BrowserContext, Locator, sync_playwright

HEIGHTS = {320: 720, 768: 1024, 1440: 900, 3840: 2160}  # by width, CSS pixels
PATIENCE_MS = 60_000  # for what is bound to come, on a busy machine
COOKIE = "__Host-provisioner"
BARRIERS = """async () => {
    // rows of a long table are alike: some settings take as long as all other pages together
    const places_of = { exclude: [['tbody tr:nth-child(n+25)'], ['.events li:nth-child(n+25)']] };
    const { violations } = await axe.run(places_of, { resultTypes: ['violations'] });
    const places = (v) => JSON.stringify(v.nodes.slice(0, 3).map((n) => n.target));
    return violations.filter((v) => ['serious', 'critical'].includes(v.impact))
        .map((v) => `${v.id}: ${v.help} at ${places(v)}`);
}"""


def find_chromium() -> str | None:
    """The installed browser that costs least; None if there is none."""
    return shutil.which("chromium-headless-shell") or shutil.which("chromium")


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; --no-sandbox because CI is root, and it opens nothing but our own pages."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(),
            args=["--no-sandbox", "--disable-dev-shm-usage", "--force-color-profile=srgb"],
        )
        try:
            yield browser
        finally:
            browser.close()


class Looker:
    """One page of the console. `complaints`: what the browser had to object to."""

    def __init__(
        self, browser: Browser, url: str, token: str = "", context: BrowserContext | None = None
    ) -> None:
        """`context`: one that is signed in already; it is not closed at the end."""
        self.url, self._token, self._borrowed = url, token, context is not None
        self.context = context or browser.new_context(
            ignore_https_errors=True, viewport={"width": 1440, "height": 900}
        )
        self.context.set_default_timeout(PATIENCE_MS)
        if token and context is None:  # the answer's cookie goes into the browser's jar
            begun = self.context.request.post(
                f"{url}/v1/session", headers={"Authorization": f"Bearer {token}"}
            )
            assert begun.status == 200, begun.text()
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._said)

    def __enter__(self) -> Looker:
        self.page.goto(f"{self.url}/console/#/fleet")
        if self._token:
            self.page.locator("#bar").wait_for()  # signed in
            self.settled()
        return self

    def __exit__(self, *_: object) -> None:
        if self._borrowed:
            self.page.close()
        else:
            self.context.close()

    def open_page(self) -> Looker:
        """Another page of the same person, without another sign-in."""
        browser = self.context.browser
        assert browser is not None
        return Looker(browser, self.url, self._token, self.context)

    def _said(self, message: Any) -> None:
        # "there is none yet" is an answer that pages live with; a browser calls it an error
        if message.type == "error" and "404" not in message.text:
            self.complaints.append(message.text)

    def to(self, where: str, heading: str = "") -> None:
        """Go to a page and wait until it stands there."""
        before = self.page.locator("#main > *").first.element_handle()
        self.page.goto(f"{self.url}/console/#/{where}")
        if before is not None and not self._is(where):
            before.wait_for_element_state("hidden")
        self._at = where
        self.settled()
        if heading:
            self.page.get_by_role("heading", level=1, name=heading).wait_for()

    _at = "fleet"

    def _is(self, where: str) -> bool:
        return self._at == where

    def settled(self) -> None:
        self.page.locator("#main:not([aria-busy]) h1").wait_for()

    def at(self, width: int, theme: Any = "light") -> None:
        self.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        self.page.set_viewport_size({"width": width, "height": HEIGHTS[width]})

    def get(self, selector: str) -> Locator:
        return self.page.locator(selector)

    def run(self, script: str, about: Any = None) -> Any:
        """JavaScript in the page, by the debugger: the page's own policy lets no text run."""
        return self.page.evaluate(script, about)

    def focused(self) -> str:
        """What has the focus: its name as it is told, else its tag."""
        script = """() => { const e = document.activeElement;
            return e.getAttribute('aria-label') || (e.id === 'main' ? 'main' : '')
                || e.textContent.trim() || e.id || e.tagName; }"""
        return str(self.run(script))

    def barriers(self) -> list[str]:
        """What axe-core calls serious or critical on this page."""
        if not self.run("'axe' in window"):  # half a megabyte: once for each page that is loaded
            self.run(AXE_SCRIPT)
        return [str(line) for line in self.run(BARRIERS)]
