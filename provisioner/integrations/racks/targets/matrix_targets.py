"""What the matrix pins for the units of a rack, as targets and proofs of a campaign. Pure.

A target is the first known version of its component; the others are proved beside it. What the
matrix does not know has no target, and is told with the document that would state it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from provisioner.integrations.racks.campaign import COMPONENTS, CampaignFile
from provisioner.integrations.racks.identity import Kind
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix, Pin, Profile

# pinned kind -> inventory ids that show it (NVUE's component names; nvfwupd's listings; a Delta
# shelf's inventory: docs/sources/hardware.md#racks)
SHOWN: Mapping[str, Mapping[str, str]] = {
    "nvos": {"nvswitch.os": "nvos"},
    "switch-firmware": {
        "nvswitch.bmc": "BMC",
        "nvswitch.erot": "EROT*",
        "nvswitch.fpga": "FPGA",
        "nvswitch.bios": "BIOS",
        "nvswitch.cpld": "CPLD*",
    },
    "host-bundle": {"host.bmc": "FW_BMC_0", "host.erot": "FW_ERoT_BMC_0"},
    "hgx-bundle": {
        "hgx.bmc": "HGX_FW_BMC_0",
        "hgx.gpu": "HGX_FW_GPU_*",
        "hgx.erot": "HGX_FW_ERoT_*",
        "hgx.cpld": "HGX_FW_CPLD_0",
    },
    "pmc": {"shelf.pmc": "FW_PMC_*"},
    "psu": {"shelf.psu": "FW_PSU_*"},
}
MATCHES = {  # a profile's `match.kind`
    Kind.COMPUTE_TRAY: "host",
    Kind.NVLINK_SWITCH: "nvlink-switch",
    Kind.POWER_SHELF: "power-shelf",
}
_DELTA = ("AHE", "ECD")  # models and part numbers of the one maker whose ids are published
_PACKAGE = "hgx.bundle"
_KEYS = ("", "_n04")  # devices print the key of a root of trust behind its version


@dataclass(frozen=True)
class Target:
    """One component's target, and by inventory id the versions that prove it, with sources.

    `spelled`: the target as devices print it. Without `versions` nobody publishes its ids.
    """

    kind: Kind
    component: str
    version: str
    spelled: tuple[str, ...]
    versions: Mapping[str, tuple[str, ...]]
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Targets:
    """What a release pins for racks, and each thing that it leaves open, as a sentence."""

    found: tuple[Target, ...]
    gaps: tuple[str, ...]


def find_targets(
    matrix: Matrix, release: str, profiles: Iterable[str] = (), kinds: Iterable[Kind] = MATCHES
) -> Targets:
    """Return the targets of a release. `profiles` choose where it has several for one kind.

    Raises InputError for a name that the release does not have.
    """
    known = matrix.releases[release].profiles
    chosen = set(profiles)
    if strange := sorted(chosen - known.keys()):
        remedy = f"It is one of: {', '.join(known)}."
        raise InputError("--profile", strange[0], f"{release} has no such profile", remedy)
    found: list[Target] = []
    gaps: list[str] = []
    for kind in kinds:
        offered = {n: p for n, p in known.items() if p.match.kind == MATCHES.get(kind)}
        named = {n: p for n, p in offered.items() if n in chosen} or offered
        if len(named) != 1:
            listed = ", ".join(named) or "none"
            gaps.append(f"{kind}: {release} has these profiles for it: {listed}. One is needed")
            continue
        profile = _unpack(matrix, *named.values())
        for component in COMPONENTS[kind]:
            target = _find_target(kind, component, profile)
            found += [target] if target is not None else []
        gaps += _find_gaps(kind, profile, matrix.sought)
    return Targets(tuple(found), tuple(gaps))


def _unpack(matrix: Matrix, profile: Profile) -> Profile:
    """Return a profile with the parts of its pinned package, where they are not pinned alone."""
    package = profile.pins.get(_PACKAGE)
    if package is None:
        return profile
    inside = matrix.bundles.get(_PACKAGE, {}).get(package.version, {})
    parts = {k: Pin(version=v, evidence=package.evidence) for k, v in inside.items()}
    return profile.model_copy(update={"pins": {**parts, **profile.pins}})


def _find_target(kind: Kind, component: str, profile: Profile) -> Target | None:
    pins = {k: profile.pins[k] for k in SHOWN[component] if k in profile.pins}
    known = {k: pin for k, pin in pins.items() if pin.known}
    main = next(iter(SHOWN[component]))
    if main not in known:
        return None  # parts without the main one name no package
    shown = _has_known_ids(kind, profile)
    versions = {SHOWN[component][k]: spell(k, pin) for k, pin in known.items() if shown}
    sources = tuple(dict.fromkeys(pin.evidence for pin in known.values() if pin.evidence))
    told = known[main]
    return Target(kind, component, told.version, spell(main, told), versions, sources)


def _has_known_ids(kind: Kind, profile: Profile) -> bool:
    """Return whether the ids of `SHOWN` are those of a profile's maker."""
    return kind is not Kind.POWER_SHELF or all(m.startswith(_DELTA) for m in profile.match.models)


