"""The console in use: signing in, keyboard, live colours, pausing a campaign, hostile words."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from functools import partial
from typing import Any

import pytest
from chromium import COOKIE, Looker
from console_fleet import EVIL, NEWER
from console_site import Site
from given_events import event_of
from sqlalchemy import select, update

from provisioner.model.access import Session
from provisioner.model.campaign import Campaign, CampaignState, Policy
from provisioner.model.events.fleet_events import describe_change
from provisioner.model.node import State
from provisioner.model.times.instant import parse_instant
from provisioner.store.rows import request_rows as session_rows
from provisioner.store.schema.schema import console_sessions

PIXEL = """() => {
    const [c, m] = ['canvas', '.map-mark'].map((word) => document.querySelector(word));
    const at = new DOMMatrix(getComputedStyle(m).transform), ratio = c.width / c.clientWidth;
    const y = at.f - document.querySelector('.map').scrollTop;
    return [...c.getContext('2d').getImageData((at.e + 6) * ratio, (y + 6) * ratio, 1, 1).data]
        .join(); }"""

# of a radio button, its label has the outline
OUTLINE = """() => { const e = document.activeElement;
    return getComputedStyle(e.type === 'radio' ? e.nextElementSibling : e).outlineStyle; }"""


def test_a_token_is_taken_once_and_kept_where_no_script_reads_it(site: Site, browser) -> None:
    with Looker(browser, site.url) as looker:
        page = looker.page
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("This token is not good").wait_for()
        page.get_by_label("Token").fill(site.tokens["viewer"])
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Fleet", level=1).wait_for()

        kept = {c["name"]: c for c in looker.context.cookies()}[COOKIE]
        assert (kept["httpOnly"], kept["secure"], kept["sameSite"]) == (True, True, "Strict")
        stored = "document.cookie + JSON.stringify({...localStorage, ...sessionStorage})"
        assert site.tokens["viewer"] not in looker.run(stored)

        page.get_by_role("button", name="Sign out").click()
        page.get_by_label("Token").wait_for()
        assert looker.context.cookies() == []


def request(site: Site, verb: str, path: str, **headers: str) -> tuple[int, Any]:
    """(status, JSON) of a request that no browser sends."""
    asked = urllib.request.Request(
        f"{site.url}/v1{path}", method=verb, data=b"{}" if verb == "POST" else None, headers=headers
    )
    try:
        with urllib.request.urlopen(asked, context=ssl._create_unverified_context()) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as no:
        return no.code, json.load(no)


def cookie_of(look: Looker) -> dict[str, str]:
    """The header of whoever took the browser's cookie."""
    kept = {c["name"]: c for c in look.context.cookies()}[COOKIE]
    return {"Cookie": f"{COOKIE}={kept['value']}"}


def test_the_cookie_alone_changes_nothing(site: Site, look: Looker) -> None:
    status, told = request(site, "POST", "/campaigns/c0001/pause", **cookie_of(look))

    assert status == 403
    assert "cookie alone" in told["title"]


def test_a_cookie_that_was_stolen_is_worth_nothing_after_the_sign_out(site: Site, browser) -> None:
    with Looker(browser, site.url, site.tokens["operator"]) as looker:
        stolen = cookie_of(looker)
        assert site.tokens["operator"] not in stolen["Cookie"]
        before, _ = request(site, "GET", "/me", **stolen)
        looker.page.get_by_role("button", name="Sign out").click()
        looker.page.get_by_label("Token").wait_for()
        after, _ = request(site, "GET", "/me", **stolen)

    assert (before, after) == (200, 401)


def test_a_session_that_was_ended_elsewhere_leads_to_the_sign_in(site: Site, browser) -> None:
    with Looker(browser, site.url, site.tokens["viewer"]) as looker:
        end = partial(
            session_rows.end_sessions_of_subject, subject="viewer@example", why="tried", now=1.8e9
        )
        assert site.do(site.store.write(end))
        looker.page.get_by_text("Your session is over").wait_for()


