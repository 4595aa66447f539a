"""Siblings of faults that were found in readings of tools: another form of the same kind.

Each row is the good output of a check with one change, and what has to be seen in it. A row without
a severity is a harmless form. Sources of the forms stand beside the rules that judge them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

import pytest
from test_golden import BY_NAME, CONTEXT, LINES, ROOT, good

from provisioner.checks import kernel_log
from provisioner.checks.check import CheckContext
from provisioner.checks.event_log import _FAULTS
from provisioner.checks.nic_inventory import CHECK as NIC_INVENTORY
from provisioner.checks.readers.kernel_lines import parse_log_line
from provisioner.checks.xid.xid_events import find_events
from provisioner.model.cohort import CheckResult, Evidence, Severity, Verdict

Change = Callable[[str], str]
GPU = "GPU 00000000:29:00.0\n"
STATUS = f"{GPU}    GPU Reset Status\n        Reset Required : {{}}\n        {{}}\n"
DRAIN = "Drain and Reset Recommended : "
DEPRECATED = "Requested functionality has been deprecated"
LEVEL = "2026-03-01T10:10:00,000000+00:00 "


def put(old: str, new: str) -> Change:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return change


def above(line: str) -> Change:
    return put("\nTimestamp", f"\n{line}\nTimestamp")


def behind_first(line: str) -> Change:
    return lambda text: text.replace("\n", f"\n{line}\n", 1)


def document(text: str, change: Callable[[dict[str, dict[str, object]]], None]) -> str:
    read, end = json.JSONDecoder().raw_decode(text.lstrip())
    change(read)
    return json.dumps(read) + text.lstrip()[end:]


class Sibling(NamedTuple):
    check: str
    command: str
    change: Change
    part: str = ""  # of the finding; "": any
    severity: Severity | None = None  # None: the output is good
    words: str = ""  # in the finding's detail


ISOLATE, CONFIG, RESET = Severity.ISOLATE, Severity.CONFIG, Severity.RESET_GPU
SIBLINGS: dict[str, Sibling] = {
    # the driver's own verdict is in the output and not read
    "a reset that a driver before 570 asks for": Sibling(
        "sram_ecc", "smi_query", put(GPU, STATUS.format("Yes", f"{DRAIN}No")),
        "GPU 0000:29:00.0", RESET, "asks for a reset"),
    "a drain that it recommends": Sibling(
        "clocks", "smi_query", put(GPU, STATUS.format("No", f"{DRAIN}Yes")),
        "GPU 0000:29:00.0", RESET, "asks for a reset"),
    "a reset status that cannot be read": Sibling(
        "temperatures", "smi_query", put(GPU, STATUS.format("Unknown Error", f"{DRAIN}N/A")),
        "GPU 0000:29:00.0", RESET, "asks for a reset"),
    "a reset status that a later driver gave up": Sibling(
        "sram_ecc", "smi_query", put(GPU, STATUS.format(DEPRECATED, f"{DRAIN}{DEPRECATED}"))),
    "a reset status of No": Sibling(
        "sram_ecc", "smi_query", put(GPU, STATUS.format("No", f"{DRAIN}N/A"))),
    "a sentence without an address above all GPUs": Sibling(
        "sram_ecc", "smi_query", above("WARNING: infoROM is corrupted at gpu 3"), "GPU 3",
        ISOLATE, "infoROM"),
    "a complaint about a GPU by its number": Sibling(
        "gpu_inventory", "gpus",
        lambda text: "Unable to query GPU 3: GPU requires restart\n" + text,
        "GPU 3", Severity.RESTART, "requires restart"),
    "a GPU that is lost, by its number": Sibling(
        "gpu_inventory", "gpus", lambda text: text + "Error: GPU 5 is lost\n", "GPU 5",
        Severity.RESTART, "lost"),
    "a complaint that names an address alone": Sibling(
        "clocks", "smi_query", above("WARNING: ECC page retirement pending on 00000000:29:00.0"),
        "GPU 0000:29:00.0", ISOLATE, "retirement pending"),
    "a warning about a setting": Sibling(
        "clocks", "smi_query",
        above("Warning: persistence mode is disabled on device 00000000:29:00.0."),
        "host", CONFIG, "cannot be judged"),
    "a recovery action by a shorter name": Sibling(
        "sram_ecc", "smi_query", put(GPU, f"{GPU}    Recovery Action : Reboot\n"),
        "GPU 0000:29:00.0", Severity.RESTART, "recovery"),
    "a recovery action in a section": Sibling(
        "sram_ecc", "smi_query",
        put(GPU, f"{GPU}    Health\n        GPU recovery action : Reset\n"),
        "GPU 0000:29:00.0", RESET, "recovery"),
    "a recovery action by its number": Sibling(
        "sram_ecc", "smi_query", put(GPU, f"{GPU}    GPU Recovery Action : 2\n"),
        "GPU 0000:29:00.0", ISOLATE, "recovery"),
    "no recovery action": Sibling(
        "sram_ecc", "smi_query", put(GPU, f"{GPU}    GPU Recovery Action : none\n")),
    "an output with a byte order mark": Sibling(
        "sram_ecc", "smi_query", lambda text: "\ufeff" + text),
    "an output with DOS ends of lines": Sibling(
        "sram_ecc", "smi_query", lambda text: text.replace("\n", "\r\n")),
    "another sentence there": Sibling(
        "clocks", "smi_query", above("Unable to talk to GSP firmware: timeout"), severity=CONFIG),
    "more versions above all GPUs": Sibling(
        "clocks", "smi_query", above("KMD Version : 580.65\nCUDA UMD Version : 13.0")),
    "a peer of BGP without a policy": Sibling(
        "bgp_peers", "bgp_peers",
        put('"state": "Established"', '"state": "Established", "peerState": "Policy"'),
        "p0_if ipv4Unicast", ISOLATE, "FRR says"),
    "a peer of BGP with FRR's consent": Sibling(
        "bgp_peers", "bgp_peers",
        put('"state": "Established"', '"state": "Established", "peerState": "OK"')),
    "mlxlink's opcode without its advice": Sibling(
        "mlxlink", "mlxlink",
        put('"Recommendation": "No issue was observed",\n    "Status Opcode": "0"',
            '"Recommendation": "N/A",\n    "Status Opcode": "15"'),
        "port 0000:18:00.0", ISOLATE, "own verdict"),
    "mlxlink's advice with more behind it": Sibling(
        "mlxlink", "mlxlink",
        put("No issue was observed", "No issue was observed. Cable unplugged"),
        "port 0000:18:00.0", ISOLATE, "own advice"),
    "mlxlink's advice in pieces": Sibling(
        "mlxlink", "mlxlink", put('"No issue was observed"', '["No issue was observed", "Bad SI"]'),
        "port 0000:18:00.0", ISOLATE, "own advice"),
    "mlxlink's advice in small letters": Sibling(
        "mlxlink", "mlxlink", put("No issue was observed", "no issue was observed.")),
    "mlxlink's state twice": Sibling(
        "mlxlink", "mlxlink", put('"State": "Active"', '"State": "Polling", "State": "Active"'),
        "host", CONFIG, "two values"),
    "mlxlink's error rate as a number": Sibling(
        "mlxlink", "mlxlink", put('BER": "15E-255"', 'BER": 1e-6'),
        "port 0000:18:00.0", ISOLATE, "bit error rate"),
    "mlxlink's error rate with a comma": Sibling(
        "mlxlink", "mlxlink", put('BER": "15E-255"', 'BER": "1,5E-6"'), "host", CONFIG, "number"),
    "a drive that smartctl calls failing": Sibling(
        "nvme_smart", "nvme_smart", put('"exit_status": 0', '"exit_status": 8'),
        "/dev/nvme0", ISOLATE, "own health"),
    "a drive that smartctl could not open": Sibling(
        "nvme_smart", "nvme_smart", put('"exit_status": 0', '"exit_status": 2'),
        "host", CONFIG, "exit status 2"),
    "a drive without the optional logs": Sibling(
        "nvme_smart", "nvme_smart", put('"exit_status": 0', '"exit_status": 68')),
    "a drive that passed and did not": Sibling(
        "nvme_smart", "nvme_smart", put('"passed": true', '"passed": false, "passed": true'),
        "host", CONFIG, "two values"),
    "a warning whose bits say more than its value": Sibling(
        "nvme_smart", "nvme_smart",
        put('"critical_warning": 0', '"critical_warning": {"value": 0, "ro": 1}'),
        "host", CONFIG, "contradicts itself"),
    "a peer of BGP twice": Sibling(
        "bgp_peers", "bgp_peers", put('"peers": {', '"peers": {"p0_if": {"state": "Idle"},'),
        "host", CONFIG, "two values"),
    "mlxlink's opcode against its advice": Sibling(
        "mlxlink", "mlxlink", put('"Status Opcode": "0"', '"Status Opcode": "2"'),
        "port 0000:18:00.0", ISOLATE, "own verdict"),
    "a warning of an endurance group": Sibling(
        "nvme_smart", "nvme_smart",
        put('"critical_warning": 0', '"critical_warning": 0,'
            ' "endurance_grp_critical_warning_summary": {"value": 4}'),
        "/dev/nvme0", ISOLATE, "critical warning"),
    "no warning of an endurance group": Sibling(
        "nvme_smart", "nvme_smart",
        put('"critical_warning": 0',
            '"critical_warning": 0, "endurance_grp_critical_warning_summary": 0')),
    "a sensor's health in small letters": Sibling(
        "bmc_sensors", "bmc_sensors", put('"Health": "OK"', '"Health": "critical"'),
        severity=ISOLATE, words="bad health"),
    "a sensor's health in capitals": Sibling(
        "bmc_sensors", "bmc_sensors", put('"Health": "OK"', '"Health": "WARNING"'),
        severity=Severity.MONITOR, words="bad health"),
    # a new form of a known line
    "several PCIe errors at once": Sibling(
        "kernel_log", "kernel_log", behind_first(
            f"{LEVEL}pcieport 0000:15:01.0: AER: Multiple Uncorrected (Fatal) error received: "
            "0000:18:00.0"), "host", ISOLATE, "uncorrectable PCIe"),
    "the newer words for it": Sibling(
        "kernel_log", "kernel_log", behind_first(
            f"{LEVEL}pcieport 0000:15:01.0: AER: Multiple Uncorrectable (Non-Fatal) error message "
            "received from 0000:18:00.0"), "host", ISOLATE, "uncorrectable PCIe"),
    "several PCIe errors that were corrected": Sibling(
        "kernel_log", "kernel_log", behind_first(
            f"{LEVEL}pcieport 0000:15:01.0: AER: Multiple Corrected error received: 0000:18:00.0")),
    "an SXid without its blank": Sibling(
        "kernel_log", "kernel_log", behind_first(
            f"{LEVEL}nvidia-nvswitch3: SXid(PCI:0000:86:00.0): 12028, Non-fatal, Link 61"),
        severity=ISOLATE, words="unreadable SXid"),
    "an Xid without its blank": Sibling(
        "kernel_log", "kernel_log", behind_first(
            f"{LEVEL}NVRM: Xid(PCI:0000:3a:00): 79, pid=1, GPU has fallen off the bus."),
        severity=ISOLATE, words="unreadable Xid"),
    "a port that shut itself off": Sibling(
        "kernel_log", "kernel_log", behind_first(
            f"{LEVEL}pcieport 0000:15:01.0: DPC: containment event, status:0x1f01 source:0x0000"),
        "PCI 0000:15:01.0", ISOLATE, "uncorrectable error below it"),
    "a fatal error of a card's firmware": Sibling(
        "kernel_log", "kernel_log", behind_first(
            f"{LEVEL}mlx5_core 0000:9d:00.0: Fatal error 3 detected"),
        "PCI 0000:9d:00.0", ISOLATE, "fatal error"),
    "a kernel that stalls": Sibling(
        "kernel_errors", "kernel_errors", behind_first(
            f"{LEVEL}rcu: INFO: rcu_sched self-detected stall on CPU"), "host", ISOLATE, "stall"),
    # a part of a list is not the list
    "the baseboard lists seven GPUs": Sibling(
        "hgx_inventory", "bmc_firmware", lambda text: document(text, lambda d: (
            d["resources"].pop("/redfish/v1/UpdateService/FirmwareInventory/HGX_FW_GPU_SXM_3"))),
        "HGX", ISOLATE, "GPUs whose firmware"),
    "an item without its Id": Sibling(
        "hgx_inventory", "bmc_firmware", put('"Id": "HGX_FW_GPU_SXM_2",', "")),
    "a root of trust that shows no copy": Sibling(
        "hgx_inventory", "bmc_firmware", lambda text: document(text, lambda d: (
            d["resources"].update({"/redfish/v1/Chassis/HGX_ERoT_GPU_SXM_9": {"Oem": None}}))),
        "HGX_ERoT_GPU_SXM_9", CONFIG, "does not report its background copy"),
    "a chassis that is no root of trust": Sibling(
        "hgx_inventory", "bmc_firmware", lambda text: document(text, lambda d: (
            d["resources"].update({"/redfish/v1/Chassis/HGX_GPU_SXM_1": {"Oem": None}})))),
    "a PCIe switch whose own link is gone": Sibling(
        "pcie_devices", "pci_tree", put(
            "0000:16:00.0/current_link_speed:32.0 GT/s PCIe",
            "0000:16:00.0/current_link_speed:Unknown"),
        "PCIe switch 0000:16:00.0", ISOLATE, "shows no link"),
    # another version of a tool
    "nccl-tests with booleans": Sibling(
        "nccl_single", "nccl", lambda text: text.replace('"true"', "true")),
}  # fmt: skip


PLAIN = "NVRM: Xid (PCI:0000:3a:00): 79, pid=1, GPU has fallen off the bus."
BYTES = list(PLAIN.encode() + b"\xff")
UNREADABLE = -1
# what a kernel log or Fabric Manager's log may have for one error, and the code that is read of it
XIDS = {
    f"[mar. nov.  4 10:00:00 2026] {PLAIN}": 79,  # dmesg -T in French
    f"[火  11月  4 10:00:00 2026] {PLAIN}": 79,
    f"kern  :err   : [ 123.45] {PLAIN}": 79,
    f"[  123.456][ T99] {PLAIN}": 79,
    f"3,1234,123456789,-,caller=T99;{PLAIN}": 79,
    f"\r{PLAIN}": 79,
    f"2026-11-04T10:00:00.123456+00:00 host kernel: {PLAIN}": 79,
    json.dumps({"MESSAGE": PLAIN}).replace("Xid", "\\u0058id"): 79,
    json.dumps({"MESSAGE": BYTES}): 79,
    json.dumps({"MESSAGE": [BYTES, list(b"more")]}): 79,  # a field that an entry has twice
    json.dumps({"MESSAGE": [PLAIN, "more"]}): 79,
    f'{{"MESSAGE": "{PLAIN}", "MESSAGE": "fine"}}': 79,
    f'{{"dmesg": [{{"pri": 3, "msg": "{PLAIN}"}}]}}': 79,  # dmesg --json
    PLAIN.replace("0000:3a", "00000009:3a"): 79,
    PLAIN.replace("PCI:", ""): 79,
    PLAIN.replace("79", "999"): 999,
    "NVRM: Xid 79, pid=1": UNREADABLE,
    "NVRM: Xid: 79 (PCI:0000:3a:00)": UNREADABLE,
    PLAIN.replace("Xid", "XID"): UNREADABLE,
    PLAIN.replace("NVRM: ", "NVRM:\t"): UNREADABLE,
    PLAIN.replace("NVRM: ", "NVRM:\u00a0"): UNREADABLE,
    PLAIN.replace("NVRM:", "NVRM: GPU0"): UNREADABLE,
    PLAIN.replace("NVRM:", "nvidia:"): UNREADABLE,
    PLAIN.replace("3a:00)", "3a:00 GPU-I:05 MIG-9)"): UNREADABLE,
    "nvidia-nvswitch0: sxid (PCI:0000:86:00.0): 12028, Fatal, Link 61": UNREADABLE,
    "nvidia-nvswitch0: SXid: 12028 Fatal": UNREADABLE,
    "detected NVSwitch fatal error 20034 on fid 0, NVSwitch 00000000:86:00.0": UNREADABLE,
    "NVRM: API mismatch: the client 'Xid' has the version 580.65": None,
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.65": None,
}


@pytest.mark.parametrize("line", XIDS)
def test_an_xid_is_seen_in_every_form_and_left_to_nobody_else(line: str) -> None:
    codes = [event.code for event in find_events([line])]

    assert codes == ([] if XIDS[line] is None else [XIDS[line]])
    assert kernel_log.judges(parse_log_line(line)) is (XIDS[line] is not None)


def judged(sibling: Sibling) -> CheckResult:
    check = BY_NAME[sibling.check]
    outputs = good(check)
    if sibling.check == "nccl_single":
        text = (ROOT / "nccl_single/good_json/nccl.txt").read_text()
        outputs["nccl"] = outputs["nccl"].model_copy(update={"text": text})
    output = outputs[sibling.command]
    changed = sibling.change(output.text)
    assert changed != output.text
    outputs[sibling.command] = output.model_copy(update={"text": changed})
    return check.judge(outputs, CONTEXT)


@pytest.mark.parametrize("name", SIBLINGS)
def test_a_sibling_of_a_known_fault_is_judged_as_it_is(name: str) -> None:
    sibling = SIBLINGS[name]

    result = judged(sibling)

    if sibling.severity is None:
        assert result.verdict is Verdict.PASS, result.findings
        return
    assert result.verdict is Verdict.FAIL
    found = [f for f in result.findings if sibling.words in f.detail]
    assert [f.severity for f in found][:1] == [sibling.severity], result.findings
    assert sibling.part in {"", *(f.part for f in found)}


# what a kernel says at level "err", and whether the host is taken out of service for it
KERNEL_LINES = {
    "Kernel panic - not syncing: Fatal exception in interrupt": True,
    "general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP": True,
    "general protection fault: 0000 [#1] SMP": True,
    "traps: python[4711] general protection fault ip:7f1 sp:7ffe error:0 in libc.so.6": False,
    "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0)": True,
    "EDAC DEVICE0: UE: CPU instance: cpu0 block: L1_Cache 'error'": True,
    "EDAC skx MC2: HANDLING MCE MEMORY ERROR": True,
    "EDAC igen6 MC1: HANDLING IBECC MEMORY ERROR": True,
    "EDAC MC1: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0)": False,
    "EDAC amd64: F17h detected (node 0).": False,
    "GHES: Fatal hardware error but panic disabled": True,
    "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 1": True,
    "Memory failure: 0x12: Killing python:1 due to hardware memory corruption": True,
    "Internal error: synchronous external abort: 0000000096000410 [#1] SMP": True,
    "SError Interrupt on CPU5, code 0xbf000002 -- SError": True,
    "kernel BUG at mm/slub.c:321!": True,
    "invalid opcode: 0000 [#1] SMP": True,
    "NMI: PCI system error (SERR) for reason a1 on CPU 0.": True,
    "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff": True,
    "nvme0n1: I/O Cmd(0x2) @ LBA 100, 8 blocks, I/O Error (sct 0x2 / sc 0x81)": True,
    "critical medium error, dev nvme0n1, sector 5": True,
    "XFS (nvme0n1p2): Corruption of in-memory data (0x8) detected": True,
    "EXT4-fs (nvme0n1p2): Remounting filesystem read-only": True,
    "md/raid1:md0: Disk failure on nvme0n1p1, disabling device.": True,
    "Memory cgroup out of memory: Killed process 4711 (python) total-vm:1kB": False,
    "tsc: Marking TSC unstable due to clocksource watchdog": False,
}


@pytest.mark.parametrize("line", KERNEL_LINES)
def test_a_kernel_line_takes_a_host_out_of_service_or_is_watched(line: str) -> None:
    sibling = Sibling("kernel_errors", "kernel_errors", behind_first(LEVEL + line))

    (finding,) = judged(sibling).findings

    assert finding.severity is (ISOLATE if KERNEL_LINES[line] else Severity.MONITOR)


OLD = """\
# Rank 0 Pid 42 on node1 device 0 [0x1b] NVIDIA H100 80GB HBM3
# out-of-place in-place
# size count type redop time algbw busbw error time algbw busbw error
# (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)
 17179869184 4294967296 float sum 62900 273.13 477.98 2e-06 62850 273.35 478.36 2e-06
