"""The filter that keeps hosts apart on the network where maintenance agents are looked up.

Rule: traffic of a host to that network is denied at its own port, except to the addresses that the
site names (the daemon, gateways, name servers) and through the doors of a test that runs. No rule
permits the rest: a site's own filters on the same port still count. Rules have numbers, and the
lowest number that matches decides; each adapter writes them in its switch's own form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

# ------------------------------------------------------------------------------
# The description of a leaf's port, by which writes that the database has lost are detected.
#
# It names the database, the node, its tenant and the epoch: the generation of the node's row when
# the port was moved. A row is written before its ports move, so a row that is older than the epoch
# at its port has lost writes. `life` counts the restores that were settled: labels of an earlier
# life are settled with it.


PREFIX = "provisioner: "
# NVUE takes 256 characters, neither apostrophes nor non-ASCII (Cumulus Linux guide, "Interface
# Descriptions"); SONiC takes 255 (sonic-port.yang, leaf description)
SIZE_MAX = 255
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,80}")
_LABEL = re.compile(
    r"provisioner: db=([0-9a-f]{8}) life=([0-9]{1,9}) node=([A-Za-z0-9_.-]{1,80}) "
    r"tenant=([A-Za-z0-9_.-]{1,80}) epoch=([0-9]{1,12})"
)


class DatabaseMark(NamedTuple):
    """The database that moves ports: its identity, and the number of its settled restores."""

    site: str
    life: int


class PortLabel(NamedTuple):
    """The content of one description. `tenant`: "-" in the maintenance network."""

    database: str
    life: int
    node: str
    tenant: str
    epoch: int


def write_label(mark: DatabaseMark, node: str, tenant: str, epoch: int) -> str:
    """Return the description of a node's port; "" where a name does not fit into one."""
    if not (_NAME.fullmatch(node) and _NAME.fullmatch(tenant or "-")):
        return ""
    text = (
        f"{PREFIX}db={mark.site[:8]} life={mark.life} node={node} "
        f"tenant={tenant or '-'} epoch={epoch}"
    )
    return text if len(text) <= SIZE_MAX and _LABEL.fullmatch(text) else ""


def read_label(text: str) -> PortLabel | None:
    """Return the content of a description written by us; None for any other one."""
    match = _LABEL.fullmatch(text)
    if match is None:
        return None
    database, life, node, tenant, epoch = match.groups()
    return PortLabel(database, int(life), node, tenant, int(epoch))


def may_overwrite(text: str) -> bool:
    """Whether a description is empty or written by us; a site's own text is never overwritten."""
    return text == "" or text.startswith(PREFIX)


# numbers of rules: doors come before what is always permitted, and that before what is denied
PERMITS_FROM = 20_000
DENIES_FROM = 30_000
DOORS_MAX = 1024  # each is two rules; a leaf's tables hold some thousands

Door = tuple[str, str]  # in-band addresses of two hosts that may connect to each other


class FilterRule(NamedTuple):
    """One rule. `source`, `target`: networks with their length, "" for any; `protocol`: "" or
    "tcp".
    """

    action: str  # "permit" | "deny"
    source: str
    target: str
    protocol: str


HostFilter = Mapping[int, FilterRule]  # number -> rule


@dataclass(frozen=True)
class SeenFilter:
    """The filter as one source of a switch has it. A rule that cannot be read is None.

    `typed`: it is a filter of IPv4. `native`: the adapter's own reading, for its adapter only.
    """

    rules: Mapping[int, FilterRule | None]
    typed: bool = True
    native: Any = None


@dataclass(frozen=True)
class FilterState:
    """The filter between hosts on one switch, by source: "applied", "startup", "operational".

    `filters`: None where a source has no such filter. `ports`: source -> port -> its VRF, and
    whether the filter is on what comes in there.
    """

    filters: Mapping[str, SeenFilter | None]
    ports: Mapping[str, Mapping[str, tuple[str, bool]]]


def make_host_filter(
    networks: Sequence[str], reached: Sequence[str], doors: Iterable[Door] = ()
) -> dict[int, FilterRule]:
    """Return the whole filter: doors, the destinations of every host, and the denied networks."""
    pairs = [pair for one, other in sorted(doors) for pair in ((one, other), (other, one))]
    rules = {
        number: FilterRule("permit", f"{source}/32", f"{target}/32", "tcp")
        for number, (source, target) in enumerate(pairs[: 2 * DOORS_MAX], 1)
    }
    for number, network in enumerate(reached, PERMITS_FROM):
        rules[number] = FilterRule("permit", "", network, "")
    for number, network in enumerate(networks, DENIES_FROM):
        rules[number] = FilterRule("deny", "", network, "")
    return rules


def is_door(number: int) -> bool:
    return 0 < number < PERMITS_FROM


def list_differing_rules(
    seen: SeenFilter | None, wanted: HostFilter, *, with_doors: bool
) -> tuple[int, ...]:
    """Return the numbers of the rules that differ from the desired ones or are not desired.

    Without `with_doors` the rules of doors are not compared.
    """
    have = {} if seen is None else seen.rules
    return tuple(
        number
        for number in sorted({*have, *wanted})
        if (with_doors or not is_door(number))
        and (have.get(number) is None or have.get(number) != wanted.get(number))
    )


def is_held(seen: SeenFilter | None, wanted: HostFilter, *, with_doors: bool) -> bool:
    typed = seen is not None and seen.typed
    return typed and not list_differing_rules(seen, wanted, with_doors=with_doors)


def count_rules(seen: SeenFilter | None) -> int:
    """Return the number of rules of a filter, readable or not; 0 if there is none."""
    return 0 if seen is None else len(seen.rules)