def test_a_reclaim_asks_for_the_token_again_and_then_goes_on(site: Site, browser) -> None:
    with Looker(browser, site.url, site.tokens["operator"]) as looker:
        page = looker.page
        name = next(n.id for n in site.do(site.store.nodes.list()) if n.state is State.RELEASED)
        looker.to(f"nodes/{name}", name)
        site.do(age_sessions(site))
        page.get_by_role("button", name="Reclaim").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Also if it could not serve").check()
        dialog.get_by_role("button", name="Reclaim").click()
        again = page.get_by_role("dialog", name="Sign in again")
        again.wait_for()
        assert site.do(site.store.nodes.get(name)).state is State.RELEASED

        again.get_by_label("Token").fill("wrong")
        again.get_by_role("button", name="Sign in").click()
        again.get_by_text("This token is not good").wait_for()
        again.get_by_label("Token").fill(site.tokens["operator"])
        page.keyboard.press("Enter")
        page.get_by_role("dialog").first.wait_for(state="detached")
        page.get_by_role("heading", name=name, level=1).wait_for()

        assert site.do(site.store.nodes.get(name)).state is State.DRAINING
        assert looker.get("#bar").is_visible()


async def age_sessions(site: Site) -> None:
    """As if the newest browser had signed in an hour ago, and had been in use since."""

    def age(connection: Any) -> None:
        found = connection.execute(select(console_sessions)).all()
        parsed = [(row, Session.model_validate_json(row.body)) for row in found]
        # the newest one alone: others of the file go on with theirs
        for row, session in sorted(parsed, key=lambda pair: pair[1].made_at)[-1:]:
            older = session.model_copy(update={"made_at": session.made_at - 3600.0})
            written = update(console_sessions).where(console_sessions.c.id == row.id)
            connection.execute(written.values(body=older.model_dump_json()))

    await site.store.write(age)


def test_a_keyboard_reaches_everything_in_order(look: Looker) -> None:
    keys = look.page.keyboard
    walked = []
    for _ in range(40):
        keys.press("Tab")
        walked.append(look.focused())
        outline = "getComputedStyle(document.activeElement.id.match(/^(by|field|as)-/) ? "
        outline += (
            "document.activeElement.nextElementSibling : document.activeElement).outlineStyle"
        )
        assert look.run(outline) != "none", f"{walked[-1]} has the focus, and nobody can see it"
        if walked[-1].startswith("released"):
            break

    assert walked[0] == "Skip to the content"
    order = [
        "Home",
        "Fleet",
        "Campaigns",
        "Cases",
        "Tenants",
        "Alerts",
        "Approvals",
        "Events",
        "Dark colours",
        "Sign out",
    ]
    assert [w for w in walked if w in order] == order
    assert any(w.startswith("released") for w in walked)  # the legend


def test_arrow_keys_walk_the_map_and_enter_opens_a_node(look: Looker) -> None:
    look.get(".map").focus()
    names = []
    for key in ("Home", "ArrowRight", "ArrowDown", "End", "Home"):
        look.page.keyboard.press(key)
        names.append(look.get(".pointed .strong").text_content())
    look.page.keyboard.press("Enter")
    look.page.get_by_role("heading", level=1, name=names[0] or "").wait_for()

    assert len(set(names)) == 4
    assert names[0] == names[-1]


def test_the_filter_is_the_language_of_the_api_and_says_what_is_wrong(
    look: Looker, site: Site
) -> None:
    filter_ = look.page.get_by_label("Filter: an expression over nodes")
    filter_.fill("tenant=red and not state=quarantined")
    look.page.get_by_text(f"of {len(site.do(site.store.nodes.list()))} nodes").wait_for()
    look.page.get_by_text("Table", exact=True).click()
    shown = int(look.get(".rows").get_attribute("aria-rowcount") or 0) - 1
    filter_.fill("colour=red")
    look.page.locator("#where-said mark").get_by_text("colour").wait_for()
    look.complaints.clear()  # the browser told of the request that was refused

    assert shown == look.run(
        """async () => { const query = 'where=tenant%3Dred&limit=500';
            return (await (await fetch('/v1/nodes?' + query)).json()).items.length; }"""
    )


