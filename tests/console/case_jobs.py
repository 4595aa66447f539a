"""Jobs on repair cases: of the tenant, of the operator, and of the technician at the rack."""

from __future__ import annotations

from chromium import Looker
from console_dialogs import agree, ask_for, open_entry, open_page
from console_fleet import host
from console_jobs import job
from console_site import Site
from given_events import event_of

from provisioner.integrations.signed_files.bundle_reading import (
    envelope_of,
    list_bundle_objections,
    unpack_bundle,
)
from provisioner.model.case import (
    Case,
    Ending,
    Origin,
    PartClass,
    Service,
    Stage,
    StageTime,
    Suspect,
    Ticket,
)
from provisioner.model.node import State
from provisioner.ports import Secret

AREA = "Cases"
HOUR_S = 3600.0


def put_case(site: Site, number: int, stage: Stage, **changes: object) -> str:
    """Add a node with an open case; return the case's id."""
    now = site.now()
    node = f"case-n{number:02d}"
    row = host(number, State.REPAIRING, now)
    site.do(site.store.nodes.add(row.model_copy(update={"id": node})))
    suspect = Suspect(
        part="GPU_SXM_5", kind=PartClass.GPU, confidence=0.9, rule="xid-79",
        why="It fell off the bus.", serial=f"16529239{number:05d}",
    )  # fmt: skip
    case = Case(
        id=f"{node}-c0001", node=node, origin=Origin.CHECK, by="gate A", stage=stage,
        reason="GPU 5 fell off the bus", service=Service.CUT_OFF, opened_at=now - HOUR_S,
        stages=(StageTime(stage=stage, at=now - HOUR_S),), suspects=(suspect,),
    )  # fmt: skip
    if stage is Stage.HARDWARE:
        ticket = Ticket(id=f"HW-{number}", system="webhook", work="Replace GPU_SXM_5.")
        case = case.model_copy(update={"ticket": ticket})
    case = case.model_copy(update=changes)
    site.do(site.store.cases.add(case, events=[event_of("case", node, {"case": case.id})], now=now))
    return case.id


def read_case(site: Site, name: str) -> Case:
    case = site.do(site.store.cases.get(name))
    assert isinstance(case, Case)
    return case


def open_from_home(looker: Looker, name: str) -> None:
    """Load the home page with a case that was added just now, and open the case."""
    looker.to("fleet", "Fleet")
    looker.to("home", "Home")
    looker.get("main").get_by_role("link", name=name, exact=True).click()
    looker.page.get_by_role("heading", level=1, name=name).wait_for()


def put_planned(site: Site, number: int) -> str:
    """Add a case that its tenant accepts or defers."""
    planned = {"tenant": "red", "service": Service.DRAIN, "drain_at": site.now() + 9 * HOUR_S}
    return put_case(site, number, Stage.OPENED, **planned)


@job(AREA, "Accept the repair of one's node", role="tenant")
def accept(looker: Looker, site: Site) -> None:
    name = put_planned(site, 70)
    open_entry(looker, "Cases", name)
    ask_for(looker, "Accept", {}, "is drained now")
    assert read_case(site, name).note == "agreed by its tenant"


@job(AREA, "Defer the repair of one's node", role="tenant")
def defer(looker: Looker, site: Site) -> None:
    name = put_planned(site, 71)
    before = read_case(site, name).drain_at
    open_entry(looker, "Cases", name)
    ask_for(looker, "Defer", {"For how many days": "2"}, "serves on, until")
    assert read_case(site, name).drain_at > before


@job(AREA, "See the next step, the suspects and the ticket of a case")
def see_case(looker: Looker, _site: Site) -> None:
    looker.page.get_by_role("link", name="su1-n05-c0001").click()
    looker.page.get_by_text("What happens next:").wait_for()
    looker.page.get_by_role("meter", name="Confidence 82 percent").wait_for()
    looker.page.get_by_text("HW-4711").wait_for()


@job(AREA, "Report a node returned with the work and the new serial")
def report_returned(looker: Looker, site: Site) -> None:
    name = put_case(site, 72, Stage.HARDWARE)
    open_from_home(looker, name)
    ask_for(looker, "Returned", {"Serial of the new part": "NEW-72"})
    case = read_case(site, name)
    assert case.stage is Stage.RETURNING
    assert case.note == "Replace GPU_SXM_5. (new serial NEW-72)"


