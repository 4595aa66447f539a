"""The versions and manifests that a profile's pins name for devices that give reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from provisioner.model.matrix import Reference

NO_MANIFEST = "none"  # no file has this digest
# what a report states -> the pinned kind
PINNED: Mapping[str, str] = {
    "gpu.report/driver": "host.driver",
    "gpu.report/vbios": "hgx.gpu",
    "nvswitch.report/vbios": "hgx.nvswitch",
}


@dataclass(frozen=True)
class PinnedVersions:
    """The only versions and manifests that count."""

    versions: Mapping[str, tuple[str, ...]]  # "gpu.report/driver" -> approved versions
    admitted_at: Mapping[str, float]  # SHA-256 of a manifest -> when a person admitted it

    @property
    def manifests(self) -> frozenset[str]:
        """The manifests by digest; a pin that names none has none, and stays unproved."""
        return frozenset(self.admitted_at) or frozenset({NO_MANIFEST})


def select_pinned(
    pins: Mapping[str, tuple[str, ...]],
    references: Mapping[str, Reference],
    more: Iterable[Reference] = (),
) -> PinnedVersions:
    """Return what reports are compared with.

    `pins`: kind -> approved versions; `more`: manifests of parts that have no pin of their own.
    """
    named = [references[kind] for kind in PINNED.values() if kind in references]
    admitted = {reference.sha256: _read_day(reference) for reference in (*named, *more)}
    versions = {name: pins[kind] for name, kind in PINNED.items() if pins.get(kind)}
    return PinnedVersions(versions, admitted)


def _read_day(reference: Reference) -> float:
    return datetime.fromisoformat(reference.admitted).replace(tzinfo=UTC).timestamp()
