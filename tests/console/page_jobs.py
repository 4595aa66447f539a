"""Jobs of the pages behind the home page: alerts, releases, audit, checks, access, the site."""

from __future__ import annotations

import base64

from chromium import Looker
from console_dialogs import more, search_page
from console_jobs import job
from console_release import NEWER
from console_site import Site
from served import RELEASE


def end_alert(looker: Looker, words: str) -> None:
    """Select an alert by its row and end it by the button of these words."""
    looker.get("nav").get_by_role("link", name="Alerts").click()
    looker.page.get_by_role("checkbox", name="Select FanFailed of").first.check()
    looker.page.get_by_role("button", name=f"{words} (1)").click()
    dialog = looker.page.get_by_role("dialog")
    dialog.get_by_label("Why").fill("a new fan is ordered")
    dialog.get_by_role("button", name=f"{words} (1)").click()
    dialog.wait_for(state="detached")


@job("Alerts", "Suspend an alert for a day")
def suspend_alert(looker: Looker, _site: Site) -> None:
    end_alert(looker, "Suspend")
    looker.page.get_by_text("a new fan is ordered").first.wait_for()


@job("Alerts", "Clear an alert")
def clear_alert(looker: Looker, site: Site) -> None:
    before = sum(a.active for a in site.do(site.store.alerts.list()))
    end_alert(looker, "Clear")
    assert sum(a.active for a in site.do(site.store.alerts.list())) == before - 1


@job("Releases", "See the pins of a release")
def see_release(looker: Looker, _site: Site) -> None:
    more(looker, "Releases")
    looker.get("main").get_by_role("link", name=NEWER, exact=True).first.click()
    looker.page.get_by_role("region", name="Pins of").first.wait_for()


@job("Releases", "Compare two releases")
def compare(looker: Looker, _site: Site) -> None:
    more(looker, "Releases")
    looker.get("main").get_by_role("link", name=NEWER, exact=True).first.click()
    looker.get("main").get_by_role("link", name=f"Difference from {RELEASE}").click()
    looker.page.get_by_role("heading", level=1, name=f"{RELEASE} → {NEWER}").wait_for()
    looker.get("main section").first.wait_for()


@job("Audit", "Search the actions of people")
def search_audit(looker: Looker, _site: Site) -> None:
    more(looker, "Audit")
    looker.page.get_by_label("Filter: Actions of people").fill("session")
    looker.page.get_by_text(" of ").first.wait_for()
    looker.get("tbody tr").first.wait_for()


@job("Audit", "Verify the journal")
def verify(looker: Looker, _site: Site) -> None:
    more(looker, "Audit")
    looker.page.get_by_role("button", name="Verify").click()
    looker.page.get_by_text("The journal is intact").first.wait_for()


@job("Audit", "Export the actions of people to a file")
def export(looker: Looker, _site: Site) -> None:
    more(looker, "Audit")
    with looker.page.expect_download() as saved:
        looker.page.get_by_role("button", name="Export").click()
    assert saved.value.path().read_text().count("\n") > 0


@job("Checks", "See checks, thresholds and measured values")
def see_checks(looker: Looker, _site: Site) -> None:
    more(looker, "Checks")
    looker.page.get_by_role("link", name="Thresholds", exact=True).click()
    looker.page.get_by_label("Filter: Thresholds").fill("link")
    looker.page.get_by_role("rowheader").first.wait_for()
    looker.page.get_by_role("navigation", name="Parts").get_by_role("link", name="Checks").click()
    assert looker.run("document.documentElement.scrollHeight") < 2000  # groups that fold
    looker.page.get_by_label("Filter: Checks").fill("pcie_gen")
    looker.page.get_by_role("cell", name="pcie_gen").first.wait_for()


@job("Checks", "See nodes that differ from their target, and pending resets")
def see_drift(looker: Looker, _site: Site) -> None:
    more(looker, "Drift and debt")
    looker.page.get_by_role("heading", name="Debt", exact=True).wait_for()


@job("Access", "Make a token for a person")
def make_token(looker: Looker, site: Site) -> None:
    more(looker, "Tokens and sessions")
    looker.page.get_by_role("button", name="New token").click()
    dialog = looker.page.get_by_role("dialog")
    dialog.get_by_label("Holder").fill("grace@example")
    dialog.get_by_role("button", name="New token").click()
    token = looker.get("main .notice code").text_content() or ""
    seen = looker.context.request.get(
        f"{site.url}/v1/me", headers={"Authorization": f"Bearer {token}"}
    )
    assert seen.json()["subject"] == "grace@example"


