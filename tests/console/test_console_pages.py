"""Every page at every width in both themes: nothing sticks out, nobody is shut out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from chromium import HEIGHTS, Looker
from console_stories import PROVED, UNDER_WAY

PAGES = {
    "fleet": "Fleet",
    f"nodes/{UNDER_WAY}": UNDER_WAY,
    f"nodes/{PROVED}": PROVED,
    "nodes/su1-liar": "su1-liar",
    "nodes/leaf-su1-r0": "leaf-su1-r0",
    "campaigns": "Campaigns",
    "campaigns/c0001": "c0001",
    "campaigns/c0002": "c0002",
    "cases": "Cases",
    "cases/su1-n05-c0001": "su1-n05-c0001",
    "tenants": "Tenants",
    "tenants/red": "red",
    "events": "Events",
    "nowhere": "There is no such page",
}
TRIED_BY_AXE = {(320, "dark"), (1440, "light")}  # both layouts and both palettes
SHOTS = os.environ.get("CONSOLE_SHOTS", "")  # a folder: keep a picture of everything


@pytest.mark.parametrize("where", PAGES)
def test_a_page_fits_every_screen_in_both_themes_and_axe_finds_nothing_serious(
    look: Looker, where: str
) -> None:
    look.to(where, PAGES[where])
    wrong = []
    for theme in ("light", "dark"):
        for width in HEIGHTS:
            look.at(width, theme)
            beyond = look.run("document.documentElement.scrollWidth - innerWidth")
            if beyond > 0:
                wrong.append(f"{width} {theme}: {beyond} px stick out")
            if (width, theme) in TRIED_BY_AXE:
                wrong += [f"{width} {theme}: {barrier}" for barrier in look.barriers()]
            if SHOTS:
                name = f"{where.replace('/', '_')}-{width}-{theme}.png"
                look.page.screenshot(path=Path(SHOTS) / name, full_page=where != "fleet")

    assert wrong == []


def test_light_and_dark_are_not_the_same_and_the_button_outlives_the_page(look: Looker) -> None:
    look.at(1440, "light")
    colour = "getComputedStyle(document.documentElement).backgroundColor"
    light = look.run(colour)
    look.page.get_by_role("button", name="Dark colours").click()
    dark = look.run(colour)
    look.page.reload()
    look.settled()

    assert light != dark
    assert look.run(colour) == dark


def test_the_sign_in_page_fits_and_axe_finds_nothing_serious(site, browser) -> None:
    with Looker(browser, site.url) as stranger:
        stranger.page.get_by_label("Token").wait_for()
        for width in HEIGHTS:
            stranger.at(width, "dark")
            assert stranger.run("document.documentElement.scrollWidth <= innerWidth")

        assert stranger.barriers() == []
