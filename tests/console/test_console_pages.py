"""Every page at every width in both themes: nothing sticks out, nobody is shut out."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from chromium import HEIGHTS, Looker
from console_racks import RACK
from console_site import Site
from console_stories import PROVED, UNDER_WAY
from playwright.sync_api import Browser, Route

PAGES = {
    "home": "Home",
    "fleet": "Fleet",
    "nodes?where=state%3Dquarantined": "Nodes",
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
    "usage": "Usage",
    "usage?by=node&time=week": "Usage",
    "events": "Events",
    "alerts": "Alerts",
    "approvals": "Approvals",
    "releases": "Releases",
    "releases/spectrum-x-1.3.0": "spectrum-x-1.3.0",
    "drift": "Drift and debt",
    "checks": "Checks",
    "pins": "Pins",
    "audit": "Audit",
    "tokens": "Tokens and sessions",
    "credentials": "Passwords",
    "certificates": "Certificates",
    f"console/{PROVED}": f"Console of {PROVED}",
    "technician": "Work at the racks",
    "onboard": "New tenant",
    "draft": "New campaign",
    "webhooks": "Webhooks",
    "settings": "Settings",
    "fabric": "Fabric",
    "versions": "Versions",
    "hardware?intake=1": "Hardware list",
    f"hardware/{PROVED}": PROVED,
    "racks": "Racks",
    f"racks/{RACK}": RACK,
    "policies": "Policies",
    "matrix": "Matrix files",
    "images": "Images",
    "cohorts": "Cohorts",
    "watch": "Watch",
    "operations": "Operations",
    "recovery": "Recovery",
    f"logs/{PROVED}?show=syslog": f"Logs of {PROVED}",
    "nowhere": "There is no such page",
}
# both layouts and both palettes; the second where a page has what others have not
TRIED_BY_AXE = {(1440, "light"): set(PAGES), (320, "dark"): {*list(PAGES)[:4], "campaigns/c0001"}}
SHOTS = os.environ.get("CONSOLE_SHOTS", "")  # a folder: try and picture every width in both themes
# a theme changes no length: CI tries dark where axe looks
TRIED = {(width, "light") for width in HEIGHTS}


@pytest.mark.parametrize("where", PAGES)
def test_a_page_fits_every_screen_in_both_themes_and_axe_finds_nothing_serious(
    walker: Looker, where: str
) -> None:
    look = walker
    look.to(where, PAGES[where])
    wrong = []
    for theme in ("light", "dark"):
        for width in HEIGHTS:
            looks = where in TRIED_BY_AXE.get((width, theme), ())
            if not SHOTS and not looks and (width, theme) not in TRIED:
                continue
            look.at(width, theme)
            beyond = look.run("document.documentElement.scrollWidth - innerWidth")
            if beyond > 0:
                wrong.append(f"{width} {theme}: {beyond} px stick out")
            if looks:
                wrong += [f"{width} {theme}: {barrier}" for barrier in look.barriers()]
            if SHOTS:
                name = f"{where.replace('/', '_')}-{width}-{theme}.png"
                look.page.screenshot(path=Path(SHOTS) / name, full_page=where != "fleet")

    assert wrong == []
    assert look.complaints == []


def test_light_and_dark_are_not_the_same_and_the_button_outlives_the_page(look: Looker) -> None:
    look.at(1440, "light")
    colour = "getComputedStyle(document.documentElement).backgroundColor"
    light = look.run(colour)
    look.page.get_by_role("button", name="Dark colours").click()
    dark = look.run(colour)
    look.page.reload()
    look.settled()
    after = look.run(colour)
    look.run("localStorage.clear()")  # other pages of this person follow the system again

    assert light != dark
    assert after == dark


def test_the_sign_in_page_fits_and_axe_finds_nothing_serious(site: Site, browser: Browser) -> None:
    with Looker(browser, site.url) as stranger:
        stranger.page.get_by_label("Token").wait_for()
        for width in HEIGHTS:
            stranger.at(width, "dark")
            assert stranger.run("document.documentElement.scrollWidth <= innerWidth")

        assert stranger.barriers() == []


@pytest.mark.parametrize("width", [1200, 1280, 1440, 1600, 1920])
def test_the_bar_takes_one_line_and_cuts_no_word(look: Looker, width: int) -> None:
    look.to("home", "Home")
    look.page.set_viewport_size({"width": width, "height": 800})
    high = look.run("document.getElementById('bar').getBoundingClientRect().height")
    cut = look.run("""() => {
        const search = document.getElementById('search');
        const ruler = document.createElement('canvas').getContext('2d');
        ruler.font = getComputedStyle(search).font;
        return [...document.querySelectorAll('#bar nav a, #bar button')]
            .filter((e) => e.offsetWidth && e.scrollWidth > e.clientWidth + 1)
            .map((e) => e.textContent)
            .concat(ruler.measureText(search.placeholder).width > search.clientWidth - 20
                ? ['search'] : []);
    }""")

    assert high < 70
    assert cut == []


def test_the_fabric_says_what_a_frame_around_a_port_means(look: Looker) -> None:
    look.to("fabric", "Fabric")
    told = []
    for unit in look.run("[...document.querySelectorAll('#unit option')].map((o) => o.value)"):
        look.to(f"fabric?unit={unit.replace(' ', '%20')}")
        framed = look.get("a.port-square[data-bad]").count()
        entry = look.get(".legend li").filter(has_text="its node is in quarantine or repair")
        counts = [int(re.findall(r"(\d+) port", text)[0]) for text in entry.all_inner_texts()]
        assert counts == ([framed] if framed else [])
        told += counts

    assert told != []


def test_versions_say_what_stands_for_one_that_no_device_gives(look: Looker) -> None:
    mark = look.page.get_by_text("“?”: the device gives no version.")
    look.to("versions", "Versions")
    known = mark.count()

    def answer(route: Route) -> None:
        told = route.fetch().json()
        told["items"][0]["version"] = "?"
        route.fulfill(json=told)

    look.page.route("**/v1/versions", answer)
    look.to("home", "Home")
    look.to("versions", "Versions")
    mark.wait_for()

    assert known == 0


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("", "in no ticket system"),
        ("m1", "not taken to the ticket system yet: it answered with status 503"),
    ],
)
def test_a_closed_case_waits_for_nothing_and_says_where_its_ticket_is(
    look: Looker, asked: str, told: str
) -> None:
    def answer(route: Route) -> None:
        page = route.fetch().json()
        page["line"]["closed_at"] = page["line"]["opened_at"]
        page["case"]["note"] = "it is certified again"
        problem = "it answered with status 503" if asked else ""
        page["case"]["ticket"] = {"id": "", "asked": asked, "problem": problem, "work": "Swap it."}
        route.fulfill(json=page)

    look.page.route("**/v1/cases/su1-n05-c0001", answer)
    look.to("cases/su1-n05-c0001", "su1-n05-c0001")

    facts = dict(
        zip(
            look.get("dt").all_inner_texts(),
            look.get("dd").all_inner_texts(),
            strict=True,
        )
    )
    assert (facts["At its end"], facts["Ticket"]) == ("it is certified again", told)
    assert "Waits for" not in facts


def test_the_filter_of_a_table_is_as_wide_as_the_table(look: Looker) -> None:
    look.to("tenants", "Tenants")
    edge = "(e) => e.getBoundingClientRect().right"
    ends = [look.get(where).first.evaluate(edge) for where in (".listing input", ".listing table")]

    assert abs(ends[0] - ends[1]) < 1