@job("Access", "Revoke a token")
def revoke_token(looker: Looker, site: Site) -> None:
    more(looker, "Tokens and sessions")
    looker.page.get_by_role("button", name="of grace@example").click()
    dialog = looker.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Revoke").click()
    dialog.wait_for(state="detached")
    tokens = {t.subject: t for t in site.do(site.store.tokens.list())}
    assert tokens["grace@example"].revoked_at


@job("Access", "Make a token that changes some racks only")
def make_bounded_token(looker: Looker, site: Site) -> None:
    search_page(looker, "Tokens and sessions")
    looker.page.get_by_role("button", name="New token").click()
    dialog = looker.page.get_by_role("dialog")
    dialog.get_by_label("Holder").fill("linus@example")
    dialog.get_by_text("operator", exact=True).click()
    dialog.get_by_label("Changes only these racks").fill("su1-*")
    dialog.get_by_role("button", name="New token").click()
    looker.page.get_by_text("racks su1-*").wait_for()
    scopes = {t.subject: t.scope.racks for t in site.do(site.store.tokens.list())}
    assert scopes["linus@example"] == ("su1-*",)


@job("Access", "End the browser's session of a person")
def end_session(looker: Looker, site: Site) -> None:
    begun = looker.context.browser.new_context(ignore_https_errors=True)
    answer = begun.request.post(
        f"{site.url}/v1/session", headers={"Authorization": f"Bearer {site.tokens['viewer']}"}
    )
    assert answer.status == 200
    more(looker, "Tokens and sessions")
    looker.page.get_by_role("button", name="End session of viewer@example").first.click()
    dialog = looker.page.get_by_role("dialog")
    dialog.get_by_role("button", name="End", exact=True).click()
    dialog.wait_for(state="detached")
    assert begun.request.get(f"{site.url}/v1/me").status == 401
    begun.close()


@job("Site", "Pin a release to a node")
def pin(looker: Looker, site: Site) -> None:
    more(looker, "Pins")
    looker.page.get_by_role("button", name="New pin").click()
    dialog = looker.page.get_by_role("dialog")
    dialog.get_by_label("Name of the node").fill("su1-n00")
    dialog.get_by_label("Why").fill("the tenant measures")
    dialog.get_by_role("button", name="New pin").click()
    looker.page.get_by_text("the tenant measures").wait_for()
    assert [p.name for p in site.do(site.store.campaigns.list_pins())] == ["su1-n00"]


@job("Site", "Remove a pin")
def remove_pin(looker: Looker, site: Site) -> None:
    more(looker, "Pins")
    looker.page.get_by_role("button", name="Remove node su1-n00").click()
    looker.page.get_by_role("dialog").get_by_role("button", name="Remove", exact=True).click()
    looker.page.get_by_text("No release is pinned.").wait_for()
    assert site.do(site.store.campaigns.list_pins()) == ()


@job("Site", "See the settings in force")
def see_settings(looker: Looker, _site: Site) -> None:
    more(looker, "Settings")
    looker.page.get_by_role("searchbox", name="Filter: Settings").fill("production")
    looker.page.get_by_role("rowheader", name="production", exact=True).first.wait_for()


@job("Site", "See the receivers of events")
def see_webhooks(looker: Looker, _site: Site) -> None:
    more(looker, "Webhooks")
    looker.page.get_by_text("No system receives events.").wait_for()


HOOK = "billing"


@job("Site", "Send events to another system")
def add_webhook(looker: Looker, site: Site) -> None:
    more(looker, "Webhooks")
    looker.page.get_by_role("button", name="New webhook").click()
    dialog = looker.page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(HOOK)
    dialog.get_by_label("URL").fill("https://billing.example/a")
    dialog.get_by_label("Secret").fill(f"whsec_{base64.b64encode(b'k' * 32).decode()}")
    dialog.get_by_role("button", name="New webhook").click()
    looker.page.get_by_role("rowheader", name=HOOK).wait_for()
    assert [hook.webhook.name for hook in site.do(site.store.webhooks.list())] == [HOOK]


@job("Site", "Pause the events to another system")
def pause_webhook(looker: Looker, site: Site) -> None:
    more(looker, "Webhooks")
    looker.page.get_by_role("button", name=f"Pause {HOOK}").click()
    dialog = looker.page.get_by_role("dialog")
    dialog.get_by_label("Why").fill("it is moved")
    dialog.get_by_role("button", name="Pause", exact=True).click()
    looker.page.get_by_role("cell", name="it is moved").wait_for()
    assert [bool(hook.webhook.paused_why) for hook in site.do(site.store.webhooks.list())] == [True]
