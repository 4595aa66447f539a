"""List the nodes that differ from their target release, and versions that wait for a reset. Pure.

Drift concerns releases and their pins. Changes since a certificate are handled by the watch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.campaign import CampaignRow, ReleasePin
from provisioner.model.certificate import Certificate
from provisioner.model.inventory import Inventory, ListedVersion
from provisioner.model.matrix import SEVERITIES, Matrix, Pin
from provisioner.model.node import Node, NodeKind, Origin, State
from provisioner.model.plan import StagedFact
from provisioner.planning.campaigns.campaign_moves import find_pin_of, find_target_of
from provisioner.planning.campaigns.fleet_fields import (
    FleetVersions,
    find_missed,
    find_pins,
    list_unlisted,
)
from provisioner.planning.matrix.standing import find_notices
from provisioner.planning.path.conditions import judge_pin, select_target

UNLISTED = "not listed"


class Behind(Record):
    """One component that does not run its pin, with the number of such slots."""

    kind: str
    running: str  # "?": no version is known; "not listed": no such part is, though it is pinned
    wanted: str
    slots: int


class DriftLine(Record):
    """One node that differs from its target. `why` is the source of the target."""

    node: str
    state: str
    release: str  # the release in its row
    target: str
    why: str  # "campaign c0001", "pin of rack su0-rack0: reason", "the fleet's", "its own"
    behind: tuple[Behind, ...]
    pin_expired: str = ""  # an expired pin of the node
    # security notices about versions that run: "NVIDIA-5699 (critical): bluefield.nic 32.44.1036"
    security: tuple[str, ...] = ()


class DriftRow(Record):
    """One version that nodes run and are not to run, with the one that they are to run."""

    kind: str = Field(description="The component, as the matrix names it.")
    running: str = Field(
        description='"?": the device gives no version; "not listed": the node lists no such part.'
    )
    wanted: str = Field(description="The pinned version.")
    nodes: int
    slots: int = Field(description="Parts that run it: eight GPUs of a node are eight.")
    names: tuple[str, ...] = Field(description="Nodes that run it, at most 100.")


NAMED_MAX = 100  # nodes of one version that are named


class VersionCount(Record):
    """One version of a component that runs in the fleet, and how it stands to the pins."""

    kind: str = Field(description="The component, as the matrix names it.")
    version: str = Field(description='"?": the device gives no version.')
    standing: str = Field(description='"as pinned", "differs" or "not pinned".')
    wanted: tuple[str, ...] = Field(description="The pinned versions of the nodes that run it.")
    nodes: int
    slots: int = Field(description="Parts that run it: eight GPUs of a node are eight.")
    names: tuple[str, ...] = Field(description="Nodes that run it, at most 100.")


class DebtLine(Record):
    """A version that is written, and the reset that it waits for."""

    node: str
    kind: str
    version: str
    slots: tuple[str, ...]
    waits_for: str  # an `Activation`, or "?" if the device does not say
    source: str  # "device", "ledger", "certificate" or "store"


class Outline(NamedTuple):
    """What drift needs of a node: the columns of its row, which are read without its record."""

    id: str
    state: str
    release: str
    profile: str
    rack: str


def outline_of(node: Node) -> Outline:
    return Outline(node.id, node.state.value, node.release, node.profile, node.location.rack)


class Differing(NamedTuple):
    """One node that differs. `row`: its place in a campaign; `expired`: its pin that is over."""

    node: Outline
    row: CampaignRow | None
    campaign_target: str
    target: str
    behind: tuple[Behind, ...]
    security: tuple[str, ...]
    expired: ReleasePin | None


def list_differing(
    nodes: Iterable[Outline],
    versions: FleetVersions,
    matrix: Matrix,
    pins: Sequence[ReleasePin],
    under_way: Mapping[str, tuple[CampaignRow, str]],
    now: float,
) -> tuple[Differing, ...]:
    """Return every node whose release or versions differ from its target, or have a notice.

    `under_way` maps the nodes of active campaigns to their row and the campaign's target.
    """
    lines = []
    # alike nodes are compared once
    known: dict[tuple[str, str, str], tuple[tuple[Behind, ...], tuple[str, ...]]] = {}
    expired_pins = [p for p in pins if not p.is_in_force(now)]
    for node in nodes:
        if node.state == State.RETIRED:
            continue
        row, campaign_target = under_way.get(node.id, (None, ""))
        target = _target(node, row, campaign_target, pins, now)
        key = (versions.of_node.get(node.id, ""), target, node.profile)
        if key not in known:
            listed = versions.sets.get(key[0], ())
            wanted = find_pins(matrix, *key[1:])
            known[key] = (
                _behind(listed, wanted) + (_unlisted(listed, wanted) if key[0] else ()),
                _list_notices(listed, matrix),
            )
        behind, security = known[key]
        expired = next((p for p in expired_pins if _about(p, node)), None)
        if target == node.release and not behind and expired is None and not security:
            continue
        lines.append(Differing(node, row, campaign_target, target, behind, security, expired))
    return tuple(lines)


def build_line(found: Differing, pins: Sequence[ReleasePin], now: float) -> DriftLine:
    expired = found.expired
    return DriftLine.model_construct(  # of records that were validated when they were read
        node=found.node.id,
        state=found.node.state,
        release=found.node.release,
        target=found.target,
        why=_why(found.node, found.row, found.campaign_target, pins, now),
        behind=found.behind,
        pin_expired="" if expired is None else f"{expired.key} to {expired.release}",
        security=found.security,
    )


def tabulate_drift(lines: Iterable[Differing]) -> tuple[DriftRow, ...]:
    """Return the components that differ, each version with its nodes: what most run first."""
    alike: dict[int, tuple[tuple[Behind, ...], list[str]]] = {}
    for line in lines:
        alike.setdefault(id(line.behind), (line.behind, []))[1].append(line.node.id)
    found: dict[tuple[str, str, str], list[tuple[int, list[str]]]] = {}
    for behind, names in alike.values():
        for one in behind:
            key = (one.kind, one.running, one.wanted)
            found.setdefault(key, []).append((one.slots, names))
    rows = [
        DriftRow(
            kind=kind,
            running=running,
            wanted=wanted,
            nodes=sum(len(names) for _, names in groups),
            slots=sum(slots * len(names) for slots, names in groups),
            names=tuple(sorted(name for _, names in groups for name in names)[:NAMED_MAX]),
        )
        for (kind, running, wanted), groups in found.items()
    ]
    return tuple(sorted(rows, key=lambda r: (-r.nodes, r.kind, r.running, r.wanted)))


def count_versions(
    nodes: Iterable[Outline],
    versions: FleetVersions,
    matrix: Matrix,
    pins: Sequence[ReleasePin],
    under_way: Mapping[str, tuple[CampaignRow, str]],
    now: float,
) -> tuple[VersionCount, ...]:
    """Return every running version of every component, counted over the nodes.

    One version may have two lines: some nodes are to run it, others not. Nodes without an
    inventory are in no line.
    """
    alike: dict[tuple[str, str, str], list[str]] = {}
    for node in nodes:
        digest = versions.of_node.get(node.id)
        if digest is None or node.state == State.RETIRED:
            continue
        row, campaign_target = under_way.get(node.id, (None, ""))
        target = _target(node, row, campaign_target, pins, now)
        alike.setdefault((digest, target, node.profile), []).append(node.id)
    slots: dict[tuple[str, str, str], int] = {}
    names: dict[tuple[str, str, str], list[list[str]]] = {}
    wanted: dict[tuple[str, str, str], set[str]] = {}
    for (digest, target, profile), group in alike.items():
        listed = _join_staged(versions.sets.get(digest, ()))
        for key, (number, pinned) in _judge(listed, find_pins(matrix, target, profile)).items():
            slots[key] = slots.get(key, 0) + number * len(group)
            names.setdefault(key, []).append(group)
            wanted.setdefault(key, set()).update(pinned)
    return tuple(
        VersionCount(
            kind=key[0],
            version=key[1],
            standing=key[2],
            wanted=tuple(sorted(wanted[key])),
            nodes=sum(map(len, names[key])),
            slots=slots[key],
            names=tuple(sorted(name for group in names[key] for name in group)[:NAMED_MAX]),
        )
        for key in sorted(slots)
    )


def _join_staged(versions: Iterable[ListedVersion]) -> Mapping[tuple[str, str | None], int]:
    """Return the parts of each running version, whatever is staged beside it."""
    counts: dict[tuple[str, str | None], int] = {}
    for one in versions:
        counts[one.kind, one.version] = counts.get((one.kind, one.version), 0) + one.slots
    return counts


def _judge(
    versions: Mapping[tuple[str, str | None], int], pins: Mapping[str, Pin]
) -> dict[tuple[str, str, str], tuple[int, tuple[str, ...]]]:
    """Return (component, version, standing) -> its parts and the version that is pinned."""
    judged = {}
    for (kind, version), slots in versions.items():
        pin = pins.get(kind)
        known = pin is not None and pin.known
        met = known and judge_pin(kind, version, pin).met
        standing = "as pinned" if met else "differs" if known else "not pinned"
        pinned: tuple[str, ...] = ()
        if pin is not None and known:
            pinned = (select_target(kind, version, pin) or "no pin for this model",)
        judged[kind, version or "?", standing] = (slots, pinned)
    return judged


def find_debt(
    inventories: Mapping[str, Inventory], staged: Mapping[str, Sequence[StagedFact]]
) -> tuple[DebtLine, ...]:
    """Return the versions that wait for a reset.

    They are read from the devices, and from the ledger where a device does not report them.
    """
    slots_by_version: dict[tuple[str, str, str, str, str], set[str]] = {}
    for name, inventory in sorted(inventories.items()):
        shown = set()
        for part in inventory.components:
            if part.staged is None:
                continue
            shown.add((part.kind, part.slot))
            waits = part.pending.value if part.pending is not None else "?"
            slots_by_version.setdefault((name, part.kind, part.staged, waits, "device"), set()).add(
                part.slot
            )
        for fact in staged.get(name, ()):
            if (fact.kind, fact.slot) in shown:
                continue
            key = (name, fact.kind, fact.version, fact.activation.value, "ledger")
            slots_by_version.setdefault(key, set()).add(fact.slot)
    return tuple(
        DebtLine(
            node=node,
            kind=kind,
            version=version,
            waits_for=waits,
            source=source,
            slots=tuple(sorted(slots)),
        )
        for (node, kind, version, waits, source), slots in sorted(slots_by_version.items())
    )


def find_lapsed_certificates(
    nodes: Sequence[Node],
    certificates: Mapping[str, Certificate],
    revoked: Collection[str],
    now: float,
    damaged: Collection[str] = (),
) -> tuple[DebtLine, ...]:
    """Return the hosts in service without a valid certificate. `certificates` is indexed by node.
    `damaged`: nodes whose certificate cannot be read, which is never taken for a valid one.

    Switches are left out: their certificate is required once, when they enter service, and they are
    never drained when it expires.
    """
    lines = []
    for node in nodes:
        if node.state is not State.RELEASED or node.kind is not NodeKind.HOST:
            continue
        certificate = certificates.get(node.id)
        why = "none" if node.origin is Origin.TAKEN_IN else _describe_adoption(node)
        if node.id in damaged:
            why = "its row is damaged"
        elif certificate is not None:
            why = (
                "revoked"
                if certificate.id in revoked
                else "expired"
                if now >= certificate.expires_at
                else ""
            )
        if why:
            lines.append(
                DebtLine(
                    node=node.id,
                    kind="certificate",
                    version=why,
                    slots=(),
                    waits_for="drain",
                    source="certificate",
                )
            )
    return tuple(lines)


def list_unread(unread: Mapping[str, Collection[str]]) -> tuple[DebtLine, ...]:
    """Return a line for each node whose record cannot be read: what it waits for is unknown."""
    return tuple(
        DebtLine(
            node=node,
            kind=record,
            version="its row is damaged",
            slots=(),
            waits_for="?",
            source="store",
        )
        for record, nodes in sorted(unread.items())
        for node in sorted(nodes)
    )


def _describe_adoption(node: Node) -> str:
    """Return since when a node serves without a certificate: its adoption brought it in."""
    day = datetime.fromtimestamp(node.entered_at, UTC)
    return f"serving, not certified: adopted {day:%Y-%m-%d}"


def _behind(versions: Iterable[ListedVersion], pins: Mapping[str, Pin]) -> tuple[Behind, ...]:
    counts: dict[tuple[str, str, str], int] = {}
    for one in versions:
        target = find_missed(one, pins.get(one.kind))
        if target is not None:
            key = (one.kind, one.version or "?", target)
            counts[key] = counts.get(key, 0) + one.slots
    return tuple(
        Behind(kind=kind, running=running, wanted=pinned_version, slots=slots)
        for (kind, running, pinned_version), slots in sorted(counts.items())
    )


def _unlisted(versions: Iterable[ListedVersion], pins: Mapping[str, Pin]) -> tuple[Behind, ...]:
    return tuple(
        Behind(kind=kind, running=UNLISTED, wanted=pins[kind].version, slots=0)
        for kind in list_unlisted(versions, pins)
    )


def _list_notices(versions: Iterable[ListedVersion], matrix: Matrix) -> tuple[str, ...]:
    """Return the security notices that concern running versions, the most severe first."""
    running = {(one.kind, one.version) for one in versions if one.version}
    found = {
        (SEVERITIES.index(matrix.security[name].severity), name, kind, version)
        for kind, version in running
        for name in find_notices(matrix, kind, version)
    }
    return tuple(
        f"{name} ({SEVERITIES[rank]}): {kind} {version}"
        for rank, name, kind, version in sorted(found)
    )


def _about(pin: ReleasePin, node: Outline) -> bool:
    return (pin.scope.value, pin.name) in (("node", node.id), ("rack", node.rack))


def _target(
    node: Outline, row: CampaignRow | None, target: str, pins: Sequence[ReleasePin], now: float
) -> str:
    return find_target_of(node.id, node.rack, node.release, row, target, pins, now)


def _why(
    node: Outline, row: CampaignRow | None, target: str, pins: Sequence[ReleasePin], now: float
) -> str:
    if row is not None and _target(node, row, target, (), now) != node.release:
        return f"campaign {row.campaign}"
    pin = find_pin_of(node.id, node.rack, pins, now)
    if pin is None:
        return f"campaign {row.campaign}" if row is not None else "its own"
    if pin.scope.value == "fleet":
        return "the fleet's"
    return f"pin of {pin.scope} {pin.name}: {pin.reason}"
