"""The moves that a matrix permits: edges split into hops, each with the objections against it.

A hop is one push of one version. An edge with `via` is a chain of hops, each activated before the
next; a node that runs one of the intermediate versions may continue from there. `from: ["*"]` means
any version; an empty `from` permits nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from provisioner.components import ComponentKind
from provisioner.model import versions
from provisioner.model.host_packages import OFED_MIGRATION
from provisioner.model.inventory import Activation, Inventory
from provisioner.model.matrix import Edge, Matrix, Pin
from provisioner.model.outcome import Reason
from provisioner.model.plan import Disruption

# ------------------------------------------------------------------------------
# Firmware packages that no device reports by name: the versions of their parts identify them.
#
# A package version runs if every part that it contains runs at the version listed in the matrix. If
# the parts match no listed package, the closest one is reported to the operator with the parts that
# differ.


SLOT = "bundle"  # a derived component has this one slot, independent of the slots of its parts


def find_differences(
    inventory: Inventory, contents: Mapping[str, str], grammars: Mapping[str, str]
) -> tuple[str, ...]:
    """Return a sentence for each part that does not run the version in `contents`; () if all do."""
    sentences: list[str] = []
    for kind, version in sorted(contents.items()):
        parts = inventory.of_kind(kind)
        if not parts:
            sentences.append(f"{kind} was not seen")
        grammar = grammars.get(kind, "opaque")
        sentences += [
            f"{kind}/{c.slot} runs {c.version or 'an unknown version'}, not {version}"
            for c in parts
            if c.version is None or not versions.is_same_version(grammar, c.version, version)
        ]
    return tuple(sentences)


def find_nearest_version(
    inventory: Inventory,
    contents_by_version: Mapping[str, Mapping[str, str]],
    grammars: Mapping[str, str],
) -> tuple[str, tuple[str, ...]] | None:
    """Return the bundle version with the fewest differing parts, and the differences.

    Returns None if `known` lists no version.
    """
    candidates = [
        (v, find_differences(inventory, contents_by_version[v], grammars))
        for v in sorted(contents_by_version)
    ]
    return min(candidates, key=lambda f: len(f[1]), default=None)


# ------------------------------------------------------------------------------
# The methods of an upgrade of Cumulus Linux: the optimized image (installed on the other partition,
# keeps the configuration), packages (keep it too), and ONIE (a new installation that destroys it).


IMAGE = "nvue_image"
PACKAGES = "nvue_packages"
ONIE = "onie"
# methods that a site must allow by name: ONIE destroys the configuration, and packages come from a
# mirror whose content no image digest pins
ASKS_LEAVE = frozenset({PACKAGES, ONIE})


# methods that install from a package repository or set parameters
NO_FILE = frozenset(
    {
        "playbook_host_software",
        OFED_MIGRATION,
        "playbook_nic_config",
        "playbook_host_baseline",
        "playbook_check_tools",
        "redfish_bios_settings",
        "redfish_bmc_settings",
        "redfish_card_settings",
        "switch_settings",
        PACKAGES,
    }
)
NEVER_ALONE = frozenset({"with_bundle", "none"})
ANY = "*"


@dataclass(frozen=True, slots=True)
class Hop:
    """One push from a version to the next. A hop with `objections` must not be carried out."""

    kind: str
    start: str
    to: str
    final: str  # where its edge ends
    activation: Activation
    carries: tuple[tuple[str, str], ...]
    requires: tuple[tuple[str, str], ...]
    method: str
    artifact: str
    sha256: str
    downgrade: bool
    duration_s: int
    disruption: Disruption
    evidence: str
    sought: str  # which document would vouch for it, where none does
    objections: tuple[Reason, ...]


class Moves:
    """All hops of one matrix towards one profile's pins, with one spelling for each version."""

    def __init__(
        self,
        matrix: Matrix,
        pins: Mapping[str, Pin],
        kinds: Mapping[str, ComponentKind],
        *,
        production: bool,
        leave: frozenset[str] = frozenset(),
    ) -> None:
        self.matrix = matrix
        self.pins = pins
        self.kinds = kinds
        self.production = production
        self.forbidden = ASKS_LEAVE - leave  # methods
        self.grammars = {name: kind.grammar for name, kind in kinds.items()}
        self._named: dict[str, tuple[str, ...]] = {}
        self._spelling: dict[tuple[str, str], str] = {}
        self._hops: dict[tuple[str, str], tuple[Hop, ...]] = {}
        self._contents: dict[tuple[str, str], dict[str, str]] = {}

    def normalize_version(self, kind: str, version: str) -> str:
        """Return the matrix's spelling of a reported version.

        A version that the matrix does not list is returned unchanged.
        """
        key = (kind, version)
        if key not in self._spelling:
            grammar = self.grammars.get(kind, "opaque")
            named = self.list_versions(kind)
            self._spelling[key] = next(
                (name for name in named if versions.is_same_version(grammar, name, version)),
                version,
            )
        return self._spelling[key]

    def find_hops(self, kind: str, version: str) -> tuple[Hop, ...]:
        """Return every hop that starts at a version, also those with objections, in fixed order."""
        key = (kind, version)
        if key not in self._hops:
            self._hops[key] = self._build_hops(kind, version) if kind in self.kinds else ()
        return self._hops[key]

    def get_contents(self, kind: str, version: str) -> dict[str, str]:
        """Return the part versions of a bundle version; empty if the matrix does not list them."""
        key = (kind, version)
        if key not in self._contents:
            parts = self.matrix.bundles.get(kind, {}).get(version, {})
            self._contents[key] = {
                part: self.normalize_version(part, v) for part, v in parts.items()
            }
        return self._contents[key]

    def find_one_way_edge(self, kind: str, start: str, to: str) -> Edge | None:
        """Return the one-way edge that forbids a move from `start` back to `to`, or None."""
        grammar = self.grammars.get(kind, "opaque")
        for edge in self.matrix.edges.get(kind, ()):
            if not edge.one_way:
                continue
            start_order = versions.compare(grammar, start, edge.to)
            target_order = versions.compare(grammar, to, edge.to)
            if start_order is not None and target_order is not None:
                if start_order >= 0 and target_order < 0:
                    return edge
            elif start_order == 0 and to in (*edge.from_versions, *edge.via):
                return edge
        return None

    def list_versions(self, kind: str) -> tuple[str, ...]:
        """Return every version of a component that the matrix names; the pinned one is first."""
        if kind not in self._named:
            pin = self.pins.get(kind)
            names = [pin.version, *pin.also] if pin and pin.known else []
            for edge in self.matrix.edges.get(kind, ()):
                names += [edge.to, *edge.via, *(v for v in edge.from_versions if v != ANY)]
            names += self.matrix.bundles.get(kind, {})
            for bundle in self.matrix.bundles.values():
                names += [parts[kind] for parts in bundle.values() if kind in parts]
            self._named[kind] = tuple(dict.fromkeys(names))
        return self._named[kind]

    def _build_hops(self, kind: str, version: str) -> tuple[Hop, ...]:
        hops: dict[tuple[object, ...], Hop] = {}
        for edge in self.matrix.edges.get(kind, ()):
            stops = [self.normalize_version(kind, v) for v in (*edge.via, edge.to)]
            starts = {self.normalize_version(kind, v) for v in edge.from_versions}
            nexts = [after for here, after in pairwise(stops) if here == version]
            if version in starts or (ANY in starts and version not in stops):
                nexts.append(stops[0])
            for to in nexts:
                for hop in self._list_variants(kind, version, to, edge):
                    key = (hop.to, hop.activation, hop.requires, hop.carries)
                    if key not in hops or _rank(hop) < _rank(hops[key]):
                        hops[key] = hop
        return tuple(
            sorted(hops.values(), key=lambda h: (h.to, h.activation, h.requires, h.carries))
        )

    def _list_variants(self, kind: str, start: str, to: str, edge: Edge) -> list[Hop]:
        """Return every way to take one hop of an edge.

        The last hop is the edge's own. A stop on the way is installed as any edge that ends there
        installs it; the conditions of that other edge are about its own starts, not about this way.
        """
        if to == self.normalize_version(kind, edge.to):
            return [self._hop(kind, start, to, edge, edge)]
        ending: list[Edge | None] = [
            e for e in self.matrix.edges.get(kind, ()) if self.normalize_version(kind, e.to) == to
        ]
        return [self._hop(kind, start, to, edge, own) for own in ending or [None]]

    def _hop(self, kind: str, start: str, to: str, edge: Edge, own: Edge | None) -> Hop:
        final = self.normalize_version(kind, edge.to)
        pin = self.pins.get(kind)
        artifact, sha256 = (own.artifact, own.sha256) if own else ("", "")
        if not artifact and pin and pin.known and self.normalize_version(kind, pin.version) == to:
            artifact = pin.artifact
            sha256 = pin.sha256
        declared = self.kinds[kind]
        source = own or edge
        carries = {k: self.normalize_version(k, v) for k, v in (own.carries if own else {}).items()}
        hop = Hop(
            kind=kind,
            start=start,
            to=to,
            final=final,
            activation=source.activates_by,
            carries=tuple(sorted((self.get_contents(kind, to) | carries).items())),
            requires=tuple(sorted(edge.requires.items())) if own is edge else (),
            method=source.method or declared.method,
            artifact=artifact,
            sha256=sha256,
            downgrade=edge.downgrade,
            duration_s=source.duration_s or declared.duration_s,
            disruption=declared.disruption,
            evidence=edge.evidence,
            sought=edge.sought,
            objections=(),
        )
        return replace(hop, objections=self._objections(hop, edge))

    def _objections(self, hop: Hop, edge: Edge) -> tuple[Reason, ...]:
        order = versions.compare(self.grammars[hop.kind], hop.start, hop.to)
        needs_file = hop.method not in NO_FILE
        return tuple(
            reason
            for reason, holds in (
                (Reason.NOT_UPDATEABLE, hop.method in NEVER_ALONE),
                (Reason.METHOD_FORBIDDEN, hop.method in self.forbidden),
                (Reason.DOWNGRADE, order == 1 and not edge.downgrade),
                (
                    Reason.ANTI_ROLLBACK,
                    self.find_one_way_edge(hop.kind, hop.start, hop.to) is not None,
                ),
                # a laboratory may plan before it has the files; the executor needs them
                (Reason.MISSING_ARTIFACT, self.production and needs_file and not hop.artifact),
                (Reason.MISSING_DIGEST, self.production and bool(hop.artifact) and not hop.sha256),
                (Reason.MISSING_EVIDENCE, self.production and not edge.evidence),
            )
            if holds
        )


def _rank(hop: Hop) -> tuple[int, int]:
    """Return the order of preference of hops with equal consequences: the least comes first."""
    return (len(hop.objections), hop.duration_s)