# Out of bounds values : 0 OK
# Avg bus bandwidth : 478.17
#
"""  # as nccl-tests before 2.13 prints it, with fewer blanks


@pytest.mark.parametrize(
    ("error", "severity"),
    [
        ("2e-06", None),
        ("1e+03", None),  # the tool holds it against its own bound
        ("nan", ISOLATE),
        ("-nan", ISOLATE),
        ("inf", ISOLATE),
        ("-1e-06", CONFIG),
        ("2,0e-06", CONFIG),
        ("N/A", CONFIG),
    ],
)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_the_largest_difference_of_old_versions(
    error: str, severity: Severity | None, ends: str
) -> None:
    rank = OLD.split("\n", maxsplit=1)[0]
    ranks = "\n".join(rank.replace("Rank 0", f"Rank {n}") for n in range(8))
    text = OLD.replace(rank, ranks).replace("2e-06", error).replace("\n", ends)
    evidence = Evidence(source=LINES["nccl"], exit_code=0, text=text)
    host = CheckContext(gpu_model="H100", gpus=8)

    result = BY_NAME["nccl_single"].judge({"nccl": evidence}, host)

    assert [f.severity for f in result.findings][:1] == ([severity] if severity else [])


LEAVES = ("leaf-0", "leaf-1")
ALIASES = {leaf: {"etp1a": "Ethernet0"} for leaf in LEAVES}
CARDS = "/sys/class/net/{}/device/uevent:PCI_SLOT_NAME=0000:{}:00.0\n"


def heard(pid: object, kind: str, described: str = "Ethernet0", *, swapped: bool = False) -> str:
    """What lldpd on a host hears from two SONiC leaves."""
    leaves = LEAVES[::-1] if swapped else LEAVES
    entries = [
        {
            name: {
                "chassis": {leaf: {"id": {"type": "mac", "value": "9c:05:91:00:00:01"}}},
                "port": {"id": {"type": kind, "value": pid}, "descr": described},
            }
        }
        for name, leaf in zip(("eth0", "eth1"), leaves, strict=True)
    ]
    return json.dumps({"lldp": {"interface": entries}})


@pytest.mark.parametrize(
    ("said", "names", "verdict"),
    [
        (heard("etp1a", "local", "x"), ALIASES, Verdict.PASS),
        (heard("etp1a", "ifname", "x"), ALIASES, Verdict.PASS),
        (heard("etp1a", "ifalias"), {}, Verdict.PASS),
        (heard("Ethernet0", "ifname", "x"), ALIASES, Verdict.PASS),
        (heard("Eth1/1", "local"), {}, Verdict.PASS),
        (heard("Eth1/1", "local", "to host 5"), {}, Verdict.SKIPPED),
        (heard("ETP1A", "local", "x"), ALIASES, Verdict.SKIPPED),
        (heard("9c05.9100.0001", "mac"), {}, Verdict.SKIPPED),
        (heard("9c:05:91:00:00:01", ""), {}, Verdict.SKIPPED),
        (heard("etp1a", "local", "x"), {"leaf-0": ALIASES["leaf-0"]}, Verdict.SKIPPED),
        (heard("Ethernet4", "ifname"), ALIASES, Verdict.FAIL),
        (heard("etp1a", "local", "x", swapped=True), ALIASES, Verdict.FAIL),
        (heard("etp1a", "ifname", "x", swapped=True), ALIASES, Verdict.FAIL),
        (heard(1, "local"), ALIASES, Verdict.FAIL),
    ],
)
def test_a_leaf_calls_its_port_as_it_likes(
    said: str, names: dict[str, dict[str, str]], verdict: Verdict
) -> None:
    cards = CARDS.format("eth0", "18") + CARDS.format("eth1", "40") + "end-of-output\n"
    context = CheckContext(
        gpu_model="H100",
        gpus=8,
        rails=2,
        neighbours=tuple((leaf, "Ethernet0") for leaf in LEAVES),
        cabled_pci={"leaf-0/Ethernet0": "0000:18:00.0", "leaf-1/Ethernet0": "0000:40:00.0"},
        port_names=names,
    )
    outputs = {
        name: Evidence(source=LINES[name], exit_code=0, text=text)
        for name, text in (("lldp", said), ("netdevs", cards))
    }

    assert BY_NAME["lldp"].judge(outputs, context).verdict is verdict


def of_module(**more: object) -> CheckResult:
    """The good output of `ethtool -m --json`, with other facts of its first module."""
    text = (ROOT / "optics/good_ethtool/mlxlink.txt").read_text()
    for key, value in more.items():
        written = f'"{key}": {json.dumps(value)},'
        listed = [line for line in text.split("\n") if f'"{key}"' in line]
        old = listed[0].strip() if listed else '"identifier": 25,'
        text = text.replace(old, written if listed else f"{old}\n{written}", 1)
    evidence = Evidence(source=LINES["mlxlink"], exit_code=0, text=text)
    return BY_NAME["optics"].judge({"mlxlink": evidence}, CONTEXT)


@pytest.mark.parametrize(
    ("key", "value", "good"),
    [
        ("rx_loss_of_signal", [False, False, False, False], True),
        ("rx_loss_of_signal", ["No", "No", "No", "No"], True),
        ("rx_loss_of_signal", 0, True),
        ("rx_loss_of_signal", [False, True, False, False], False),
        ("rx_loss_of_signal", ["no", "yes", "no", "no"], False),
        ("tx_fault", "Detected", False),
        ("tx_fault", [0, 1], False),
        ("tx_fault", {"lane": 3}, False),
        ("module_state_description", "ModuleFault", False),
        ("module_state_description", "ModuleLowPwr", False),
        ("module_temperature_high_alarm", True, False),
        ("laser_rx_power_low_alarm", ["Off", "On"], False),
        ("laser_rx_power_low_alarm", "Off", True),
    ],
)
def test_a_modules_flag_is_down_only_where_it_says_so(key: str, value: object, good: bool) -> None:
    assert (of_module(**{key: value}).verdict is Verdict.PASS) is good


@pytest.mark.parametrize(
    ("words", "is_fault"),
    [
        ("Transition to Critical from less severe", True),
        ("Transition to Critical from Non-recoverable", True),
        ("FRB1/BIST failure", True),
        ("FRB2/Hang in POST failure", True),
        ("Failed", True),
        ("AC lost", True),
        ("Memory Device Disabled", True),
        ("Transition to Non-critical from OK", False),
        ("PXE boot failed to start", False),
        ("Timestamp Clock Sync", False),
        ("Presence detected", False),
    ],
)
def test_an_event_that_means_that_a_part_is_bad(words: str, is_fault: bool) -> None:
    assert (_FAULTS.search(words) is not None) is is_fault


@pytest.mark.parametrize(
    ("kind", "rail", "good"),
    [
        ("BlueField3", True, True),
        ("BlueField-3", True, True),
        ("ConnectX-9", True, False),
        ("", True, False),
        ("ConnectX-9", False, True),
    ],
)
def test_a_rails_card_of_an_unknown_type_has_no_pinned_firmware(
    kind: str, rail: bool, good: bool
) -> None:
    text = (ROOT / "nic_inventory/good/nics.txt").read_text()
    text = text.replace('type="BlueField3"', f'type="{kind}"', 1)
    pins = {**CONTEXT.pins, "supernic.nic": ("32.44.1036",)}
    rails = ("0000:18:00.0",) if rail else ()
    context = CheckContext(**{**dict(CONTEXT), "pins": pins, "rail_pci": rails})
    evidence = Evidence(source=LINES["nics"], exit_code=0, text=text)

    result = NIC_INVENTORY.judge({"nics": evidence}, context)

    assert (result.verdict is Verdict.PASS) is good, result.findings
