"""What a fleet of rows is made of: two releases, what nodes show, the domains they count in."""

from __future__ import annotations

from provisioner.model.inventory import Activation, Component, Device, DeviceKind, Inventory
from provisioner.model.matrix import Edge, Match, Matrix, Pin, Profile, Release
from provisioner.model.node import Node, NodeKind


def matrix() -> Matrix:
    """Two releases: a driver on hosts, an image on switches; with a way back of both."""

    def release(driver: str, image: str) -> Release:
        host = Profile(match=Match(), pins={"host.doca": Pin(version=driver, evidence="x")})
        os = Pin(version=image, artifact=f"{image}.bin", sha256="0" * 64, evidence="x")
        switch = Profile(match=Match(kind="switch"), pins={"switch.os": os})
        return Release(profiles={"host": host, "switch": switch})

    def edge(start: str, to: str, by: Activation) -> Edge:
        return Edge(from_versions=(start,), to=to, activates_by=by, evidence="x", duration_s=600)

    return Matrix(
        releases={"base": release("1.0.0", "5.11.1"), "next": release("2.0.0", "5.12.0")},
        edges={
            "host.doca": (
                edge("1.0.0", "2.0.0", Activation.WARM_REBOOT),
                edge("2.0.0", "1.0.0", Activation.WARM_REBOOT).model_copy(
                    update={"downgrade": True}
                ),
            ),
            "switch.os": (
                edge("5.11.1", "5.12.0", Activation.IMAGE_REBOOT),
                edge("5.12.0", "5.11.1", Activation.IMAGE_REBOOT).model_copy(
                    update={"downgrade": True}
                ),
            ),
        },
    )


MATRIX = matrix()


def domains(node: Node) -> tuple[str, ...]:
    """The failure domains that a node counts in, hosts and switches apart."""
    unit = node.location.scalable_unit
    if node.kind is NodeKind.SWITCH:
        return (f"leaves of su{unit}", "leaves")
    owner = (f"tenant {node.tenant}",) if node.tenant else ()
    return (node.location.rack, f"su{unit}", "hosts", *owner)


def inventory(node: Node, version: str) -> Inventory:
    """What a node shows: one component, and eight GPUs of a host."""
    kind = "switch.os" if node.kind is NodeKind.SWITCH else "host.doca"
    gpus = range(0 if node.kind is NodeKind.SWITCH else 8)
    return Inventory(
        node=node.id,
        vendor="generic",
        model="board-a",
        components=(Component(kind=kind, slot="host", version=version, source="x"),),
        devices=tuple(
            Device(kind=DeviceKind.GPU, slot=f"GPU_{n}", serial=f"{node.id}-{n}") for n in gpus
        ),
    )