def test_an_event_moves_a_colour_without_anybody_asking(look: Looker, site: Site) -> None:
    look.get(".map").focus()
    look.page.keyboard.press("Home")
    name = look.get(".pointed .strong").text_content() or ""
    before = look.run(PIXEL)
    asked: list[str] = []
    look.page.on("request", lambda request: asked.append(request.url))
    look.page.wait_for_timeout(700)
    idle = list(asked)

    async def turn(state: State) -> None:
        node = await site.store.nodes.get(name)
        assert node is not None
        await site.store.nodes.save(node.model_copy(update={"state": state}))
        await site.store.journal.append(
            event_of("state", name, {"to": state.value, "why": "tried"}), 1.8e9
        )

    was = site.do(site.store.nodes.get(name)).state
    site.do(turn(State.REPAIRING))
    told = look.get(".pointed").filter(has_text="repairing")
    told.wait_for()
    look.run("() => new Promise(requestAnimationFrame)")
    after = look.run(PIXEL)
    site.do(turn(was))

    assert idle == []  # nothing is asked for while nothing happens
    assert [url for url in asked if "/fleet/map" in url] == []  # the stream brings the change
    assert after != before


def test_a_campaign_is_paused_by_keyboard_after_a_question_and_shows_it(look: Looker) -> None:
    look.to("campaigns/c0001", "c0001")
    pause = look.page.get_by_role("button", name="Pause")
    pause.focus()
    look.page.keyboard.press("Enter")
    look.page.get_by_role("dialog").wait_for()
    look.page.keyboard.press("Escape")
    look.page.locator("dialog").wait_for(state="detached")  # a closed one has no role any more
    assert look.focused() == "Pause"

    look.page.keyboard.press("Enter")
    look.page.get_by_label("Why").fill("a leaf is being replaced")
    look.page.locator("dialog button[type=submit]:not([disabled])").wait_for()  # the dry run
    look.page.keyboard.press("Enter")
    look.page.get_by_role("button", name="Resume").wait_for()
    look.page.get_by_text("a leaf is being replaced").first.wait_for()
    abort = look.page.get_by_role("button", name="Abort")
    abort.click()
    look.page.get_by_role("dialog").get_by_text("ends for good").first.wait_for()
    look.page.get_by_role("button", name="Cancel").click()
    look.page.get_by_role("button", name="Roll back").click()
    back = look.page.get_by_role("dialog")
    cost, no = back.get_by_text("node minutes"), back.get_by_text("It cannot be done now")
    cost.or_(no).first.wait_for()
    back.get_by_role("button", name="Cancel").click()
    look.page.get_by_role("button", name="Resume").click()
    look.page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    look.page.get_by_role("button", name="Pause").wait_for()


def test_a_viewer_has_no_buttons_that_change_and_a_tenant_sees_its_own(site: Site, browser) -> None:
    with Looker(browser, site.url, site.tokens["viewer"]) as viewer:
        viewer.to("campaigns/c0001", "c0001")
        assert viewer.get("main .title button").count() == 0
    with Looker(browser, site.url, site.tokens["tenant"]) as tenant:
        tenant.page.get_by_text("Table", exact=True).click()
        tenant.get(".rows-room .row").first.wait_for()
        owners = set(tenant.get(".rows-room .row > :nth-child(5)").all_text_contents())
        assert owners == {"red"}


def away(look: Looker, what: str) -> list[bool]:
    """Requests for it go nowhere until the list is empty."""
    cut = [True]

    def answer(route: Any) -> None:
        if cut:
            route.abort()
        else:
            route.continue_()

    look.page.route(what, answer)
    return cut


