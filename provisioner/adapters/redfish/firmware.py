"""Firmware and software inventories as components. Pure: resources in, components and gaps out.

Every member comes out exactly once. A value that is no version (a PSID, a GUID, "Not Present") and
an image that does not run now (previous, backup, golden, staged) have kinds of their own and are
never shown as running.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from provisioner.adapters.redfish.parsing import at, name_of, objects, path_of, text, truth
from provisioner.adapters.redfish.walk import Resource
from provisioner.components import Item, classify
from provisioner.components.bluefield import IDENTITY
from provisioner.components.copies import CURRENT, STAGED
from provisioner.model.inventory import BackgroundCopy, Component
from provisioner.model.outcome import Gap, Reason

_EROT = re.compile(r"ERoT", re.IGNORECASE)


class Firmware:
    """Collects components of one BMC; `bmc` is its name within the node."""

    def __init__(self, bmc: str, *, dpu: bool) -> None:
        self.bmc = bmc
        self._dpu = dpu
        self._found: dict[str, Component] = {}  # by Id
        self._copies: list[tuple[str, str, str]] = []  # kind, expression for the Id, version
        self._paths: dict[str, tuple[str, ...]] = {}  # Id -> related items
        self.gaps: list[Gap] = []

    def add(self, members: Sequence[Resource], *, software: bool = False) -> None:
        """Take the members of one inventory."""
        for member in members:
            self._one(member, software=software)

    def build_components(self, chassis: Sequence[Resource]) -> tuple[Component, ...]:
        """All components, with what roots of trust and copies say about them, slots unique."""
        self._staged()
        self._background(chassis)
        taken: set[tuple[str, str]] = set()
        unique = []
        for component in self._found.values():
            slot = component.slot
            n = 2
            while (component.kind, slot) in taken:
                slot = f"{component.slot}#{n}"
                n += 1
            taken.add((component.kind, slot))
            unique.append(component.model_copy(update={"slot": slot}))
        return tuple(unique)

    def _one(self, member: Resource, *, software: bool) -> None:
        data = member.data
        ident = text(data.get("Id")) or name_of(member.path)
        related = tuple(
            p for p in (path_of(r) for r in objects(data.get("RelatedItem"))) if p is not None
        )
        version = text(data.get("Version"))
        item = Item(
            id=ident,
            name=text(data.get("Name")) or "",
            software_id=text(data.get("SoftwareId")) or "",
            version=version or "",
            related=" ".join(related),
            software=software,
            dpu=self._dpu,
        )
        kind, slot, of = classify(item, self.bmc)
        part = None
        if kind == IDENTITY:
            part = version
            version = None
            detail = f"{ident} is an identity, not a version"
            self._gap(Reason.NOT_OFFERED, member.path, detail)
        elif version is None and data:
            self._gap(Reason.VERSION_MISSING, member.path, f"{ident}: {_said(data)}")
        elif version is None:
            self._gap(Reason.VERSION_MISSING, member.path, f"{ident} could not be read")
        component = Component(
            kind=kind,
            slot=slot,
            version=version,
            updateable=truth(data.get("Updateable")),
            source=member.path,
            bmc=self.bmc,
            serial=text(data.get("SerialNumber")),
            part=part,
        )
        key = ident if ident not in self._found else member.path
        self._found[key] = component
        self._paths[key] = related
        if of and version is not None:
            self._copies.append((kind, of, version))

    def _staged(self) -> None:
        """A staging slot that differs from what runs is staged; a second listing must not differ.

        A second listing without a first one is the component itself.
        """
        for kind, expression, version in self._copies:
            bases = [i for i in self._found if re.fullmatch(expression, i)]
            for ident in bases:
                base = self._found[ident]
                if version == base.version:
                    continue
                if kind == STAGED:
                    self._found[ident] = base.model_copy(update={"staged": version})
                elif kind == CURRENT:
                    detail = f"installed is {base.version}, but {version} is listed as current"
                    self._gap(Reason.MALFORMED, base.source, detail)
        for ident, component in list(self._found.items()):
            if component.kind == CURRENT and not self._installed(ident):
                item = Item(id=ident.replace("Current-", "Installed-", 1))
                kind, slot, _ = classify(item, self.bmc)
                self._found[ident] = component.model_copy(update={"kind": kind, "slot": slot})

    def _installed(self, ident: str) -> bool:
        device = ident.rsplit("__", 1)[-1]
        return any(i.startswith("Installed-") and i.endswith(f"__{device}") for i in self._found)

    def _background(self, chassis: Sequence[Resource]) -> None:
        """`Oem.Nvidia.BackgroundCopyStatus` of a root of trust, onto its component."""
        for resource in chassis:
            reported = at(resource.data, "Oem", "Nvidia", "BackgroundCopyStatus")
            if reported is None:
                continue
            status = _copy_status(reported)
            if status is None:
                detail = f"background copy status {text(reported)!r} is not known"
                self._gap(Reason.MALFORMED, resource.path, detail)
                status = BackgroundCopy.IN_PROGRESS  # an unknown state counts as not done
            owners = [i for i in self._found if self._belongs(i, resource)]
            for ident in owners:
                changed = self._found[ident].model_copy(update={"background_copy": status})
                self._found[ident] = changed
            if not owners and status is not BackgroundCopy.COMPLETED:
                detail = "a background copy is not complete, and no listed component owns it"
                self._gap(Reason.BUSY, resource.path, detail)

    def _belongs(self, ident: str, chassis: Resource) -> bool:
        """Whether the root of trust's firmware item is this one: by its link, else by name."""
        if not _EROT.search(ident):
            return False
        name = text(chassis.data.get("Id")) or name_of(chassis.path)
        return chassis.path in self._paths[ident] or ident.replace("FW_", "") == name

    def _gap(self, reason: Reason, source: str, detail: str) -> None:
        self.gaps.append(Gap(reason=reason, source=source, detail=detail[:200]))


def _copy_status(reported: object) -> BackgroundCopy | None:
    try:
        return BackgroundCopy(str(reported))
    except ValueError:
        return None


def _said(data: object) -> str:
    version = at(data, "Version")
    if version is None:
        return "no version is given"
    if not isinstance(version, str):
        return "its version is not text"
    return f"{version!r:.80} is no version"