def spell(kind: str, pin: Pin) -> tuple[str, ...]:
    """Return a pin's versions as devices print them: each published spelling, and no other."""
    said = (pin.version, *pin.also)
    if kind == "nvswitch.os":
        return tuple(f"nvos-{one}" for one in said)
    if kind.endswith(".erot"):
        plain = dict.fromkeys(one.removesuffix(_KEYS[1]) for one in said)
        return tuple(f"{one}{key}" for one in plain for key in _KEYS)
    return said


def _find_gaps(kind: Kind, profile: Profile, sought: Mapping[str, str]) -> Iterator[str]:
    for component in COMPONENTS[kind]:
        for pinned in SHOWN[component]:
            pin = profile.pins.get(pinned)
            if pin is None:
                yield f"{kind}: {component}: {pinned} is not pinned"
            elif not pin.known:
                where = pin.sought or sought.get(pinned, "nobody says where it is published")
                yield f"{kind}: {component}: {pinned} is unknown: {where}"
        if not _has_known_ids(kind, profile):
            make = ", ".join(profile.match.models)
            why = f"no source tells the ids of {make}: write its package by hand"
            yield f"{kind}: {component}: {why}"


def fill_targets(
    asked: CampaignFile, matrix: Matrix, release: str, profiles: Iterable[str] = ()
) -> tuple[CampaignFile, tuple[str, ...]]:
    """Return a campaign whose named kinds have the release's targets, and what that leaves open.

    What the file states itself stays. Raises InputError where its packages prove another version
    than the release pins, or do not prove that one.
    """
    told = find_targets(matrix, release, profiles, asked.targets)
    targets = {kind: dict(components) for kind, components in asked.targets.items()}
    for each in told.found:
        targets[each.kind].setdefault(each.component, each.version)
        _check_package(asked, each, release)
    return asked.model_copy(update={"targets": targets}), told.gaps


def _check_package(asked: CampaignFile, target: Target, release: str) -> None:
    package = asked.packages.get(target.kind, {}).get(target.component)
    if package is None or asked.targets[target.kind].get(target.component) not in {
        None,
        target.version,
    }:
        return  # the file has a target of its own
    where = f"packages.{target.kind}.{target.component}.versions"
    remedy = "Take that release's package, or write the target yourself."
    said = package.versions.items()
    for pattern, pinned in target.versions.items():
        for ident, allowed in said:
            same = fnmatchcase(ident, pattern) or fnmatchcase(pattern, ident)
            if same and not set(allowed) & set(pinned):
                problem = f"{release} pins {' or '.join(pinned)}"
                raise InputError(f"{where}.{ident}", ", ".join(allowed), problem, remedy)
    main = set(target.spelled)
    if not any(set(allowed) & main for _, allowed in said):  # a maker may spell ids otherwise
        problem = f"{release} pins {' or '.join(target.spelled)}, and nothing here proves it"
        raise InputError(where, ", ".join(package.versions), problem, remedy)


def draft_campaign(release: str, targets: Targets) -> Iterator[str]:
    """Yield the lines of a campaign's file with its targets and proofs; files are a person's."""
    yield f"# Targets of {release}. Put in each package's files, then the units and limits."
    yield from (f"# open: {gap}" for gap in targets.gaps)
    by_kind: dict[Kind, list[Target]] = {}
    for each in targets.found:
        by_kind.setdefault(each.kind, []).append(each)
    yield "targets:" if by_kind else "targets: {}"
    for kind, listed in by_kind.items():
        said = ", ".join(f'{each.component}: "{each.version}"' for each in listed)
        yield f"  {kind}: {{{said}}}"
    proved = {kind: [one for one in listed if one.versions] for kind, listed in by_kind.items()}
    yield "packages:" if any(proved.values()) else "packages: {}"
    for kind, listed in proved.items():
        if listed:
            yield f"  {kind}:"
        for each in listed:
            yield f"    {each.component}:  # {', '.join(each.sources)}"
            yield "      files: []  # file and sha256 of each, or url for NVOS"
            yield "      versions:"
            for ident, versions in each.versions.items():
                quoted = ", ".join(f'"{version}"' for version in versions)
                yield f'        "{ident}": [{quoted}]'
