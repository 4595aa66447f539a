"""Parts of a matrix that no golden value is named for, and proofs that nobody decided on. Pure.

A version that a BMC shows is not proved by its pin. Each gap is a note: it costs no release, and
it is not passed over in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.integrations.matrix_tools.deciding.contradictions import Fault
from provisioner.model.matrix import Matrix, Profile
from provisioner.planning.matrix.located_yaml import Path

# component kinds whose firmware a root of trust or the device itself measures, and the reference
# that their maker signs (NVIDIA: swidtags of GPUs, drivers and NVSwitches, CoRIMs of the others)
ATTESTABLE: Mapping[str, str] = {
    "hgx.gpu": "RIM of the VBIOS",
    "hgx.nvswitch": "RIM of the NVSwitch BIOS",
    "host.driver": "RIM of the driver",
    "hgx.erot": "CoRIM",
    "hgx.bmc": "CoRIM",
    "hgx.fpga": "CoRIM",
    "hgx.pcieswitch": "CoRIM",
    "host.erot": "CoRIM",
    "bluefield.bmc": "CoRIM",
    "bluefield.erot": "CoRIM",
    "bluefield.nic": "CoRIM",
    "supernic.nic": "CoRIM",
    "nic.cx7": "CoRIM",
    "nic.cx8": "CoRIM",
}
# the reports of a rule -> kinds whose firmware they show
REPORTED: Mapping[str, frozenset[str]] = {
    "gpu_reports": frozenset({"hgx.gpu", "host.driver"}),
    "nvswitch_reports": frozenset({"hgx.nvswitch"}),
}
# a part of the ids of NVIDIA's manifests: NV_GPU_VBIOS_…, NV_GPU_CC_DRIVER_…, NV_SWITCH_BIOS_…
_IDS = {"hgx.gpu": "VBIOS", "host.driver": "DRIVER", "hgx.nvswitch": "SWITCH"}
_HOST = "host"  # only hosts are asked


def find_reference_gaps(matrix: Matrix) -> Iterator[Fault]:
    """Return a note for each undecided proof, and for each version without golden values."""
    for release_name, release in matrix.releases.items():
        for name, profile in release.profiles.items():
            if profile.match.kind == _HOST:
                path: Path = ("releases", release_name, "profiles", name)
                yield from _check_profile(path, f"{release_name}/{name}", profile)


def list_uncovered(profile: Profile) -> tuple[str, ...]:
    """Return the pinned kinds that could be proved and have no golden values."""
    rule = profile.attestation
    covered = {kind for group in rule.components.values() for kind in group.covers}
    for name, kinds in REPORTED.items():
        reports = getattr(rule, name)
        admitted = {kind for one in reports.references for kind in kinds if _IDS[kind] in one.rim}
        covered |= kinds if reports.digests else admitted
    return tuple(
        kind
        for kind, pin in profile.pins.items()
        if kind in ATTESTABLE and pin.known and pin.reference is None and kind not in covered
    )


def _check_profile(path: Path, where: str, profile: Profile) -> Iterator[Fault]:
    rule = profile.attestation
    at = (*path, "attestation")
    policies = {"roots of trust": rule.policy, "Secure Boot": rule.secure_boot.policy}
    reports = {
        name: getattr(rule, name) for name, kinds in REPORTED.items() if kinds & {*profile.pins}
    }
    policies |= {f"`{name}`": reported.policy for name, reported in reports.items()}
    undecided = [kind for kind, policy in policies.items() if not policy]
    if undecided:
        detail = f"no policy for {', '.join(undecided)}: not asked, as if it were off"
        remedy = "Write `policy: require`, `record` or `off` under `attestation`."
        yield Fault(path, where, detail, remedy, blocks=False)
    if rule.is_asked or any(reported.is_asked for reported in reports.values()):
        yield from _check_references(path, where, profile)
    boot = rule.secure_boot
    if boot.is_asked and boot.state == "on" and not boot.databases:
        detail = "Secure Boot is asked for, and its keys are compared with nothing"
        remedy = "Add `databases`, as `provisioner attest admit` prints them."
        yield Fault((*at, "secure_boot"), where, detail, remedy, blocks=False)


def _check_references(path: Path, where: str, profile: Profile) -> Iterator[Fault]:
    for kind in list_uncovered(profile):
        detail = f"no golden values: {ATTESTABLE[kind]} is not named, no admitted digests cover it"
        remedy = "Add `reference` to the pin, or name the kind in `covers` of attested components."
        yield Fault((*path, "pins", kind), f"{where}: {kind}", detail, remedy, blocks=False)
    for pattern, group in profile.attestation.components.items():
        for kind in group.covers:
            if kind not in profile.pins:
                at = (*path, "attestation", "components", pattern)
                detail = f"`covers` names {kind}, which the profile does not pin"
                remedy = "Pin it, or remove the name."
                yield Fault(at, f"{where}: {pattern}", detail, remedy, blocks=False)