def test_nobody_is_asked_to_sign_in_because_the_server_was_away(look: Looker) -> None:
    cut = away(look, "**/v1/me")
    look.page.reload()
    look.page.get_by_role("heading", name="The server does not answer").wait_for()
    assert look.get("input").count() == 0
    cut.clear()
    look.get("#bar").wait_for()
    look.settled()
    look.complaints.clear()  # the browser told of the request that failed


@pytest.mark.parametrize("what", ["**/v1/nodes/su0-n02", "**/console/node.js"])
def test_a_page_that_could_not_be_had_comes_by_itself_when_the_server_is_back(
    look: Looker, what: str
) -> None:
    cut = away(look, what)
    look.to("nodes/su0-n02", "The server does not answer")
    cut.clear()
    look.page.get_by_role("heading", name="su0-n02", level=1).wait_for()
    look.complaints.clear()  # the browser told of the request that failed


def test_words_of_a_device_never_become_markup(look: Looker) -> None:
    words = EVIL.replace("\u202e", "\ufffd")
    pages = {"nodes/su1-liar": "su1-liar", "cases/su1-n05-c0001": "su1-n05", "events": "Events"}
    for where, heading in pages.items():
        look.to(where, heading)
        look.page.get_by_text(words[:20]).first.wait_for()

        assert look.get("main img, main script").count() == 0
        assert look.run("typeof owned") == "undefined"
        assert "owned" not in look.page.title()
    look.to("nodes/su1-liar", "su1-liar")
    assert words in (look.get("main").text_content() or "")


def test_the_browser_itself_refuses_markup_made_of_words(look: Looker) -> None:
    refused = look.run(
        """() => { try { document.body.innerHTML = '<b>x</b>'; return ''; }
            catch (error) { return error.name; } }"""
    )
    look.complaints.clear()

    assert refused == "TypeError"


def test_a_campaign_that_nothing_undoes_starts_only_when_each_step_was_agreed_to(
    look: Looker, site: Site
) -> None:
    policy = Policy.model_validate({"allow_irreversible": True, "tenants": {"notice_s": 0}})
    book = site.store.campaigns
    draft = Campaign(id="c0009", release=NEWER, select="su=2 and kind=host", policy=policy)
    site.do(book.add(draft, "ada", 1.8e9))
    try:
        look.to("campaigns/c0009", "c0009")
        preview = look.run("async () => (await fetch('/v1/campaigns/c0009/preview')).json()")
        assert preview["to_confirm"]
        assert preview["steps"] > 0
        look.page.get_by_text("To be agreed to before it starts").wait_for()
        look.page.get_by_role("button", name="Start").click()
        look.page.get_by_text("Fill in: I agree to").wait_for()
        said = look.page.get_by_role("dialog").text_content() or ""
        locked = look.page.get_by_role("dialog").get_by_role("button", name="Start").is_disabled()
        boxes = look.page.get_by_role("dialog").get_by_role("checkbox").count()
        state = site.do(book.get("c0009")).state
    finally:
        aborted = site.do(book.get("c0009")).model_copy(update={"state": CampaignState.ABORTED})
        site.do(book.save(aborted, describe_change(aborted, ""), 1.8e9))

    assert f"{preview['blast']['hosts']} hosts" in said
    assert f"{preview['steps']} steps" in said
    assert all(step in said for step in preview["to_confirm"])
    assert boxes == 1  # it names the number of steps, which stand above it one by one
    assert locked
    assert state is CampaignState.DRAFT


def test_times_are_told_by_the_sites_clock_whatever_the_browsers_says(site: Site, browser) -> None:
    with Looker(browser, site.url) as looker:
        looker.page.add_init_script(
            "const real = Date.now; Date.now = () => real() + 40 * 86400 * 1000;"
        )
        looker.page.reload()
        looker.page.get_by_label("Token").fill(site.tokens["operator"])
        looker.page.keyboard.press("Enter")
        looker.page.get_by_role("heading", name="Fleet", level=1).wait_for()
        node = site.do(site.store.nodes.get("su1-n00"))
        looker.to("nodes/su1-n00", "su1-n00")
        shown = looker.run("async () => (await import('./words.js')).now()")
        told = looker.run("async () => (await (await fetch('/v1/me')).json()).now")

    assert node is not None
    assert abs(shown - parse_instant(told)) < 60


