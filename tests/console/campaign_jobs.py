"""Jobs on campaigns: drafted, started, held, ended, and the requests on one of its nodes."""

from __future__ import annotations

from chromium import Looker
from console_dialogs import agree, ask_for, open_entry, open_page
from console_jobs import job
from console_release import EARLIER, NEWER
from console_site import Site
from served import RELEASE

from provisioner.model.campaign import (
    Campaign,
    CampaignNode,
    CampaignRow,
    CampaignState,
    NodeProgress,
    Policy,
    Progress,
)

AREA = "Campaigns"
SELECT = "su=2 and kind=host"
METRIC = "busbw_gb_s"


def put_campaign(
    site: Site,
    number: int,
    state: CampaignState,
    progress: Progress = Progress.PENDING,
    baseline: str = RELEASE,
) -> str:
    """Add a campaign with one node; return its id."""
    now = site.now()
    started = 0.0 if state is CampaignState.DRAFT else now - 3600.0
    campaign = Campaign(
        id=f"c01{number:02d}", release=NEWER, select=SELECT, state=state, baseline=baseline,
        created_by="ada", created_at=now - 7200.0, started_at=started,
        policy=Policy(allow_irreversible=True, limits={}),
    )  # fmt: skip
    book = site.store.campaigns
    saved = site.do(book.add(campaign, "ada", now - 7200.0))
    if state is not CampaignState.DRAFT:
        node = NodeProgress(node="su2-n09", wave=0, state=progress)
        facts = CampaignNode(name="su2-n09")
        row = CampaignRow(campaign=saved.id, progress=node, facts=facts, release_before=baseline)
        site.do(book.put_rows(saved, [row], now))
    return str(saved.id)


def put_slower(site: Site, name: str) -> None:
    """Give the campaign six nodes that measure less than before."""
    campaign = site.do(site.store.campaigns.get(name))
    rows = [
        CampaignRow(
            campaign=name, progress=NodeProgress(node=node, state=Progress.DONE),
            facts=CampaignNode(name=node), before={METRIC: 400.0}, after={METRIC: 300.0 + n},
        )
        for n, node in enumerate(f"su2-n{number:02d}" for number in range(16, 22))
    ]  # fmt: skip
    site.do(site.store.campaigns.put_rows(campaign, rows, site.now()))


def read_state(site: Site, name: str) -> CampaignState:
    campaign = site.do(site.store.campaigns.get(name))
    assert isinstance(campaign, Campaign)
    return campaign.state


def read_progress(site: Site, name: str) -> NodeProgress:
    (row,) = site.do(site.store.campaigns.list_rows(name))
    assert isinstance(row, CampaignRow)
    return row.progress


def confirm(looker: Looker, verb: str, fields: dict[str, str], shows: str) -> None:
    """Press a campaign's button and agree to its dry run, to each one-way step first."""
    looker.get("main .title").get_by_role("button", name=verb, exact=True).click()
    dialog = looker.page.get_by_role("dialog")
    for step in dialog.get_by_role("checkbox").all():
        step.check()
    agree(looker, verb, fields, shows)


@job(AREA, "See how a release differs from what the chosen nodes run")
def see_difference(looker: Looker, _site: Site) -> None:
    open_page(looker, "Campaigns")
    looker.get("main").get_by_role("link", name="New campaign").click()
    looker.page.get_by_role("combobox", name="Release").select_option(NEWER)
    looker.page.get_by_role("textbox", name="Which nodes").fill(SELECT)
    looker.page.get_by_text(f"on {RELEASE}").wait_for()
    looker.page.get_by_role("region", name="Versions of").first.wait_for()


@job(AREA, "Draft a campaign with its canaries, its window and its preview")
def draft(looker: Looker, site: Site) -> None:
    open_page(looker, "Campaigns")
    before = len(site.do(site.store.campaigns.list()))
    looker.get("main").get_by_role("link", name="New campaign").click()
    looker.page.get_by_role("textbox", name="Which nodes").fill(SELECT)
    looker.page.get_by_text("Canaries, waves, limits").click()
    looker.page.get_by_role("spinbutton", name="Canaries").fill("2")
    looker.page.get_by_label("Window: days").fill("Sat Sun")
    looker.page.get_by_label("Its time zone").fill("Europe/Berlin")
    looker.get(".plan").get_by_text("Bounded by").wait_for()
    looker.get("button[type=submit]:not([disabled])").wait_for()
    assert looker.barriers() == []
    assert len(site.do(site.store.campaigns.list())) == before
    looker.page.get_by_role("button", name="Draft").click()
    looker.page.get_by_role("button", name="Start").wait_for()
    drafted = site.do(site.store.campaigns.list())[-1]
    window = drafted.policy.windows[0]
    assert (drafted.policy.canary.size, window.days, window.zone) == (2, (5, 6), "Europe/Berlin")
    assert drafted.state is CampaignState.DRAFT


