"""Secure Boot runs in the state that the profile names, and trusts only keys that it admits.

Run where the node's profile requires or records it. `SecureBootMode` is not the state: a system in
user mode may boot without Secure Boot, as three recorded trees show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.checks.attestation.event_log import BootState, read_boot_states
from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.tool_output import read_output
from provisioner.model.certificate import FindingName
from provisioner.model.cohort import Evidence, Finding, Gate, Severity
from provisioner.model.matrix import SecureBootRule

NAME = "secure_boot"
SOURCE = "secure boot of /redfish/v1"
# 400 digests of revoked loaders are usual in dbx, each a request where `$expand` does not work
COMMAND = Command(name="secure_boot", line=SOURCE, limit_s=900.0, bmc=True)
_SETUP = "SetupMode"  # UEFI 2.10, 32.3: without a platform key anyone may enrol keys


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    rule = context.attestation.secure_boot
    if not rule.is_asked:
        raise Unreadable("the profile does not ask for Secure Boot")
    states = read_boot_states(read_output(evidence, COMMAND))
    if not states:
        yield fault("host", Severity.CONFIG, "its BMC shows no Secure Boot", "none", rule.state)
    if context.boot_contradiction:
        detail = f"{FindingName.CONTRADICTION.value}: {context.boot_contradiction}"
        yield fault("host", Severity.ISOLATE, detail)
    for state in states:
        yield from _judge_state(state, rule)
        yield from _judge_databases(state, rule)


def _judge_state(state: BootState, rule: SecureBootRule) -> Iterator[Finding]:
    running = {True: "on", False: "off", None: "not shown"}[state.running]
    if running != rule.state:
        detail = "Secure Boot of this boot is not in the state that the profile names"
        yield fault("host", Severity.CONFIG, detail, running, rule.state)
    elif rule.state == "on" and state.mode == _SETUP:
        detail = "Secure Boot is shown as on in setup mode, in which it has no platform key"
        yield fault("host", Severity.CONFIG, detail, state.mode, "another mode")


def _judge_databases(state: BootState, rule: SecureBootRule) -> Iterator[Finding]:
    for name, accepted in sorted(rule.databases.items()):
        shown = state.databases.get(name)
        if shown is None:
            detail = f"the BMC does not show the entries of {name}"
            yield fault(name, Severity.CONFIG, detail, "not shown", " or ".join(accepted[:4]))
        elif shown.sha256 not in accepted:
            detail = f"the {shown.entries} entries of {name} are not those that the matrix admits"
            yield fault(name, Severity.ISOLATE, detail, shown.sha256, " or ".join(accepted[:4]))


CHECK = Check(
    NAME,
    Gate.A,
    (COMMAND,),
    _findings,
    on_request=True,
    is_recorded=lambda context: context.attestation.secure_boot.policy == "record",
)