def test_a_lost_network_and_an_ended_session_throw_nothing_away_that_was_typed(
    site: Site, browser
) -> None:
    with Looker(browser, site.url, site.tokens["operator"]) as looker:
        looker.to("nodes/su1-n01", "su1-n01")
        before = site.do(site.store.nodes.get("su1-n01"))
        looker.page.get_by_role("button", name="Tags", exact=True).click()
        dialog = looker.page.get_by_role("dialog").first
        dialog.get_by_role("textbox").first.fill("typed")
        yes = dialog.locator("button[type=submit]")
        looker.page.locator("dialog button[type=submit]:not([disabled])").wait_for()
        cut = away(looker, "**/v1/nodes/su1-n01/tags*")
        yes.click()
        dialog.get_by_text("The server does not answer").wait_for()
        cut.clear()
        looker.context.clear_cookies()  # as if its session had ended
        yes.click()
        again = looker.page.get_by_role("dialog", name="Sign in again")
        again.get_by_label("Token").fill(site.tokens["operator"])
        looker.page.keyboard.press("Enter")
        looker.page.get_by_role("dialog").first.wait_for(state="detached")

        after = site.do(site.store.nodes.get("su1-n01"))
        assert after.tags == ("typed",)
        site.do(site.store.nodes.save(after.model_copy(update={"tags": before.tags})))
        looker.page.get_by_role("heading", name="su1-n01", level=1).wait_for()


def test_a_filter_of_10000_characters_is_kept_and_said_to_be_too_long(look: Looker) -> None:
    filter_ = look.page.get_by_label("Filter: an expression over nodes")
    filter_.fill("node=" + "x" * 10_000)
    look.page.get_by_text("It is too long, with 10005 characters").wait_for()

    assert len(filter_.input_value()) == 10_005
    filter_.fill("")
    look.page.locator(".said:not(.bad)").first.wait_for()


PAGES_OF_STAFF = (
    "home", "fabric", "campaigns", "alerts", "approvals", "releases", "versions", "drift", "checks",
    "pins", "certificates", "audit", "tokens", "credentials", "webhooks", "settings", "hardware",
    "policies", "matrix", "images", "cohorts", "watch", "operations", "recovery", "technician",
    "onboard", "draft", "nodes", "events", "cases", "tenants", "racks",
)  # fmt: skip
WALK = """async (pages) => {
    const told = {};
    const main = document.getElementById('main');
    for (const page of pages) {
        const first = main.firstChild;
        location.hash = '#/' + page;
        for (let n = 0; n < 600 && (main.firstChild === first || main.hasAttribute('aria-busy'));
            n += 1) await new Promise((done) => setTimeout(done, 20));
        told[page] = main.innerText;
    }
    return told;
}"""


def test_a_tenant_sees_on_no_page_what_is_not_its_own(site: Site, browser) -> None:
    foreign = [n.id for n in site.do(site.store.nodes.list()) if n.tenant != "red" and n.ports]
    with Looker(browser, site.url, site.tokens["tenant"]) as tenant:
        told = tenant.run(WALK, [*PAGES_OF_STAFF, f"nodes/{foreign[0]}", f"actions/{foreign[0]}/x"])
        tenant.complaints.clear()  # the browser told of each refusal

    assert len(told) == len(PAGES_OF_STAFF) + 2
    for page, words in told.items():
        shown = [name for name in foreign if name in words.replace(foreign[0], "", 1)]
        assert shown == [], page
        assert not {"operator@example", "10.0.0."} & set(words.split()), page
        assert len(words.split()) > 3, page  # it says what it is, or why it is not shown
