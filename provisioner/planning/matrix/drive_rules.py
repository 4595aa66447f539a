"""Rules for pins and edges of drives: a version names a model, and an edge stays with one model."""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.model.machine.drive_firmware import NVME_FIRMWARE, have_same_model, split_version
from provisioner.model.matrix import Edge, Pin
from provisioner.planning.path.hops import ANY

_FORM = "Write MODEL@FIRMWARE as the drive prints both, such as 'MTFDKCC1T9TGP-1BK1DABYY@E3MQ005'."


def find_pin_fault(kind: str, pin: Pin) -> tuple[str, str, str] | None:
    """Return (field, problem, remedy) of a pin of drives, or None."""
    if kind != NVME_FIRMWARE or not pin.known:
        return None
    for field, version in (("version", pin.version), *(("also", v) for v in pin.also)):
        if not split_version(version)[0]:
            return field, f"'{version[:60]}' names no model and firmware", _FORM
    return None


def find_edge_fault(kind: str, edge: Edge) -> tuple[str, str, str] | None:
    """Return (field, problem, remedy) of an edge of drives, or None."""
    if kind != NVME_FIRMWARE:
        return None
    return next(_find_edge_faults(edge), None)


def _find_edge_faults(edge: Edge) -> Iterator[tuple[str, str, str]]:
    if not split_version(edge.to)[0]:
        yield "to", f"'{edge.to[:60]}' names no model and firmware", _FORM
    for field, versions in (("from", edge.from_versions), ("via", edge.via)):
        for version in versions:
            if version == ANY:
                remedy = "List the versions that it starts from, of this model."
                yield field, "'*' would write one model's firmware to every drive", remedy
            elif not have_same_model(version, edge.to):
                remedy = "Write one edge for each model."
                yield field, f"'{version[:60]}' is no version of the model of '{edge.to}'", remedy