@job(AREA, "See the waves, the length and the refused nodes of a draft")
def see_preview(looker: Looker, _site: Site) -> None:
    open_entry(looker, "Campaigns", "c0002")
    looker.page.get_by_text("Bounded by").wait_for()
    looker.page.get_by_role("heading", name="Preview").wait_for()


@job(AREA, "Start a campaign")
def start(looker: Looker, site: Site) -> None:
    name = put_campaign(site, 1, CampaignState.DRAFT)
    open_page(looker, "Campaigns")
    looker.get("main").get_by_role("link", name=f"Start {name}").click()
    dialog = looker.page.get_by_role("dialog")
    dialog.get_by_role("checkbox").check()
    agree(looker, "Start", {}, "13 nodes are upgraded")
    assert "start=" not in looker.page.url
    assert read_state(site, name) is CampaignState.STARTED


@job(AREA, "Pause a campaign")
def pause(looker: Looker, site: Site) -> None:
    name = put_campaign(site, 2, CampaignState.STARTED)
    open_entry(looker, "Campaigns", name)
    confirm(looker, "Pause", {"Why": "a leaf is replaced"}, "1 node not begun")
    assert read_state(site, name) is CampaignState.PAUSED


@job(AREA, "Resume a campaign that stopped itself")
def resume(looker: Looker, site: Site) -> None:
    name = put_campaign(site, 3, CampaignState.STOPPED, Progress.FAILED)
    looker.to("fleet", "Fleet")
    looker.to("home", "Home")
    looker.get("main").get_by_role("link", name=name, exact=True).click()
    confirm(looker, "Resume", {}, "1 node failed so far: no reason to stop it again.")
    assert read_state(site, name) is CampaignState.STARTED


@job(AREA, "Abort a campaign")
def abort(looker: Looker, site: Site) -> None:
    name = put_campaign(site, 4, CampaignState.STARTED)
    open_entry(looker, "Campaigns", name)
    confirm(looker, "Abort", {"Why": "it is withdrawn"}, "they stay as they are, for good")
    assert read_state(site, name) is CampaignState.ABORTED


@job(AREA, "Bring the nodes of a campaign back to their release")
def roll_back(looker: Looker, site: Site) -> None:
    name = put_campaign(site, 5, CampaignState.ABORTED, Progress.DONE, baseline=EARLIER)
    site.hold("host.doca.deb")
    open_entry(looker, "Campaigns", name)
    confirm(looker, "Roll back", {}, f"go back to {EARLIER}")
    assert read_state(site, name) is CampaignState.ROLLING_BACK


@job(AREA, "Rehearse a campaign on a twin and see its result")
def rehearse(looker: Looker, site: Site) -> None:
    name = put_campaign(site, 9, CampaignState.DRAFT)
    open_entry(looker, "Campaigns", name)
    ask_for(looker, "Rehearse", {"Hosts of the twin": "2"})
    result = looker.page.get_by_role("region", name="Rehearsal")
    result.get_by_text("2 done").wait_for()
    assert read_state(site, name) is CampaignState.DRAFT


@job(AREA, "Accept a measurement that got worse")
def accept(looker: Looker, site: Site) -> None:
    name = put_campaign(site, 10, CampaignState.STARTED)
    put_slower(site, name)
    open_entry(looker, "Campaigns", name)
    row = looker.page.get_by_role("row").filter(has_text=METRIC)
    row.get_by_role("button", name="Accept", exact=True).click()
    agree(looker, "Accept", {})
    looker.page.get_by_role("row").filter(has_text="accepted").wait_for()
    assert site.do(site.store.campaigns.get(name)).accepted == (METRIC,)


def ask_of_node(looker: Looker, name: str, verb: str, fields: dict[str, str]) -> None:
    """Open a campaign and make a request on its node."""
    open_entry(looker, "Campaigns", name)
    row = looker.page.get_by_role("row").filter(has_text="su2-n09")
    row.get_by_role("button", name=verb, exact=True).click()
    agree(looker, verb, fields)


@job(AREA, "Leave a node out of a campaign")
def skip(looker: Looker, site: Site) -> None:
    name = put_campaign(site, 6, CampaignState.STARTED)
    ask_of_node(looker, name, "Skip", {"Why": "its tenant measures"})
    assert read_progress(site, name).state is Progress.SKIPPED


@job(AREA, "Try a failed node of a campaign again")
def again(looker: Looker, site: Site) -> None:
    name = put_campaign(site, 7, CampaignState.STARTED, Progress.FAILED)
    ask_of_node(looker, name, "Again", {})
    assert read_progress(site, name).state is Progress.PENDING


@job(AREA, "Defer a node of a campaign for its tenant")
def defer(looker: Looker, site: Site) -> None:
    name = put_campaign(site, 8, CampaignState.STARTED, Progress.NOTIFIED)
    ask_of_node(looker, name, "Defer", {"For how many hours": "6"})
    progress = read_progress(site, name)
    assert progress.state is Progress.DEFERRED
    assert progress.deferred_until > site.now() + 5 * 3600.0
