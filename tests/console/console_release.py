"""A release of a site's own for the console's pages, and a host that is on its way to it.

Its versions are examples: they stand for no vendor's release.
"""

from __future__ import annotations

from served import MATRIX

from provisioner.model.inventory import (
    Activation,
    BackgroundCopy,
    Component,
    Device,
    DeviceKind,
    Inventory,
)
from provisioner.model.matrix import Edge, Match, Pin, Profile, Release

EARLIER = "site-2025.4"  # there is a way back to it from the newer
NEWER, PROFILE = "site-2026.2", "hgx-h100-bf3"
IMAGED = "site-2026.0"  # pins an operating system: its nodes can serve again once they are erased
MOVES = {
    "host.doca": ("2.10.0-0.5.3", "3.3.0-088000", Activation.WARM_REBOOT),
    "hgx.bundle": ("1.6.0", "1.7.0", Activation.COLD_BOOT),
    "host.bios": ("1.5.3", "1.6.1", Activation.COLD_BOOT),
    "supernic.nic": ("32.44.1036", "32.48.1000", Activation.COLD_BOOT),
}


def console_matrix():
    """The published matrix with an older release, a newer one, and the ways to the newer."""
    pins = {
        kind: Pin(version=to, artifact=f"{kind}.fwpkg", sha256="0" * 64, evidence="example")
        for kind, (_, to, _) in MOVES.items()
    }
    release = Release(profiles={PROFILE: Profile(match=Match(), pins=pins)})
    edges = {
        kind: (
            Edge(from_versions=(old,), to=to, activates_by=by, evidence="example", duration_s=900),
        )
        for kind, (old, to, by) in MOVES.items()
    }
    image = Pin(version="24.04", artifact="os.img", sha256="0" * 64, evidence="example")
    imaged = Release(profiles={PROFILE: Profile(match=Match(), pins={"host.os": image})})
    old, new, by = MOVES["host.doca"]
    doca = Pin(version=old, artifact="host.doca.deb", sha256="0" * 64, evidence="example")
    earlier = Release(profiles={PROFILE: Profile(match=Match(), pins={"host.doca": doca})})
    back = Edge(
        from_versions=(new,),
        to=old,
        activates_by=by,
        evidence="example",
        duration_s=900,
        downgrade=True,
    )
    edges["host.doca"] = (*edges["host.doca"], back)
    releases = {EARLIER: earlier, IMAGED: imaged, **MATRIX.releases, NEWER: release}
    return MATRIX.model_copy(update={"releases": releases, "edges": {**MATRIX.edges, **edges}})


def seen(node: str, done: int) -> Inventory:
    """What the host shows once so many of its moves are over."""
    rows = []
    for n, (kind, (old, new, by)) in enumerate(MOVES.items()):
        slots = [f"NIC_{r}" for r in range(8)] if kind == "supernic.nic" else ["host"]
        if kind == "hgx.bundle":
            slots = ["HGX_0"]
        for slot in slots:
            rows.append(
                Component(
                    kind=kind,
                    slot=slot,
                    version=new if n < done else old,
                    staged=new if n == done else None,
                    pending=by if n == done else None,
                    background_copy=BackgroundCopy.COMPLETED if kind == "hgx.bundle" else None,
                    source="/redfish/v1/UpdateService/FirmwareInventory",
                )
            )
    gpus = tuple(
        Device(kind=DeviceKind.GPU, slot=f"GPU_SXM_{n}", serial=f"16529230{n:05d}", model="H100")
        for n in range(1, 9)
    )
    return Inventory(
        node=node, vendor="generic", model="HGX H100 8-GPU", components=tuple(rows), devices=gpus
    )
