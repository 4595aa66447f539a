"""The address plan of a site: the number of its parts, and the numbers assigned to them. Pure.

The shipped plan is the published rail-optimised scheme, 172.(32 rail).(unit).(2 node) with one /31
for each cable (Netris' Spectrum-X lab, reference architecture 1.3): the three high bits of the
second octet are the rail, the five low ones the pod. Values that no source publishes (IPv6,
loopbacks, AS numbers, VNIs) are a site's own choice, and are marked as such.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Literal

from pydantic import Field, ValidationError

from provisioner.model.base import Record
from provisioner.planning.matrix.located_yaml import Located, load

# ------------------------------------------------------------------------------
# Write the numbers of a place into a name, and read them back, by one template. Pure.


_FIELD = re.compile(r"\{([a-z_]+)(?::0([1-9]))?\}")
NAME_MAX = 63  # RFC 1123: of a host's name


class BadTemplate(ValueError):
    """A template whose names cannot be read back unambiguously."""


def write_name(template: str, numbers: Mapping[str, int]) -> str:
    return template.format(**numbers)


def read(template: str, name: str) -> dict[str, int] | None:
    """Return the numbers of a name; None if the template does not write it."""
    if len(name) > NAME_MAX or (match := _pattern(template).fullmatch(name)) is None:
        return None
    numbers = {field: int(digits) for field, digits in match.groupdict().items()}
    # "n{node:02}" writes "n07", so "n7" is refused: each node has one name
    return numbers if write_name(template, numbers) == name else None


def list_fields(template: str) -> frozenset[str]:
    return frozenset(_pattern(template).groupindex)


@lru_cache(maxsize=256)
def _pattern(template: str) -> re.Pattern[str]:
    """Return the pattern of a template. Raises BadTemplate if its names are ambiguous."""
    pattern = ""
    at = 0
    after_field = False
    used = set()
    for match in _FIELD.finditer(template):
        between = template[at : match.start()]
        if after_field and (not between or between[0].isdigit()):
            raise BadTemplate(f"{template!r}: two numbers run together")
        if between and between[-1].isdigit():
            raise BadTemplate(f"{template!r}: a digit stands before a number")
        if match[1] in used:
            raise BadTemplate(f"{template!r}: {match[1]} stands in it twice")
        used.add(match[1])
        pattern += re.escape(between) + f"(?P<{match[1]}>[0-9]{{1,6}})"
        at = match.end()
        after_field = True
    tail = template[at:]
    if "{" in re.sub(_FIELD, "", template) or "}" in re.sub(_FIELD, "", template):
        raise BadTemplate(f"{template!r}: a field is `{{name}}` or `{{name:02}}`")
    if after_field and tail[:1].isdigit():
        raise BadTemplate(f"{template!r}: a digit stands after a number")
    return re.compile(pattern + re.escape(tail))


COUNTED = ("rail", "plane", "pod", "unit", "node", "link")
PRIVATE_ASN = range(4_200_000_000, 4_294_967_295)  # RFC 6996
VNI_MAX = 2**24 - 1  # RFC 7348
COUNT_MAX = 1 << 16


class Widths(Record):
    """Bits of each number within an address, from the highest to the lowest; the end is one bit."""

    rail: int = Field(default=3, ge=0, le=16)
    plane: int = Field(default=0, ge=0, le=16)
    pod: int = Field(default=5, ge=0, le=16)
    unit: int = Field(default=8, ge=0, le=16)
    node: int = Field(default=7, ge=0, le=16)
    link: int = Field(default=0, ge=0, le=16)


class Names(Record):
    """Templates of names, with `{field}` or `{field:02}`; other text must separate the fields."""

    node: str = "su{unit}-n{node:02}"
    leaf: str = "leaf-su{unit}-r{number}"
    spine: str = "spine-{number}"
    superspine: str = "superspine-{number}"
    front: str = "front-su{unit}-l{number}"
    card: str = "NIC_{rail}"
    host_interface: str = "eth{rail}"
    rack: str = "su{unit}-rack{rack}"


class AddressPlan(Record):
    """A site's plan, checked by `find_problems`. Each count is per enclosing part."""

    site: str = Field(default="site", pattern=r"^[a-z][a-z0-9-]{0,30}$")
    tiers: Literal[2, 3] = 2
    pods: int = Field(default=1, ge=1, le=COUNT_MAX)
    units: int = Field(default=16, ge=1, le=COUNT_MAX)  # scalable units of a pod
    nodes: int = Field(default=32, ge=1, le=COUNT_MAX)  # of a scalable unit: 32 or 64
    nodes_per_rack: int = Field(default=4, ge=1, le=COUNT_MAX)
    rails: int = Field(default=8, ge=1, le=64)
    planes: int = Field(default=1, ge=1, le=16)
    links: int = Field(default=1, ge=1, le=16)  # cables of one rail and plane
    rails_per_leaf: int = Field(default=1, ge=1, le=64)
    spines: int = Field(default=4, ge=1, le=1024)  # of a pod and plane
    superspines: int = Field(default=0, ge=0, le=1024)  # of each spine's group
    # of a scalable unit, for north-south ports; 0: these are at the rails' leaves
    front_leaves: int = Field(default=0, ge=0, le=64)
    links_per_spine: int = Field(default=1, ge=1, le=128)  # from a leaf to each spine
    links_per_superspine: int = Field(default=1, ge=1, le=128)
    switch_ports: int = Field(default=64, ge=1, le=512)  # cages of a switch: an SN5600 has 64
    breakout: int = Field(default=2, ge=1, le=8)  # ports of a cage: 2 of 400 Gb/s
    first_uplink: int = Field(default=33, ge=1, le=512)  # cage of a leaf's first uplink
    widths: Widths = Widths()
    ipv4: str = "172.0.0.0/8"
    ipv6: str = "fd6e:61b4:1b7a::/64"  # a unique local prefix (RFC 4193): a site's own choice
    loopbacks: str = "10.240.0.0/16"  # a site's own choice
    reserved: tuple[str, ...] = ()  # management and other networks that must stay apart
    asn_first: int = 4_200_000_000  # a site's own choice, private (RFC 6996)
    vni_first: int = 4001  # a site's own choice
    route_target_as: int = Field(default=65000, ge=1, le=65535)  # two bytes: RFC 4360, type 0
    tenants: int = Field(default=255, ge=1, le=COUNT_MAX)  # a leaf that we know holds 255 VRFs
    names: Names = Names()

    @property
    def leaves(self) -> int:
        """Return the number of leaves of a scalable unit and plane."""
        return -(-self.rails // self.rails_per_leaf)

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of the site; each rail belongs to one GPU."""
        return self.pods * self.units * self.nodes * self.rails

    @property
    def counts(self) -> dict[str, int]:
        """Return how many values each number of an address has."""
        return {
            "rail": self.rails,
            "plane": self.planes,
            "pod": self.pods,
            "unit": self.units,
            "node": self.nodes,
            "link": self.links,
        }

    @property
    def switches(self) -> dict[str, int]:
        return {
            "leaf": self.pods * self.units * self.leaves * self.planes,
            "spine": self.pods * self.spines * self.planes,
            "superspine": self.spines * self.superspines * self.planes if self.tiers == 3 else 0,
            "front": self.pods * self.units * self.front_leaves,
        }


class Problem(Record):
    """A fault of a plan: the field, the cause, and the remedy."""

    field: str
    problem: str
    remedy: str


def find_problems(plan: AddressPlan) -> tuple[Problem, ...]:
    """Return every overflow and overlap; () if each number of the plan is unique."""
    faults = [*_check_widths(plan), *_check_ports(plan), *_check_numbers(plan), *_check_names(plan)]
    networks: list[tuple[str, IPv4Network | IPv6Network]] = []
    fields = [("ipv4", plan.ipv4), ("ipv6", plan.ipv6), ("loopbacks", plan.loopbacks)]
    for field, text in (*fields, *((f"reserved {r}", r) for r in plan.reserved)):
        try:
            networks.append((field, ip_network(text)))
        except ValueError as error:
            faults.append(_problem(field.split()[0], f"{text}: {error}", "Write a network."))
    for i, (field, network) in enumerate(networks):
        for second_field, second in networks[:i]:
            if network.version == second.version and network.overlaps(second):
                problem = f"{network} overlaps {second} of {second_field}"
                faults.append(_problem(field.split()[0], problem, "Take another network."))
    return (*faults, *_check_room(plan, dict(networks)))


def _check_widths(plan: AddressPlan) -> list[Problem]:
    return [
        _problem(
            f"widths.{name}",
            f"{count} do not fit into {bits} bits",
            f"Give it {(count - 1).bit_length()} bits.",
        )
        for name, count in plan.counts.items()
        if count > 1 << (bits := getattr(plan.widths, name))
    ]


def _check_ports(plan: AddressPlan) -> list[Problem]:
    faults = []
    hosts = plan.nodes * plan.rails_per_leaf * plan.links
    before = (plan.first_uplink - 1) * plan.breakout
    if hosts > before:
        faults.append(
            _problem(
                "first_uplink",
                f"a leaf has {before} ports below its uplinks, and {hosts} hosts' cables",
                "Put fewer rails or nodes on a leaf, or begin its uplinks later.",
            )
        )
    ups = plan.spines * plan.links_per_spine
    room = plan.switch_ports * plan.breakout - before
    if ups > room:
        problem = f"a leaf has {room} uplink ports, and {ups} cables to spines"
        faults.append(_problem("spines", problem, "Use fewer spines or fewer cables to each."))
    downs = plan.units * plan.leaves * plan.links_per_spine
    above = plan.superspines * plan.links_per_superspine if plan.tiers == 3 else 0
    ports = plan.switch_ports * plan.breakout
    if downs + above > ports:
        problem = f"a spine has {ports} ports, and {downs} cables down and {above} up"
        remedy = "Use smaller pods, more tiers, or fewer cables."
        faults.append(_problem("units", problem, remedy))
    if plan.tiers == 3 and (need := plan.pods * plan.links_per_superspine) > ports:
        problem = f"a superspine has {ports} ports, and {need} cables down"
        faults.append(_problem("pods", problem, "Use fewer pods or fewer cables."))
    if plan.tiers == 3 and not plan.superspines:
        faults.append(_problem("superspines", "three tiers need some", "Say how many."))
    if plan.tiers == 2 and plan.pods > 1:
        faults.append(_problem("pods", "two tiers are one pod", "Use `tiers: 3`."))
    return faults


_NEEDS = {
    "node": ("pod", "unit", "node"),
    "leaf": ("pod", "unit", "number", "plane"),
    "spine": ("pod", "number", "plane"),
    "superspine": ("number", "plane"),
    "front": ("pod", "unit", "number"),
    "card": ("rail", "plane", "link"),
    "host_interface": ("rail", "plane", "link"),
    "rack": ("pod", "unit", "rack"),
}


def _check_names(plan: AddressPlan) -> list[Problem]:
    """Require each name to contain every number that has more than one value."""
    many = {"pod": plan.pods, "unit": plan.units, "plane": plan.planes, "link": plan.links}
    faults = []
    for kind, allowed in _NEEDS.items():
        template = getattr(plan.names, kind)
        if kind == "front" and not plan.front_leaves:
            continue
        try:
            used = list_fields(template)
        except BadTemplate as error:
            faults.append(_problem(f"names.{kind}", str(error), "See docs/addressing.md."))
            continue
        if unknown := sorted(used - set(allowed)):
            remedy = f"It may have: {', '.join(allowed)}."
            faults.append(_problem(f"names.{kind}", f"it has no {unknown[0]}", remedy))
        for name in allowed:
            if name not in used and many.get(name, 2) > 1:
                problem = f"two {kind}s would have one name: {name} is not in it"
                faults.append(_problem(f"names.{kind}", problem, f"Add {{{name}}}."))
    return faults


def _check_numbers(plan: AddressPlan) -> list[Problem]:
    faults = []
    last = plan.asn_first + sum(plan.switches.values()) - 1
    if plan.asn_first not in PRIVATE_ASN or last not in PRIVATE_ASN:
        problem = f"{plan.asn_first} to {last} is not all private (RFC 6996)"
        remedy = f"Begin between {PRIVATE_ASN.start} and {PRIVATE_ASN.stop - 1}."
        faults.append(_problem("asn_first", problem, remedy))
    if plan.vni_first < 1 or plan.vni_first + plan.tenants - 1 > VNI_MAX:
        problem = f"{plan.tenants} tenants from {plan.vni_first} are not within 24 bits"
        faults.append(_problem("vni_first", problem, "Begin lower, and above 0."))
    return faults


def _check_room(plan: AddressPlan, networks: dict[str, IPv4Network | IPv6Network]) -> list[Problem]:
    bits = sum(getattr(plan.widths, name) for name in COUNTED) + 1
    faults = []
    for field in ("ipv4", "ipv6"):
        network = networks.get(field)
        if network is not None and network.max_prefixlen - network.prefixlen < bits:
            problem = f"{network} has no room for {bits} bits of widths"
            remedy = f"Take a /{network.max_prefixlen - bits} or larger, or narrower widths."
            faults.append(_problem(field, problem, remedy))
        if network is not None and network.version != (4 if field == "ipv4" else 6):
            faults.append(_problem(field, f"{network} is not {field}", "Take the other kind."))
    loopbacks = networks.get("loopbacks")
    need = sum(plan.switches.values())
    if loopbacks is not None and loopbacks.num_addresses < need:
        problem = f"{loopbacks} has {loopbacks.num_addresses} addresses for {need} switches"
        faults.append(_problem("loopbacks", problem, "Take a larger network."))
    return faults


def _problem(field: str, problem: str, remedy: str) -> Problem:
    return Problem(field=field, problem=problem, remedy=remedy)


def parse(source: str, text: str) -> AddressPlan:
    """Read a plan from YAML. Raises InputError for the first fault."""
    located: Located = load(source, text)
    if not isinstance(located.tree, dict):
        raise located.build_error((), "this is no address plan", "Write lines of `name: value`.")
    try:
        plan = AddressPlan.model_validate(located.tree)
    except ValidationError as error:
        raise located.build_model_error(error, "See docs/addressing.md for the fields.") from None
    for fault in find_problems(plan):
        raise located.build_error(tuple(fault.field.split(".")), fault.problem, fault.remedy)
    return plan
