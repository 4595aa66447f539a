"""Fields of nodes that other records have: versions, serials, models, ports, cases, alerts. Pure.

A component's name is a field ("host.driver"), and so is its last word ("driver": all components
that end in it). ".staged" and ".pinned" after either mean the version that waits, and the one that
the node is to run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from provisioner.components import ALL
from provisioner.model.campaign import CampaignRow, ReleasePin
from provisioner.model.inventory import ListedVersion
from provisioner.model.matrix import Matrix, Pin
from provisioner.model.node import Node
from provisioner.planning.campaigns.campaign_moves import find_target
from provisioner.planning.campaigns.select_expression import NODE_FIELDS, Expression, Facts
from provisioner.planning.path.conditions import judge_pin, select_target

FLEET_FIELDS: Mapping[str, str] = {
    "port": "switch and port of its cables: leaf-su0-r0/swp1s0",
    "serial": "serials of it and of its parts, in any case of letters",
    "model": "models of it and of its parts",
    "case": "its open repair case",
    "campaign": "the campaign that has it and is not over",
    "alert": "alerts that stand",
    "drift": "components that do not run their pins",
}
ASPECTS: Mapping[str, str] = {
    "": "versions of {} that run",
    ".staged": "versions of {} that are written and wait for a reset",
    ".pinned": "versions of {} that it is to run",
}


class ComponentField(NamedTuple):
    """A field of components. `aspect`: a key of `ASPECTS`."""

    kinds: frozenset[str]
    aspect: str


def _list_component_fields() -> dict[str, ComponentField]:
    kinds = [name for name in ALL if not name.startswith("copy.")]
    taken = {*NODE_FIELDS, *FLEET_FIELDS}
    named: dict[str, set[str]] = {kind: {kind} for kind in kinds}
    for kind in kinds:
        word = kind.rpartition(".")[2]
        if word not in taken:
            named.setdefault(word, set()).add(kind)
    return {
        name + aspect: ComponentField(frozenset(of), aspect)
        for name, of in sorted(named.items())
        for aspect in ASPECTS
    }


COMPONENT_FIELDS: Mapping[str, ComponentField] = _list_component_fields()
# every field of a node, with its meaning
ABOUT_FIELDS: Mapping[str, str] = {
    **{name: field.about for name, field in NODE_FIELDS.items()},
    **FLEET_FIELDS,
    **{
        name: ASPECTS[field.aspect].format(", ".join(sorted(field.kinds)))
        for name, field in COMPONENT_FIELDS.items()
    },
}
# a tenant searches by what it may see of its nodes
TENANT_FIELDS = frozenset({*NODE_FIELDS, "port"})


class FleetVersions(NamedTuple):
    """What runs on each node: `sets` has each distinct set of versions once, by its digest."""

    of_node: Mapping[str, str]
    sets: Mapping[str, tuple[ListedVersion, ...]]

    def of(self, node: str) -> tuple[ListedVersion, ...] | None:
        """Return the versions of a node; None without an inventory."""
        return self.sets.get(self.of_node.get(node, ""))


class FleetRecords(NamedTuple):
    """Records of a fleet beside its nodes, as far as an expression needs them."""

    versions: FleetVersions = FleetVersions({}, {})
    serials: Mapping[str, tuple[str, ...]] = {}
    models: Mapping[str, tuple[str, ...]] = {}
    cases: Mapping[str, tuple[str, ...]] = {}
    alerts: Mapping[str, tuple[str, ...]] = {}
    under_way: Mapping[str, tuple[CampaignRow, str]] = {}
    pins: Sequence[ReleasePin] = ()


def needs_records(expression: Expression) -> bool:
    """Return whether an expression asks for more than the nodes themselves have."""
    return bool(expression.fields - TENANT_FIELDS)


def needs_versions(fields: Collection[str]) -> bool:
    return "drift" in fields or any(name in COMPONENT_FIELDS for name in fields)


class Reading:
    """Reads the fields of one expression from the records of a fleet."""

    def __init__(
        self, fields: Iterable[str], records: FleetRecords, matrix: Matrix | None, now: float
    ) -> None:
        """`matrix` None: the fields need none (`needs_versions`)."""
        self._records = records
        self._matrix = matrix
        self._now = now
        self._known: dict[tuple[str, str, str], dict[str, tuple[str, ...]]] = {}
        self._wanted = frozenset(fields)
        self._components = {n: f for n, f in COMPONENT_FIELDS.items() if n in self._wanted}
        self._simple: dict[str, Callable[[Node], tuple[str, ...]]] = {
            "port": lambda n: tuple(f"{p.switch}/{p.interface}" for p in n.ports),
            "serial": lambda n: records.serials.get(n.id, ()),
            "model": lambda n: records.models.get(n.id, ()),
            "case": lambda n: records.cases.get(n.id, ()),
            "campaign": lambda n: (
                (records.under_way[n.id][0].campaign,) if n.id in records.under_way else ()
            ),
            "alert": lambda n: records.alerts.get(n.id, ()),
        }

    def read(self, node: Node) -> Facts:
        """Return those fields of a node that it does not have itself."""
        facts = {n: read(node) for n, read in self._simple.items() if n in self._wanted}
        if self._components or "drift" in self._wanted:
            facts.update(self._read_versions(node))
        return facts

    def _read_versions(self, node: Node) -> Mapping[str, tuple[str, ...]]:
        row, campaign_target = self._records.under_way.get(node.id, (None, ""))
        target = find_target(node, row, campaign_target, self._records.pins, self._now)
        digest = self._records.versions.of_node.get(node.id, "")
        key = (digest, target, node.profile)
        if key not in self._known:
            versions = self._records.versions.sets.get(digest, ())
            pins = find_pins(self._matrix, *key[1:])
            self._known[key] = self._compute(versions, pins, was_read=bool(digest))
        return self._known[key]

    def _compute(
        self, versions: Iterable[ListedVersion], pins: Mapping[str, Pin], *, was_read: bool
    ) -> dict[str, tuple[str, ...]]:
        listed = tuple(versions)
        facts = {}
        for name, field in self._components.items():
            if field.aspect == ".pinned":
                found = {pins[k].version for k in field.kinds if k in pins and pins[k].known}
            elif field.aspect == ".staged":
                found = {v.staged for v in listed if v.kind in field.kinds and v.staged}
            else:
                found = {v.version for v in listed if v.kind in field.kinds and v.version}
            facts[name] = tuple(sorted(found))
        if "drift" in self._wanted:
            behind = {v.kind for v in listed if find_missed(v, pins.get(v.kind)) is not None}
            behind.update(list_unlisted(listed, pins) if was_read else ())
            facts["drift"] = tuple(sorted(behind))
        return facts


def find_pins(matrix: Matrix | None, release: str, profile: str) -> Mapping[str, Pin]:
    """Return the pins of a release and profile; none where the matrix does not have them."""
    found = None if matrix is None else matrix.releases.get(release)
    pinned = None if found is None else found.profiles.get(profile)
    return {} if pinned is None else pinned.pins


def list_fitting(matrix: Matrix, profiles: Collection[str]) -> tuple[str, ...]:
    """Return the releases that have all these profiles, the newest first; () without a profile."""
    if not profiles:
        return ()
    fitting = {n for n, r in matrix.releases.items() if set(profiles) <= r.profiles.keys()}
    ages = {name: _count_ancestors(matrix, name) for name in fitting}
    return tuple(sorted(sorted(fitting, reverse=True), key=lambda name: -ages[name]))


def _count_ancestors(matrix: Matrix, name: str) -> int:
    """Return how many releases a release supersedes, one after the other."""
    seen = {name}
    while (release := matrix.releases.get(name)) and release.supersedes not in seen:
        name = release.supersedes
        if name not in matrix.releases:
            break
        seen.add(name)
    return len(seen)


def find_missed(version: ListedVersion, pin: Pin | None) -> str | None:
    """Return the version that a part is to run and does not; None where it does, or has no pin."""
    if pin is None or not pin.known or judge_pin(version.kind, version.version, pin).met:
        return None
    return select_target(version.kind, version.version, pin) or "no pin for this model"


def list_unlisted(versions: Iterable[ListedVersion], pins: Mapping[str, Pin]) -> tuple[str, ...]:
    """Return pinned components of which a node that was read lists none, by name: what its BMC or
    host stopped to tell is not taken to be as pinned."""
    listed = {version.kind for version in versions}
    return tuple(
        kind
        for kind, pin in sorted(pins.items())
        if pin.known
        and not pin.optional
        and kind not in listed
        and not (kind in ALL and ALL[kind].derived)
    )
