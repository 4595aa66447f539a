"""The firmware that is written once more between two tenants although its version fits. Pure.

A tenant with root may have put other content under the same version. Only writes that a source
documents as carried out in this case are planned; everything else is refused by name. The
version that runs is written: another one is the planner's matter, and comes by its own way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from provisioner import components
from provisioner.components import ComponentKind
from provisioner.model.inventory import Activation, Component, Inventory
from provisioner.model.matrix import Matrix, Pin
from provisioner.model.node import Node
from provisioner.model.plan import Disruption, Step, StepKind
from provisioner.model.versions import is_same_version
from provisioner.planning.path import activation as act
from provisioner.planning.path.conditions import get_rank
from provisioner.planning.path.hops import SLOT, find_differences

# words of `erase_rewrites`, and the kinds of components that each one has written
GROUPS: Mapping[str, tuple[str, ...]] = {
    "bmc": ("host.bmc",),
    "bios": ("host.bios",),
    "gpu": ("hgx.bundle",),
    "nic": ("nic.cx7", "nic.cx8", "supernic.nic", "bluefield.nic"),
    "card": ("bluefield.bmc", "bluefield.erot", "bluefield.bundle"),
}
PUSH = "redfish_push"
INSTALL = "bluefield_bfb"  # the card boots an installer, which compares no version
BUNDLE = "bluefield.bundle"
_CARDS = ("dpu", "supernic")  # kinds of BMCs
_BAY = "hgx."  # the parts of the derived bundle


@dataclass(frozen=True, slots=True)
class Writer:
    """The BMC that a write goes through: its title, and whether a force is documented for it."""

    title: str
    forces: bool


@dataclass(frozen=True, slots=True)
class Refusal:
    """One component that is not written, and why."""

    device: str
    version: str
    why: str


@dataclass(frozen=True, slots=True)
class Rewriting:
    """Writes with the restarts of BMCs that follow them, and the one reset that ends all."""

    steps: tuple[Step, ...] = ()
    reset: Activation = Activation.NONE
    refused: tuple[Refusal, ...] = ()

    def list_writes(self) -> tuple[Step, ...]:
        """Return the steps that write, in their order."""
        return tuple(s for s in self.steps if s.kind is StepKind.UPDATE)


@dataclass(frozen=True, slots=True)
class _File:
    artifact: str
    sha256: str
    activation: Activation
    duration_s: int


@dataclass(frozen=True, slots=True)
class _Scene:
    inventory: Inventory
    matrix: Matrix
    pins: Mapping[str, Pin]
    writers: Mapping[str, Writer]
    cycles: str  # why no AC cycle is possible; "": it is
    label: str


def plan_rewriting(
    groups: Sequence[str],
    node: Node,
    inventory: Inventory,
    matrix: Matrix,
    writers: Mapping[str, Writer],
    *,
    no_ac_cycle: str,
) -> Rewriting:
    """Return the writes, in the order of flashing, and the refusals.

    `writers`: by the name of the BMC. `no_ac_cycle`: why standby power cannot be removed.
    """
    release = matrix.releases.get(node.release)
    profile = None if release is None else release.profiles.get(node.profile)
    pins = {} if profile is None else profile.pins
    label = f"between two tenants, after the fence of {node.fenced_at!r}"
    scene = _Scene(inventory, matrix, pins, writers, no_ac_cycle, label)
    kinds = [kind for group in groups for kind in GROUPS[group] if _is_there(kind, inventory)]
    steps: list[Step] = []
    refused: list[Refusal] = []
    resets: set[Activation] = set()
    if "card" in groups:
        refused += _list_hidden_bundles(node, inventory)
    for kind in sorted(kinds, key=lambda name: (get_rank(name), name)):
        for part in _plan_kind(scene, components.ALL[kind]):
            if isinstance(part, Refusal):
                refused.append(part)
                continue
            steps.append(part)
            if part.activation is Activation.BMC_RESET:
                steps.append(_restart_bmcs(scene, part))
            elif part.activation not in act.AT_ONCE:
                resets.add(part.activation)
    last = Activation.NONE
    if resets:
        is_deep = Activation.AC_CYCLE in resets
        last = Activation.AC_CYCLE if is_deep else Activation.COLD_BOOT
    return Rewriting(tuple(steps), last, tuple(refused))


def build_reset(
    node: Node, reset: Activation, activates: Sequence[tuple[str, str]], label: str
) -> Step:
    return Step(
        kind=StepKind.ACTIVATE,
        activation=reset,
        activates=tuple(activates),
        disruption=act.get_disruption(reset),
        duration_s=act.estimate_duration_s(reset),
        expected=(),
        reason=f"after the fence of {node.fenced_at!r}: {label}",
    )


def find_wrong_versions(write: Step, slot: str, after: Inventory, matrix: Matrix) -> str:
    """How a written component reads afterwards, where that is not the version; "": it runs."""
    kind = write.component
    if slot == SLOT:
        contents = matrix.bundles.get(kind, {}).get(write.to_version, {})
        return "; ".join(find_differences(after, contents, _GRAMMARS)[:3])
    component = after.find_component(kind, slot)
    version = None if component is None else component.version
    if version is None:
        return "its version was not readable afterwards"
    same = is_same_version(_GRAMMARS[kind], version, write.to_version)
    return "" if same else f"it runs {version} afterwards"


_GRAMMARS = {name: kind.grammar for name, kind in components.ALL.items()}


def _is_there(kind: str, inventory: Inventory) -> bool:
    if components.ALL[kind].derived:
        return any(c.kind.startswith(_BAY) for c in inventory.components)
    return bool(inventory.of_kind(kind))


def _list_hidden_bundles(node: Node, inventory: Inventory) -> Iterator[Refusal]:
    """Yield the cards that show no bundle: in NIC mode no installation is seen to end."""
    for bmc in node.bmcs:
        is_card = bmc.kind in _CARDS
        if is_card and inventory.find_component(BUNDLE, bmc.name) is None:
            yield Refusal(f"{BUNDLE}/{bmc.name}", "", "its BMC shows no bundle (NIC mode?)")


def _plan_kind(scene: _Scene, declared: ComponentKind) -> Iterator[Step | Refusal]:
    """Yield a write for each version of a kind, or the refusals of its components."""
    if declared.derived:
        yield _plan_bundle(scene, declared)
        return
    ready: dict[str, list[Component]] = {}
    for component in scene.inventory.of_kind(declared.name):
        device = f"{declared.name}/{component.slot}"
        version = component.version or ""
        if why := _refuse_component(scene, declared, component):
            yield Refusal(device, version, why)
        else:
            ready.setdefault(version, []).append(component)
    for version, parts in sorted(ready.items()):
        file = _find_file(scene, declared, version)
        if isinstance(file, str):
            yield from (Refusal(f"{declared.name}/{c.slot}", version, file) for c in parts)
        else:
            bmcs = tuple(sorted({c.bmc for c in parts}))
            slots = tuple(c.slot for c in parts)
            yield _write(scene, declared, version, file, slots, bmcs)


def _plan_bundle(scene: _Scene, declared: ComponentKind) -> Step | Refusal:
    device = f"{declared.name}/{SLOT}"
    pin = scene.pins.get(declared.name)
    if pin is None or not pin.known:
        return Refusal(device, "", "the release pins no version of it for this node")
    contents = scene.matrix.bundles.get(declared.name, {}).get(pin.version, {})
    if not contents:
        return Refusal(device, pin.version, "the matrix does not list what is in it")
    if wrong := find_differences(scene.inventory, contents, _GRAMMARS):
        why = f"another one runs: {wrong[0]}; the plan writes the pinned one"
        return Refusal(device, pin.version, why)
    through = {c.bmc for kind in contents for c in scene.inventory.of_kind(kind)}
    if why := _refuse_writers(scene, through):
        return Refusal(device, pin.version, why)
    file = _find_file(scene, declared, pin.version)
    if isinstance(file, str):
        return Refusal(device, pin.version, file)
    return _write(scene, declared, pin.version, file, (SLOT,), tuple(sorted(through)))


def _refuse_component(scene: _Scene, declared: ComponentKind, component: Component) -> str:
    if declared.method not in (PUSH, INSTALL):
        return "it is written in the host's own system, and none runs between two tenants"
    if component.updateable is False:
        return "its BMC takes no update of it"
    if not component.version:
        return "the device gives no version"
    return _refuse_writers(scene, {component.bmc}) if declared.method == PUSH else ""


def _refuse_writers(scene: _Scene, bmcs: set[str]) -> str:
    for name in sorted(bmcs):
        writer = scene.writers.get(name)
        if writer is None:
            return f"its BMC {name or '(none)'} did not answer"
        if not writer.forces:
            return (
                f"{writer.title}: no source documents a force, so that a push of the version that "
                "runs may be skipped"
            )
    return ""


def _find_file(scene: _Scene, declared: ComponentKind, version: str) -> _File | str:
    """Return the file of a version with its activation, or why there is none."""
    kind = declared.name
    pin = scene.pins.get(kind)
    is_pinned = pin is not None and is_same_version(declared.grammar, pin.version, version)
    edges = [
        edge
        for edge in scene.matrix.edges.get(kind, ())
        if is_same_version(declared.grammar, edge.to, version)
    ]
    edge = next((e for e in edges if e.artifact), edges[0] if edges else None)
    artifact = edge.artifact if edge is not None else ""
    sha256 = edge.sha256 if edge is not None else ""
    if not artifact and is_pinned:
        assert pin is not None
        artifact = pin.artifact
        sha256 = pin.sha256
    if not (artifact and sha256):
        return f"the matrix names no file of {version} with its digest"
    activation = declared.activation if edge is None else edge.activates_by
    if activation is Activation.AC_CYCLE and scene.cycles:
        return f"it needs an AC cycle: {scene.cycles}"
    duration_s = declared.duration_s if edge is None or not edge.duration_s else edge.duration_s
    return _File(artifact, sha256, activation, duration_s)


def _write(
    scene: _Scene,
    declared: ComponentKind,
    version: str,
    file: _File,
    slots: tuple[str, ...],
    bmcs: tuple[str, ...],
) -> Step:
    return Step(
        kind=StepKind.UPDATE,
        component=declared.name,
        slots=slots,
        from_version=version,
        to_version=version,
        method=declared.method,
        artifact=file.artifact,
        sha256=file.sha256,
        force=True,  # without it the image is "identical", and skipped
        activation=file.activation,
        bmcs=bmcs,
        disruption=Disruption.NONE,
        duration_s=file.duration_s,
        expected=(),
        reason=f"{scene.label}: {declared.name} {version} is written once more",
    )


def _restart_bmcs(scene: _Scene, write: Step) -> Step:
    """Return the restart that follows a BMC's own image: nothing is pushed before it runs."""
    names = tuple((f"{write.component}/{slot}", write.to_version) for slot in write.slots)
    return Step(
        kind=StepKind.ACTIVATE,
        activation=Activation.BMC_RESET,
        bmcs=write.bmcs,
        activates=names,
        disruption=act.get_disruption(Activation.BMC_RESET),
        duration_s=act.estimate_duration_s(Activation.BMC_RESET),
        expected=(),
        reason=f"{scene.label}: {write.component} {write.to_version} is activated",
    )
