"""Each field in which a tool or a device judges itself has a reader, which is run on a bad value.

`make docs` makes a page of the table. Outputs are the golden ones of `tests/golden/checks`, with
one value changed; the Redfish bodies are in the words of DSP0268 and DSP8011 (Base registry).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from provisioner import checks
from provisioner.adapters.redfish.eventing.events import list_related, read_conditions
from provisioner.adapters.redfish.parts import read_health
from provisioner.adapters.redfish.settings.reading import parse_registry
from provisioner.adapters.redfish.tasks import is_running, of_task
from provisioner.checks.check import CheckContext
from provisioner.checks.readers.smi_sentences import find_sentence
from provisioner.integrations.cumulus import nvue_calls
from provisioner.integrations.sonic import switch_state
from provisioner.model.cohort import Evidence, Verdict

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden/checks"
CONTEXT = CheckContext.model_validate_json((GOLDEN / "context.json").read_text())
BY_NAME = {check.name: check for check in checks.ALL}
LINES = {command.name: command.line for check in checks.ALL for command in check.commands}


class VerdictField(NamedTuple):
    """A field, its reader as the page names it, and what the reader finds of a value."""

    source: str
    field: str
    reader: str
    find: Callable[[bool], Iterable[Any]]  # of the bad value, or else of the good one


def judged(check: str, old: str, new: str) -> Callable[[bool], Iterable[Any]]:
    """Judge the good golden output of a check, or the same with one value changed."""

    def find(bad: bool) -> Iterable[Any]:
        evidence = {}
        for file in (GOLDEN / check / "good").glob("*.txt"):
            text = file.read_text()
            if bad:
                text = text.replace(old, new, 1)
            evidence[file.stem] = Evidence(source=LINES[file.stem], exit_code=0, text=text)
        result = BY_NAME[check].judge(evidence, CONTEXT)
        assert result.verdict in (Verdict.PASS, Verdict.FAIL), result
        return result.findings

    return find


def sentence(words: str) -> Callable[[bool], Iterable[Any]]:
    return lambda bad: [s for s in [find_sentence(words if bad else "ok")] if s is not None and bad]


def conditions(bad: bool) -> Iterable[Any]:
    body = {
        "@odata.id": "/redfish/v1/Systems/1",
        "Status": {
            "Health": "OK",
            "Conditions": [
                {"MessageId": "Vendor.1.0.PartFailed", "Severity": "Critical", "Message": "x"}
            ],
        },
    }
    return read_conditions(body if bad else {"Status": {"Health": "OK", "Conditions": []}})


def related(bad: bool) -> Iterable[Any]:
    origin = {"@odata.id": "/redfish/v1/Chassis/GPU_1"}
    condition = {"MessageId": "Base.1.18.ConditionInRelatedResource", "OriginOfCondition": origin}
    return list_related({"Status": {"Conditions": [condition] if bad else []}})


def health(field: str) -> Callable[[bool], Iterable[Any]]:
    return lambda bad: read_conditions({"Status": {field: "Critical" if bad else "OK"}})


def part_health(bad: bool) -> Iterable[Any]:
    listed = [{"MessageId": "X.1.0.Y", "Severity": "Critical"}] if bad else []
    said = read_health({"Status": {"Health": "OK", "Conditions": listed}})
    return [] if said == "OK" else [said]


def reset_required(bad: bool) -> Iterable[Any]:
    entry = {"AttributeName": "A", "Type": "Integer", "ResetRequired": bad}
    registry = parse_registry({"RegistryEntries": {"Attributes": [entry]}}, "/r")
    assert registry is not None
    return [rule for rule in registry.rules.values() if rule.reset_required]


def paused(bad: bool) -> Iterable[Any]:
    view = of_task({"JobState": "Paused" if bad else "Completed", "JobStatus": "OK"})
    assert view.failed is None
    return [view] if is_running(view) else []


def task_status(bad: bool) -> Iterable[Any]:
    view = of_task({"TaskState": "Completed", "TaskStatus": "Critical" if bad else "OK"})
    return [view.failed] if view.failed else []


def revision(bad: bool) -> Iterable[Any]:
    issue = {"0": {"message": "no such interface"}} if bad else {}
    answer = {"state": "invalid" if bad else "applied", "transition": {"issue": issue}}
    read = nvue_calls.read_revision(answer)
    assert read is not None
    return [read] if read.issue or read.state != "applied" else []


def action(bad: bool) -> Iterable[Any]:
    read = nvue_calls.read_job({"state": "action_error" if bad else "action_success"})
    assert read is not None
    return [] if read.ok else [read]


def sonic(bad: bool) -> Iterable[Any]:
    state = "Not OK\n    Not Running: 'bgp'" if bad else "OK"
    text = f"System status summary\n  Services:\n    Status: {state}\n  Hardware:\n    Status: OK\n"
    read = switch_state.read_health(text)
    assert read is not None
    return read


SMI, LOG = "nvidia-smi", "kernel log"
GPU = "GPU 00000000:29:00.0\n"
CELL = " " * 4
CHANNEL = "Channel Repair Pending            : No\n"
FIELDS = (
    VerdictField(SMI, "GPU Recovery Action", "checks/driver_verdicts.py",
        judged("sram_ecc", GPU, f"{GPU}{CELL}GPU Recovery Action : Reset\n")),
    VerdictField(SMI, "GPU Reset Status", "checks/driver_verdicts.py",
        judged("sram_ecc", GPU,
               f"{GPU}{CELL}GPU Reset Status\n{CELL}{CELL}Reset Required : Yes\n")),
    VerdictField(SMI, "Unable to determine the device handle", "checks/readers/smi_sentences.py",
        sentence("Unable to determine the device handle for GPU5: 0000:5D:00.0: Unknown Error")),
    VerdictField(SMI, "infoROM is corrupted", "checks/readers/smi_sentences.py",
        sentence("WARNING: infoROM is corrupted at gpu 0000:5D:00.0")),
    VerdictField(SMI, "GPU is lost", "checks/readers/smi_query.py",
        judged("sram_ecc", "SRAM Threshold Exceeded       : No",
               "SRAM Threshold Exceeded       : GPU is lost")),
    VerdictField(SMI, "SRAM Threshold Exceeded", "checks/sram_ecc.py",
        judged("sram_ecc", "SRAM Threshold Exceeded       : No",
               "SRAM Threshold Exceeded       : Yes")),
    VerdictField(SMI, "Channel Repair Pending", "checks/sram_ecc.py",
        judged("sram_ecc", "Channel Repair Pending            : No",
               "Channel Repair Pending            : Yes")),
    VerdictField(SMI, "TPC Repair Pending", "checks/sram_ecc.py",
        judged("sram_ecc", CHANNEL, f"{CHANNEL}        TPC Repair Pending : Yes\n")),
    VerdictField(SMI, "Unrepairable Memory", "checks/sram_ecc.py",
        judged("sram_ecc", CHANNEL, f"{CHANNEL}        Unrepairable Memory : Yes\n")),
    VerdictField(SMI, "Pending Page Blacklist", "checks/page_retirement.py",
        judged("page_retirement", "Single Bit ECC                    : N/A\n"
               "        Double Bit ECC                    : N/A\n"
               "        Pending Page Blacklist            : N/A",
               "Single Bit ECC                    : 0\n"
               "        Double Bit ECC                    : 0\n"
               "        Pending Page Blacklist            : Yes")),
    VerdictField(SMI, "HW Slowdown", "checks/clocks.py",
        judged("clocks", "HW Slowdown                       : Not Active",
               "HW Slowdown                       : Active")),
    VerdictField(SMI, "State and Status of the fabric", "checks/fabric_registration.py",
        judged("fabric_registration", "State                             : Completed",
               "State                             : In Progress")),
    VerdictField(SMI, "Health of the fabric", "checks/fabric_registration.py",
        judged("fabric_registration", "CliqueId                          : 0\n",
               "CliqueId                          : 0\n        Health\n"
               "            Bandwidth                     : Degraded\n")),
    VerdictField(LOG, "NVRM: Xid", "checks/xid/xid_events.py",
        judged("kernel_log", "\n", "\n2026-03-01T10:10:00,000000+00:00 NVRM: Xid "
               "(PCI:0000:3a:00): 79, pid=1, GPU has fallen off the bus.\n")),
    VerdictField("DCGM", "status of a test", "checks/readers/dcgm_document.py",
        judged("dcgm_diag", '"status": "Pass"', '"status": "Fail"')),
    VerdictField("mlxlink", "Recommendation", "checks/mlxlink.py",
        judged("mlxlink", "No issue was observed", "Bad signal integrity")),
    VerdictField("mlxlink", "Status Opcode", "checks/mlxlink.py",
        judged("mlxlink", '"Status Opcode": "0"', '"Status Opcode": "14"')),
    VerdictField("mlxlink", "status of the call", "checks/readers/mlxlink_ports.py",
        judged("mlxlink", '"code": 0', '"code": 1')),
    VerdictField("nccl-tests", "Out of bounds values", "checks/readers/nccl_output.py",
        judged("nccl_single", "Out of bounds values : 0 OK", "Out of bounds values : 3 FAILED")),
    VerdictField("gpu_burn", "OK or FAULTY", "checks/readers/dcgm_document.py",
        judged("gpu_burn", "GPU 1: OK", "GPU 1: FAULTY")),
    VerdictField("NVUE", "state and issue of a revision", "integrations/cumulus/nvue_calls.py",
        revision),
    VerdictField("NVUE", "action_success", "integrations/cumulus/nvue_calls.py", action),
    VerdictField("NVUE", "status of system/health", "checks/switch_health.py",
        judged("switch_health", '{"status": "OK", "status-led": "green", "issues": {}}',
               '{"status": "Not OK", "status-led": "amber", '
               '"issues": {"PSU1": {"issue": "missing or not available"}}}')),
    VerdictField("SONiC", "show system-health summary", "integrations/sonic/switch_state.py",
        sonic),
    VerdictField("FRR", "state of a peer", "checks/bgp_peers.py",
        judged("bgp_peers", '"Established"', '"Idle"')),
    VerdictField("FRR", "peerState", "checks/bgp_peers.py",
        judged("bgp_peers", '"Established"', '"Established", "peerState": "Policy"')),
    VerdictField("Redfish", "Health", "adapters/redfish/eventing/events.py", health("Health")),
    VerdictField("Redfish", "HealthRollup", "adapters/redfish/eventing/events.py",
        health("HealthRollup")),
    VerdictField("Redfish", "Conditions of the system", "adapters/redfish/eventing/events.py",
        conditions),
    VerdictField("Redfish", "ConditionInRelatedResource", "adapters/redfish/eventing/events.py",
        related),
    VerdictField("Redfish", "Health and Conditions of a part", "adapters/redfish/parts.py",
        part_health),
    VerdictField("Redfish", "Health and Conditions of a sensor", "checks/bmc_sensors.py",
        judged("bmc_sensors", '"Health": "OK"', '"Health": "OK", "Conditions": '
               '[{"MessageId": "X.1.0.Y", "Severity": "Critical"}]')),
    VerdictField("Redfish", "ResetRequired of an attribute",
        "adapters/redfish/settings/reading.py", reset_required),
    VerdictField("Redfish", "Paused, a job's state", "adapters/redfish/tasks.py", paused),
    VerdictField("Redfish", "TaskStatus", "adapters/redfish/tasks.py", task_status),
)  # fmt: skip


@pytest.mark.parametrize("row", FIELDS, ids=lambda row: f"{row.source}: {row.field}")
def test_a_bad_verdict_is_found_and_a_good_one_is_not(row: VerdictField) -> None:
    assert list(row.find(True))
    assert not list(row.find(False))


def test_each_reader_that_the_table_names_is_a_file() -> None:
    assert [row for row in FIELDS if not (ROOT / "provisioner" / row.reader).is_file()] == []