@job(AREA, "Record the spare part of a repair")
def record_spare(looker: Looker, site: Site) -> None:
    name = put_case(site, 73, Stage.HARDWARE)
    open_from_home(looker, name)
    ask_for(looker, "Spare", {"Its serial": "SPARE-73", "Its part number": "900-21001"})
    spare = read_case(site, name).spare
    assert spare is not None
    assert (spare.kind, spare.serial) == ("gpu", "SPARE-73")


@job(AREA, "Record the vendor's return number")
def record_rma(looker: Looker, site: Site) -> None:
    name = put_case(site, 74, Stage.HARDWARE)
    open_from_home(looker, name)
    ask_for(looker, "RMA", {"Return number": "RMA-74"})
    ticket = read_case(site, name).ticket
    assert ticket is not None
    assert ticket.rma == "RMA-74"


@job(AREA, "Send a ticket again that its system did not take")
def send_again(looker: Looker, site: Site) -> None:
    refused = Ticket(work="Replace GPU_SXM_5.", asked="open", tries=5, problem="answer 503")
    name = put_case(site, 75, Stage.HARDWARE, ticket=refused)
    open_from_home(looker, name)
    ask_for(looker, "Update ticket", {})
    ticket = read_case(site, name).ticket
    assert ticket is not None
    assert (ticket.tries, ticket.problem) == (0, "")


@job(AREA, "Retire a node with notice to its tenant")
def retire(looker: Looker, site: Site) -> None:
    name = put_case(site, 76, Stage.HARDWARE, tenant="red")
    open_from_home(looker, name)
    text = ask_for(looker, "Retire", {"Why": "its board is at its end"}, "goes for good at")
    assert "red is told now" in text
    assert read_case(site, name).retire_at > site.now() + 13 * 24 * HOUR_S


@job(AREA, "Close a case by decision")
def close(looker: Looker, site: Site) -> None:
    name = put_case(site, 77, Stage.HARDWARE)
    open_from_home(looker, name)
    ask_for(looker, "Close", {"Why": "nothing was found"}, "Nothing proves that")
    assert read_case(site, name).ending is Ending.NO_FAULT


@job(AREA, "Save the evidence of a case as one signed file")
def save_evidence(looker: Looker, site: Site) -> None:
    name = put_case(site, 80, Stage.HARDWARE)
    open_from_home(looker, name)
    with looker.page.expect_download() as saved:
        looker.page.get_by_role("link", name="Evidence archive").click()
    members = unpack_bundle(saved.value.path().read_bytes())
    assert list_bundle_objections(members, envelope_of(members).payload) == ()


@job(AREA, "Report another host in the place of a node")
def replace(looker: Looker, site: Site) -> None:
    name = put_case(site, 81, Stage.HARDWARE)
    site.do(site.vault.put("factory/unknown", "admin", Secret("fresh")))
    open_from_home(looker, name)
    ask_for(looker, "Replace host", {"Why": "its board was dead"}, "taken in as a stranger")
    assert read_case(site, name).ending is Ending.REPLACED
    assert site.do(site.store.nodes.get("case-n81")).state is State.DISCOVERED


def open_work(looker: Looker, serial: str) -> None:
    """Open the view of technicians and give the serial that a scanner types."""
    open_page(looker, "Cases")
    looker.get("main").get_by_role("link", name="For technicians").click()
    looker.page.get_by_role("heading", level=1, name="Work at the racks").wait_for()
    looker.page.get_by_label("Serial").fill(serial)


@job(AREA, "Find the work at a rack by the serial of a part")
def find_work(looker: Looker, site: Site) -> None:
    put_case(site, 78, Stage.HARDWARE)
    open_work(looker, "NONE-SUCH")
    looker.page.get_by_text("No open case has a part").wait_for()
    looker.page.get_by_label("Serial").fill("1652923900078")
    card = looker.get("section.card").filter(has_text="case-n78")
    card.get_by_text("su4-rack1, place 6").wait_for()


@job(AREA, "Report a node returned from a phone at the rack")
def report_at_rack(looker: Looker, site: Site) -> None:
    name = put_case(site, 79, Stage.HARDWARE)
    looker.page.set_viewport_size({"width": 390, "height": 844})
    try:
        open_work(looker, "1652923900079")
        card = looker.get("section.card").filter(has_text="case-n79")
        card.get_by_role("button", name="Returned").click()
        agree(looker, "Returned", {"Serial of the new part": "NEW-79"})
    finally:
        looker.at(1440)
    assert read_case(site, name).note.endswith("(new serial NEW-79)")
