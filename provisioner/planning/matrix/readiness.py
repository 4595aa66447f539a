"""Whether production mode accepts the profiles of a matrix, and what they lack if not. Pure."""

from __future__ import annotations

from typing import NamedTuple

from provisioner import components
from provisioner.model.base import Record
from provisioner.model.matrix import Matrix, Profile


class Use(NamedTuple):
    """The part of a matrix that a site uses; empty: all of it."""

    releases: frozenset[str] = frozenset()
    profiles: frozenset[str] = frozenset()

    def has(self, release: str, profile: str = "") -> bool:
        """Return whether a release, or one of its profiles, is used."""
        if self.releases and release not in self.releases:
            return False
        return not (profile and self.profiles) or profile in self.profiles


EVERYTHING = Use()


class Gap(NamedTuple):
    """One obstacle to production, and the component kinds of a profile that have it."""

    problem: str
    remedy: str
    kinds: tuple[str, ...]


class Readiness(Record):
    """Whether one profile of one release may be used in production, and the gaps if not."""

    release: str
    profile: str
    unknown: tuple[str, ...]  # kinds without a published version
    no_digest: tuple[str, ...]  # kinds whose file or SHA-256 is missing
    no_evidence: tuple[str, ...]  # kinds whose pin names no source
    published: tuple[str, ...] = ()  # kinds whose version a named source states

    @property
    def ready(self) -> bool:
        return not self.list_gaps()

    def list_gaps(self) -> tuple[Gap, ...]:
        """Return all that is missing, each with its remedy; nothing where it is usable."""
        gaps = (
            Gap("no published version", "Close the pin in an overlay.", self.unknown),
            Gap("no file name or no SHA-256", "Add `artifact` and `sha256`.", self.no_digest),
            Gap("the pin names no source", "Add `evidence`.", self.no_evidence),
        )
        return tuple(gap for gap in gaps if gap.kinds)


# methods that push or serve a file from the artifact store; the others install from a package
# repository, set parameters, or come with another component
FILE_METHODS = frozenset(
    {
        "redfish_push",
        "bluefield_bfb",
        "playbook_nic_firmware",
        "playbook_drive_firmware",
        "nvue_image",
        "sonic_installer",
    }
)
FILELESS = frozenset(n for n, k in components.ALL.items() if k.method not in FILE_METHODS)


def judge_readiness(
    matrix: Matrix, *, fileless: frozenset[str] = FILELESS, use: Use = EVERYTHING
) -> tuple[Readiness, ...]:
    """Return for each release and profile that is used whether production mode accepts it."""
    return tuple(
        Readiness(
            release=release_name,
            profile=name,
            unknown=tuple(k for k, p in profile.pins.items() if not p.known),
            no_digest=_find_missing_files(matrix, profile, fileless),
            no_evidence=tuple(k for k, p in profile.pins.items() if p.known and not p.evidence),
            published=tuple(k for k, p in profile.pins.items() if p.known and p.evidence),
        )
        for release_name, release in matrix.releases.items()
        for name, profile in release.profiles.items()
        if use.has(release_name, name)
    )


def _find_missing_files(
    matrix: Matrix, profile: Profile, fileless: frozenset[str]
) -> tuple[str, ...]:
    """Return the kinds that need a file, but have none in their pin or the edges to it."""
    missing = []
    for kind, pin in profile.pins.items():
        if not pin.known or kind in fileless or (pin.artifact and pin.sha256):
            continue
        into = [e for e in matrix.edges.get(kind, ()) if e.to == pin.version]
        if not into or not all(e.artifact and e.sha256 for e in into):
            missing.append(kind)
    return tuple(missing)
