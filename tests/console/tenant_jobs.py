"""Jobs with tenants: from the first dry run of a network until it is gone from every leaf."""

from __future__ import annotations

from chromium import Looker
from console_dialogs import ask_for, open_entry, open_page
from console_fleet import host
from console_jobs import job
from console_leaves import NAMES
from console_release import IMAGED
from console_site import Site

from provisioner.model.node import Placement, State
from provisioner.model.tenant import Phase, Tenant
from provisioner.planning.places.address_plan import AddressPlan

AREA = "Tenants"
NUMBERS = {"amber": 8, "coral": 9, "ivory": 10, "khaki": 11, "mauve": 12}  # of the site's numbers


def read_tenant(site: Site, name: str) -> Tenant | None:
    rows: tuple[Tenant, ...] = site.do(site.store.tenants.list())
    return next((t for t in rows if t.name == name), None)


def put_tenant(site: Site, name: str, nodes: int = 0, phase: Phase = Phase.READY) -> None:
    """Add a tenant whose network was made by the daemon."""
    number = NUMBERS[name]
    vni = AddressPlan().vni_first + number
    made = Tenant(name=name, vrf=name.upper(), number=number, l3vni=vni, nodes_wanted=nodes)
    site.do(site.store.tenants.put(made.model_copy(update={"phase": phase})))


def put_serving(site: Site, name: str, numbers: range) -> list[str]:
    """Add a tenant with a node in service for each number; return the nodes' names."""
    put_tenant(site, name, len(numbers))
    nodes = [f"{name}-n{number:02d}" for number in numbers]
    for number, node in zip(numbers, nodes, strict=True):
        changes = {
            "id": node, "tenant": name, "served": name, "vrf": name.upper(),
            "placement": Placement.CUSTOMER, "release": IMAGED,
        }  # fmt: skip
        row = host(number, State.RELEASED, site.now()).model_copy(update=changes)
        site.do(site.store.nodes.add(row))
    return nodes


def begin_onboarding(looker: Looker, name: str, nodes: int) -> None:
    """Open the form of a new tenant and fill in its name and number of nodes."""
    open_page(looker, "Tenants")
    looker.get("main").get_by_role("link", name="New tenant").click()
    looker.page.get_by_role("textbox", name="Name").fill(name)
    looker.page.get_by_role("spinbutton", name="Nodes", exact=True).fill(str(nodes))


def onboard(looker: Looker, name: str) -> str:
    """Agree to the dry run of the form; return what it showed."""
    plan = looker.get(".plan")
    plan.get_by_text(name.upper(), exact=True).first.wait_for()
    looker.get("button[type=submit]:not([disabled])").wait_for()
    text = plan.text_content() or ""
    looker.page.get_by_role("button", name="Onboard").click()
    looker.page.get_by_role("heading", level=1, name=name).wait_for()
    return text


@job(AREA, "See the lines that each leaf would receive for a new tenant")
def see_difference(looker: Looker, site: Site) -> None:
    begin_onboarding(looker, "paper", 2)
    for leaf in NAMES:
        looker.get(".plan").get_by_text(f"{leaf}: 1 line").wait_for()
    assert read_tenant(site, "paper") is None


@job(AREA, "Onboard a tenant with a quota, its VRF and VNI as proposed")
def onboard_proposed(looker: Looker, site: Site) -> None:
    begin_onboarding(looker, "green", 1)
    looker.page.get_by_label("Quota: nodes").fill("4")
    looker.page.get_by_label("Quota: GPUs").fill("32")
    text = onboard(looker, "green")
    tenant = read_tenant(site, "green")
    assert tenant is not None
    assert (tenant.vrf, tenant.quota.nodes, tenant.quota.gpus) == ("GREEN", 4, 32)
    assert f"evpn vni {tenant.l3vni}" in text


@job(AREA, "Onboard a tenant on nodes of the same unit")
def onboard_by_rule(looker: Looker, site: Site) -> None:
    begin_onboarding(looker, "olive", 2)
    looker.page.get_by_text("The same unit", exact=True).click()
    looker.page.get_by_text("2 nodes picked").wait_for()
    onboard(looker, "olive")
    tenant = read_tenant(site, "olive")
    assert tenant is not None
    assert len(tenant.picked) == 2
    assert len({name.partition("-")[0] for name in tenant.picked}) == 1


@job(AREA, "Onboard a tenant on a node that is picked on the map")
def onboard_by_map(looker: Looker, site: Site) -> None:
    begin_onboarding(looker, "violet", 0)
    looker.page.get_by_label("Free nodes").focus()
    looker.page.keyboard.press("Home")
    while not (looker.get(".pointed").text_content() or "").endswith(" free"):
        looker.page.keyboard.press("ArrowRight")
    looker.page.keyboard.press("Enter")
    looker.page.get_by_text("1 node picked").wait_for()
    onboard(looker, "violet")
    tenant = read_tenant(site, "violet")
    assert tenant is not None
    assert len(tenant.picked) == 1


@job(AREA, "Follow the nodes of a tenant on their way into service")
def follow_progress(looker: Looker, site: Site) -> None:
    put_serving(site, "amber", range(50, 52))
    open_entry(looker, "Tenants", "amber")
    looker.page.get_by_text("2 nodes of 2 in service, 0 on their way.").wait_for()


@job(AREA, "Give a tenant more nodes")
def grow(looker: Looker, site: Site) -> None:
    put_serving(site, "coral", range(52, 53))
    open_entry(looker, "Tenants", "coral")
    ask_for(looker, "Grow", {"Nodes in all": "3"}, "3 nodes")
    tenant = read_tenant(site, "coral")
    assert tenant is not None
    assert tenant.nodes_wanted == 3


@job(AREA, "Take nodes from a tenant, after a look at which ones and at their erasure")
def shrink(looker: Looker, site: Site) -> None:
    nodes = put_serving(site, "ivory", range(54, 56))
    open_entry(looker, "Tenants", "ivory")
    text = ask_for(looker, "Shrink", {"Nodes that stay": "1"}, "Each is drained, fenced and erased")
    tenant = read_tenant(site, "ivory")
    assert tenant is not None
    assert tenant.nodes_wanted == 1
    states = {name: site.do(site.store.nodes.get(name)).state for name in nodes}
    assert [name in text for name in nodes] == [s is not State.RELEASED for s in states.values()]
    assert list(states.values()).count(State.RELEASED) == 1


@job(AREA, "Continue with a tenant's network that is not on every leaf yet")
def settle(looker: Looker, site: Site) -> None:
    put_tenant(site, "khaki", phase=Phase.MAKING)
    open_entry(looker, "Tenants", "khaki")
    ask_for(looker, "Settle", {})
    tenant = read_tenant(site, "khaki")
    assert tenant is not None
    assert tenant.phase is Phase.READY


@job(AREA, "Delete a tenant with its network")
def delete(looker: Looker, site: Site) -> None:
    put_tenant(site, "mauve")
    open_entry(looker, "Tenants", "mauve")
    ask_for(looker, "Delete", {})
    looker.page.get_by_role("heading", level=1, name="Tenants").wait_for()
    assert read_tenant(site, "mauve") is None


@job(AREA, "See one's own nodes, quota and notices", role="tenant")
def see_own(looker: Looker, _site: Site) -> None:
    looker.get("nav").get_by_role("link", name="Tenants").click()
    looker.page.get_by_role("heading", level=1, name="red").wait_for()
    looker.page.get_by_role("heading", name="What it has").wait_for()
    looker.page.get_by_role("heading", name="Notices").wait_for()
    assert looker.get("main .title button").count() == 0  # it changes nothing
