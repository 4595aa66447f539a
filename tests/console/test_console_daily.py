"""The three forms with the most fields: what they show before they are agreed to, and barriers.

The other jobs on tenants, cases and campaigns are in `*_jobs.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Looker
from console_release import NEWER
from console_site import Site
from playwright.sync_api import Browser, Locator

from provisioner.model.campaign import CampaignState
from provisioner.model.case import Stage

CLICKS_MAX = 4  # from the menu to the result; typed text does not count
CASE = "su1-n05-c0001"
SERIAL = "1652923012345"


class Hand:
    """A person who clicks, and counts."""

    def __init__(self, look: Looker) -> None:
        self.look = look
        self.page = look.page
        self.clicks = 0

    def press(self, name: str, within: Locator | None = None, role: str = "button") -> None:
        self.clicks += 1
        place = within if within is not None else self.page
        place.get_by_role(role, name=name, exact=True).first.click()  # type: ignore[arg-type]

    def menu(self, name: str) -> None:
        self.look.page.goto(f"{self.look.url}/console/#/events")
        self.page.get_by_role("heading", level=1, name="Events").wait_for()
        self.clicks = 0
        self.press(name, role="link")
        self.page.get_by_role("heading", level=1, name=name).wait_for()
        self.look.settled()

    def dialog(self) -> Locator:
        shown = self.page.get_by_role("dialog")
        shown.wait_for()
        return shown

    def agree(self, name: str) -> str:
        """Press the dialog's own button once the dry run stands there; return the dry run."""
        shown = self.dialog()
        shown.locator("button[type=submit]:not([disabled])").wait_for()
        text = shown.locator(".plan").text_content() or ""
        self.press(name, shown)
        shown.wait_for(state="detached")
        return text


@pytest.fixture(scope="module")
def site(own_network: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The console's site with leaves, so that a tenant's network has lines."""
    with Site(Path(tmp_path_factory.mktemp("site")), leaves=True) as served:
        yield served


@pytest.fixture(scope="module")
def operator(site: Site, browser: Browser) -> Iterator[Looker]:
    with Looker(browser, site.url, site.tokens["operator"]) as looker:
        yield looker


@pytest.fixture
def hand(operator: Looker) -> Iterator[Hand]:
    operator.at(1440)
    yield Hand(operator)
    assert operator.complaints == []


def tenant(site: Site, name: str):
    return next((t for t in site.do(site.store.tenants.list()) if t.name == name), None)


def test_a_tenant_is_onboarded_after_its_dry_run(hand: Hand, site: Site) -> None:
    page = hand.page
    hand.menu("Tenants")
    hand.press("New tenant", role="link")
    page.get_by_role("textbox", name="Name").fill("green")
    page.get_by_role("spinbutton", name="Nodes", exact=True).fill("2")
    page.get_by_role("combobox", name="Which nodes").select_option("unit")
    plan = page.locator(".plan")
    plan.get_by_text("GREEN", exact=True).first.wait_for()
    page.locator("button[type=submit]:not([disabled])").wait_for()
    dry = plan.text_content() or ""
    hand.look.settled()
    barriers = hand.look.barriers()
    before = tenant(site, "green")
    hand.press("Onboard")
    page.get_by_role("heading", level=1, name="green").wait_for()
    onboarded = tenant(site, "green")

    assert before is None  # the dry run wrote nothing
    assert "leaf-su1-r0: 1 line+ nv set vrf GREEN evpn vni" in dry
    assert barriers == []
    assert onboarded.nodes_wanted == 2
    assert len(onboarded.picked) == 2
    assert len({name.split("-")[0] for name in onboarded.picked}) == 1  # the same unit
    assert hand.clicks <= CLICKS_MAX


def test_a_technician_with_a_phone_scans_a_serial_and_reports_the_node_returned(
    hand: Hand, site: Site
) -> None:
    page = hand.page
    page.set_viewport_size({"width": 390, "height": 844})
    hand.menu("Cases")
    hand.press("For technicians", role="link")
    page.get_by_role("heading", level=1, name="Work at the racks").wait_for()
    page.get_by_label("Serial").fill("NONE-SUCH")
    page.get_by_text("No open case has a part").wait_for()
    page.get_by_label("Serial").fill(SERIAL)
    card = page.locator("section.card").filter(has_text="su1-n05")
    card.wait_for()
    beyond = hand.look.run("document.documentElement.scrollWidth - innerWidth")
    barriers = hand.look.barriers()
    hand.press("Returned", card)
    hand.dialog().get_by_label("Serial of the new part").fill("NEW-1")
    hand.dialog().get_by_label("What was done").fill("GPU replaced")
    hand.agree("Returned")
    case = site.do(site.store.cases.get(CASE))

    assert beyond <= 0
    assert barriers == []
    assert case.stage is Stage.RETURNING
    assert case.note == "GPU replaced (new serial NEW-1)"
    assert hand.clicks <= CLICKS_MAX


def test_a_campaign_is_drafted_with_difference_picture_policy_and_preview(
    hand: Hand, site: Site
) -> None:
    page = hand.page
    hand.menu("Campaigns")
    hand.press("New campaign", role="link")
    page.get_by_role("combobox", name="Release").select_option(NEWER)
    page.get_by_role("textbox", name="Which nodes").fill("su=2 and kind=host")
    page.get_by_text("24 nodes", exact=True).first.wait_for()
    page.get_by_text("node on ").or_(page.get_by_text("nodes on ")).first.wait_for()
    page.get_by_text("Canaries, waves, limits").click()
    hand.clicks += 1
    page.get_by_role("spinbutton", name="Canaries").fill("2")
    page.get_by_label("Window: days").fill("Sat Sun")
    page.get_by_label("Its time zone").fill("Europe/Berlin")
    page.locator(".plan").get_by_text("Bounded by").wait_for()
    page.locator("button[type=submit]:not([disabled])").wait_for()
    preview = page.locator(".plan").text_content() or ""
    barriers = hand.look.barriers()
    campaigns = len(site.do(site.store.campaigns.list()))
    hand.press("Draft")
    page.get_by_role("button", name="Start").wait_for()
    drafted = site.do(site.store.campaigns.list())[-1]

    assert barriers == []
    assert "Bounded by" in preview
    assert campaigns == 2  # the preview drafted nothing
    assert drafted.policy.canary.size == 2
    assert drafted.policy.windows[0].zone == "Europe/Berlin"
    assert drafted.policy.windows[0].days == (5, 6)
    assert drafted.state is CampaignState.DRAFT
    assert hand.clicks <= CLICKS_MAX
