"""What each job by API begins with: the worlds of the console's jobs, by the job's name.

The value is given to the job: an id, or names.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from cabled_hosts import cabled
from campaign_jobs import put_campaign, put_slower
from case_jobs import put_case, put_planned
from console_release import EARLIER
from console_site import Site
from console_stories import PROVED
from home_jobs import put_blocked, put_request
from inventory_jobs import put_slow
from machine_jobs import BMC, put_machine
from node_jobs import put_released
from tenant_jobs import put_serving, put_tenant

from provisioner.model.campaign import CampaignState, Progress
from provisioner.model.case import Stage, Ticket
from provisioner.model.tenant import Phase
from provisioner.ports import Secret

REMEDY = "Plug the management cable in."
HELD = ExitStack()  # hosts stay cabled until the site ends
STARTED, DRAFT = CampaignState.STARTED, CampaignState.DRAFT


def put_cabled(site: Site, number: int) -> tuple[list[str], dict[str, Any]]:
    """Cable so many hosts; return the addresses of their BMCs, and their factory logins."""
    HELD.close()
    urls, factory = HELD.enter_context(cabled(site, number))
    return list(urls), dict(factory)


def put_way_back(site: Site) -> str:
    site.hold("host.doca.deb")
    return put_campaign(site, 5, CampaignState.ABORTED, Progress.DONE, baseline=EARLIER)


def put_measured(site: Site) -> str:
    name = put_campaign(site, 10, STARTED)
    put_slower(site, name)
    return name


def put_untaken_ticket(site: Site) -> str:
    refused = Ticket(work="Replace GPU_SXM_5.", asked="open", tries=5, problem="answer 503")
    return put_case(site, 75, Stage.HARDWARE, ticket=refused)


def put_replaced(site: Site) -> str:
    site.do(site.vault.put("factory/unknown", "admin", Secret("fresh")))
    return put_case(site, 81, Stage.HARDWARE)


def put_own(site: Site, name: str) -> str:
    """Add a node of tenant red with a BMC and a line on its console."""
    put_released(site, name)
    row = site.do(site.store.nodes.get(name))
    site.do(site.store.nodes.save(row.model_copy(update={"bmcs": (BMC,)})))
    site.print_lines(name, ["login:"])
    return name


def put_printing(site: Site) -> str:
    name = put_machine(site, 2)
    site.print_lines(name, ["kernel panic"])
    return name


def find_request(site: Site) -> str:
    """Return the id of the newest request."""
    asked = site.do(site.store.requests.list_page(before=0, limit=1, states=None, tenant=None))[0]
    return f"r{asked.id}"


def put_making(site: Site) -> str:
    put_tenant(site, "khaki", phase=Phase.MAKING)
    return "khaki"


def put_empty(site: Site) -> str:
    put_tenant(site, "mauve")
    return "mauve"


def several(site: Site, first: int, remedy: str) -> list[str]:
    return [put_blocked(site, n, remedy) for n in (first, first + 1)]


WORLDS: dict[str, Callable[[Site], Any]] = {
    "Start a campaign": lambda site: put_campaign(site, 1, DRAFT),
    "Pause a campaign": lambda site: put_campaign(site, 2, STARTED),
    "Resume a campaign that stopped itself": lambda site: put_campaign(
        site, 3, CampaignState.STOPPED, Progress.FAILED
    ),
    "Abort a campaign": lambda site: put_campaign(site, 4, STARTED),
    "Bring the nodes of a campaign back to their release": put_way_back,
    "Rehearse a campaign on a twin and see its result": lambda site: put_campaign(site, 9, DRAFT),
    "Accept a measurement that got worse": put_measured,
    "Leave a node out of a campaign": lambda site: put_campaign(site, 6, STARTED),
    "Try a failed node of a campaign again": lambda site: put_campaign(
        site, 7, STARTED, Progress.FAILED
    ),
    "Defer a node of a campaign for its tenant": lambda site: put_campaign(
        site, 8, STARTED, Progress.NOTIFIED
    ),
    "Accept the repair of one's node": lambda site: put_planned(site, 70),
    "Defer the repair of one's node": lambda site: put_planned(site, 71),
    "Report a node returned with the work and the new serial": lambda site: put_case(
        site, 72, Stage.HARDWARE
    ),
    "Record the spare part of a repair": lambda site: put_case(site, 73, Stage.HARDWARE),
    "Record the vendor's return number": lambda site: put_case(site, 74, Stage.HARDWARE),
    "Send a ticket again that its system did not take": put_untaken_ticket,
    "Retire a node with notice to its tenant": lambda site: put_case(
        site, 76, Stage.HARDWARE, tenant="red"
    ),
    "Close a case by decision": lambda site: put_case(site, 77, Stage.HARDWARE),
    "Find the work at a rack by the serial of a part": lambda site: put_case(
        site, 78, Stage.HARDWARE
    ),
    "Report a node returned from a phone at the rack": lambda site: put_case(
        site, 79, Stage.HARDWARE
    ),
    "Save the evidence of a case as one signed file": lambda site: put_case(
        site, 80, Stage.HARDWARE
    ),
    "Report another host in the place of a node": put_replaced,
    "Retry all nodes that one remedy unblocks": lambda site: several(site, 90, REMEDY),
    "Retry some nodes that are chosen from a list": lambda site: several(site, 94, "Wait."),
    "Approve a request of another person": lambda site: put_request(
        site, put_blocked(site, 93, "Look at the BMC.")
    ),
    "Let one node try again": lambda site: put_blocked(site, 96, "Reboot its switch."),
    "Take a node back from its tenant, after a look at its erasure": lambda site: put_own(
        site, "job-n98"
    ),
    "Report a fault of one's node": lambda site: put_own(site, "job-n99"),
    "Give all nodes of a list a tag": lambda site: several(site, 100, "Look at its fans."),
    "Add a node to the hardware list, which takes it in": lambda site: put_cabled(site, 1),
    "Take the nodes of a list in": lambda site: put_cabled(site, 2),
    "Change a policy of campaigns": put_slow,
    "Change what another tab changed meanwhile, and see that nothing was overwritten": (
        lambda _site: "slow"
    ),
    "Switch a node off and on again": lambda site: put_machine(site, 1),
    "Switch the power of one's node": lambda site: put_own(site, "job-n88"),
    "Read the serial console of a node": put_printing,
    "Read the serial console of one's node": lambda site: put_own(site, "job-n89"),
    "Set the time of a node's BMCs": lambda site: put_machine(site, 3),
    "Change the tags of a node": lambda site: put_machine(site, 4),
    "See the age of the passwords of BMCs, and what is due": lambda site: put_machine(site, 5),
    "Change the password of a BMC now": lambda site: put_machine(site, 6),
    "Ask to see the password of a BMC": lambda site: put_machine(site, 7),
    "See the password that another person allowed one to see": find_request,
    "Revoke the certificate of a node": lambda _site: f"cert-{PROVED}",
    "Follow the nodes of a tenant on their way into service": lambda site: put_serving(
        site, "amber", range(50, 52)
    ),
    "Give a tenant more nodes": lambda site: put_serving(site, "coral", range(52, 53)),
    "Take nodes from a tenant, after a look at which ones and at their erasure": lambda site: (
        put_serving(site, "ivory", range(54, 56))
    ),
    "Continue with a tenant's network that is not on every leaf yet": put_making,
    "Delete a tenant with its network": put_empty,
}
