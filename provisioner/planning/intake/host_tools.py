"""Examine at intake which checks a host cannot run, and for want of which tool.

The gates and checks of a tool follow from the command lines of the checks themselves. A tool that
the host does not list counts as missing; a host that could not be asked is reported as such.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from provisioner import checks
from provisioner.checks.check import CheckContext
from provisioner.checks.readers.tool_output import END, END_WORDS
from provisioner.components.kind import HOST_OS
from provisioner.model.cohort import Evidence, Gate
from provisioner.model.inventory import Component
from provisioner.model.matrix import Pin
from provisioner.model.names import normalize_pci
from provisioner.model.node import NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.certification.host_settings import (
    SERVICE,
    HostSets,
    find_differences,
    list_packages,
    list_services,
)

# ------------------------------------------------------------------------------
# Judge at intake whether a host's operating system is one that the roles work on.
#
# The roles install by apt and dpkg, and were tried on Debian's and Ubuntu's packages. A host whose
# system will be written by the daemon is not judged by the one that it has today.


# prefixes every line of os-release, and names DGX OS, which calls itself Ubuntu there
LOOK = (
    "sed 's/^/system /' /etc/os-release 2>/dev/null; test -e /etc/dgx-release && echo system DGX=1"
)
SUPPORTED = {"debian": ("12",), "ubuntu": ("22.04", "24.04")}
RED_HAT = frozenset({"rhel", "rocky", "almalinux", "centos", "ol", "fedora"})
_APT_ONLY = "its packages are RPMs, and the daemon installs by apt only"
_OWN_STACK = "its drivers belong to its own releases (nvidia-system-*), which no role changes"
_INSTALLED = ("host.",)  # kinds that plays install in a host


def refuse_system(text: str, node_id: str, pins: Mapping[str, Pin]) -> Blocker | None:
    """Return why the plays cannot work on a host's system; None if they can.

    A host without pinned software of its system, and one whose system was not read, is not refused.
    """
    if HOST_OS in pins and pins[HOST_OS].known:
        return None
    installed = sorted(k for k, pin in pins.items() if k.startswith(_INSTALLED) and pin.known)
    installed = [k for k in installed if k not in ("host.bmc", "host.bios")]
    lines = [
        line.removeprefix("system ") for line in text.splitlines()[:200] if line[:7] == "system "
    ]
    fields = {n: v.strip("\"' ") for n, _, v in (line.partition("=") for line in lines)}
    if not installed or not fields.get("ID"):
        return None
    why = _explain(fields)
    if not why:
        return None
    name = fields.get("PRETTY_NAME") or f"{fields['ID']} {fields.get('VERSION_ID', '')}".strip()
    name = f"DGX OS on {name}" if "DGX" in fields else name
    tried = ", ".join(f"{k} {v}" for k, versions in SUPPORTED.items() for v in versions)
    return Blocker(
        reason=Reason.NOT_OFFERED,
        subject=f"{node_id}/{HOST_OS}",
        detail=f"{name[:80]}: {why}; pinned are {', '.join(installed)[:200]}",
        unblock=f"Pin {HOST_OS} with an image ({tried}), or take these pins out of the profile.",
    )


def _explain(fields: Mapping[str, str]) -> str:
    """Return why a system is not supported; "" if it is."""
    family = {fields["ID"].lower(), *fields.get("ID_LIKE", "").lower().split()}
    if "DGX" in fields:
        return _OWN_STACK
    if family & RED_HAT:
        return _APT_ONLY
    versions = SUPPORTED.get(fields["ID"].lower())
    if versions is None:
        return "no role was tried on it"
    version = fields.get("VERSION_ID", "")
    return "" if version in versions else f"no role was tried on version {version or 'unknown'}"


# ------------------------------------------------------------------------------
# One look at the settings, packages and services of a host's sets, and the set that is in force.
#
# The line is built from the pinned sets, so that a site without them asks nothing. Its output is
# untrusted: a line that does not fit is left out, and a setting without a reading is not in force.


HOST_LOOK = "host_settings"
LIMIT_S = 120.0
NONE = "none"
_ROWS_MAX = 20_000
_CARD = (
    "for d in /sys/class/infiniband/*; do p=$(basename $(readlink $d/device)); echo card $p;"
    " echo roce_cma_tos $(cat /sys/kernel/config/rdma_cm/${d##*/}/ports/1/default_roce_tos);"
    " echo devctl $(setpci -s $p CAP_EXP+8.w); for n in $d/device/net/*; do n=${n##*/};"
    " mlnx_qos -i $n;"
    " for e in np rp; do echo ecn_$e $(cat /sys/class/net/$n/ecn/roce_$e/enable/[0-7]); done;"
    " done; done; echo card none; "
)
# lspci prints bridges of class 0604; a bridge without the capability gives setpci an error
_HOST = (
    "echo kernel_arguments $(cat /proc/cmdline); echo hugepages_2m $(cat"
    " /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages);"
    " echo fabric $(nvidia-smi --query-gpu=fabric.state --format=csv,noheader | head -n 1);"
    " echo fabric_manager $(systemctl is-active nvidia-fabricmanager);"
    " for b in $(lspci -Dn -d ::0604 | cut -d ' ' -f 1);"
    " do echo acs $b $(setpci -s $b ECAP_ACS+6.w); done; "
)
_SHOWN = "package:${Package} ${Version} ${db:Status-Abbrev}\\n"
_TRUST = re.compile(r"Priority trust state:\s*(\w{1,16})")
_PFC = re.compile(r"enabled((?:\s+[01]){8})")
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_RELAXED = 0x0010  # PCIe Device Control, Enable Relaxed Ordering (PCI_EXP_DEVCTL_RELAX_EN)
_RAIL = re.compile(r"rail \S{2,45} own ([\w.-]{1,16}) route ([\w.-]{1,16}) mtu (\d{0,5})")
_PLAIN = re.compile(r"(kernel_arguments|hugepages_2m|service:\S{1,64}) ?(.{0,4096})")
_PACKAGE = re.compile(r"(package:\S{1,64}) (\S{1,120}) .i ")  # installed, also where it is held


def build_look(sets: HostSets, rails: Iterable[tuple[str, str]]) -> tuple[str, str, float] | None:
    """Return (name, command, limit in seconds); None where no set is pinned.

    `rails`: (own address, target) of each rail, as the check `rail_routes` has them.
    """
    settings = [s for named in sets.values() for s in named.values()]
    if not settings:
        return None
    packages = sorted({p for s in settings for p in list_packages(s)})
    services = sorted({p for s in settings for p in list_services(s)})
    line = _CARD + _HOST
    line += "".join(f"echo {SERVICE}{s} $(systemctl is-active {s}); " for s in services)
    if packages:
        line += f"dpkg-query -W -f '{_SHOWN}' {' '.join(packages)}; "
    line += "".join(_look_at_rail(own, target) for own, target in rails)
    return HOST_LOOK, f"( {line}) 2>/dev/null; {END}", LIMIT_S


def _look_at_rail(own: str, target: str) -> str:
    return (
        f"i=$(ip -o address show to {own} | awk 'NR==1{{print $2}}'); i=${{i%@*}};"
        f" r=$(ip -o route get {target} from {own} | sed -n 's/.* dev \\([^ ]*\\).*/\\1/p');"
        f' echo "rail {own} own ${{i:--}} route ${{r:--}} mtu $(ip -o link show $i | sed -n '
        "'s/.* mtu \\([0-9]*\\).*/\\1/p')\"; "
    )


_WORD = r"[A-Za-z0-9][A-Za-z0-9.+:@_-]*"
_ADDRESS = r"[0-9A-Fa-f.:]{2,45}"
_LINE = re.compile(
    re.escape(f"( {_CARD}{_HOST}")
    + rf"(?:echo {SERVICE}{_WORD} \$\(systemctl is-active {_WORD}\); )*"
    + rf"(?:dpkg-query -W -f '{re.escape(_SHOWN)}' {_WORD}(?: {_WORD})*; )?"
    + "(?:"
    + re.escape(_look_at_rail("OWN", "TARGET")).replace("OWN", _ADDRESS).replace("TARGET", _ADDRESS)
    + ")*"
    + re.escape(f") 2>/dev/null; {END}")
)


def is_look(line: str) -> bool:
    """Return whether a line is one of this module's, with names and addresses alone filled in."""
    return _LINE.fullmatch(line) is not None


def read_facts(text: str, rail_cards: Iterable[str], rail_mtu: int) -> dict[str, str]:
    """Return setting -> value. A value that the rails' cards do not share is all of them."""
    cards = {normalize_pci(card) for card in rail_cards}
    facts: dict[str, str] = {}
    shared: dict[str, set[str]] = {}
    rails: list[bool] = []
    card = ""
    for line in (row.strip() for row in text.split("\n")[:_ROWS_MAX]):
        name, _, value = line.partition(" ")
        if name == "card":
            card = normalize_pci(value)
        elif card in cards and (read := _read_card(line)) is not None:
            shared.setdefault(read[0], set()).add(read[1])
        elif match := _RAIL.fullmatch(line):
            rails.append(match[1] == match[2] != "-" and match[3] == str(rail_mtu))
        elif match := _PLAIN.fullmatch(line):
            is_unit = match[1].startswith(SERVICE)
            facts[match[1]] = {"active": "on"}.get(match[2], match[2]) if is_unit else match[2]
        elif match := _PACKAGE.match(f"{line} "):
            facts[match[1]] = match[2]
        elif name in ("fabric", "fabric_manager", "acs"):
            shared.setdefault(name, set()).add(value)
    facts |= {n: "|".join(sorted(v)) for n, v in shared.items() if n not in _DERIVED}
    facts["roce_ecn"] = _join_ends(shared)
    facts["acs"] = _judge_bridges(shared.get("acs", ()))
    facts["fabric_manager"] = _judge_fabric_manager(shared)
    facts["rails"] = "on" if rails and all(rails) else "off"
    return facts


_DERIVED = ("acs", "fabric", "fabric_manager", "ecn_np", "ecn_rp")


def _read_card(line: str) -> tuple[str, str] | None:
    name, _, value = line.partition(" ")
    if name == "roce_cma_tos" and value.isdecimal():
        return name, value
    if name == "devctl" and _HEX.fullmatch(value):
        return "relaxed_ordering", "on" if int(value, 16) & _RELAXED else "off"
    if name in ("ecn_np", "ecn_rp") and re.fullmatch("[01]( [01]){7}", value):
        return name, "".join(str(n) for n, on in enumerate(value.split()) if on == "1")
    if match := _TRUST.fullmatch(line):
        return "roce_trust", match[1]
    if match := _PFC.match(line):
        return "roce_pfc", "".join(match[1].split())
    return None


def _join_ends(shared: Mapping[str, set[str]]) -> str:
    """Return the priorities with ECN where both ends have the same, on every card."""
    ends = shared.get("ecn_np", set()) | shared.get("ecn_rp", set())
    both = "ecn_np" in shared and "ecn_rp" in shared
    return "|".join(sorted(ends)) if both else ""


def _judge_bridges(bridges: Iterable[str]) -> str:
    """Return "off" if no bridge has an ACS control set; "" where none shows its controls.

    A bridge without the capability prints none, and so does each one without lspci or setpci.
    """
    values = [value for _, _, value in (bridge.partition(" ") for bridge in bridges) if value]
    clear = all(_HEX.fullmatch(value) and int(value, 16) == 0 for value in values)
    return ("off" if clear else "on") if values else ""


def _judge_fabric_manager(shared: Mapping[str, set[str]]) -> str:
    """Return "nvswitch" where Fabric Manager runs exactly if the GPUs are on NVSwitches.

    A GPU that is on none reports its fabric state as N/A (nvidia-smi, fabric.state).
    """
    fabric = next(iter(shared.get("fabric", ())), "")
    is_active = shared.get("fabric_manager") == {"active"}
    if not fabric:
        return ""
    return "nvswitch" if is_active == ("N/A" not in fabric) else "off" if not is_active else "on"


def read_sets(
    evidence: Evidence, sets: HostSets, rail_cards: Iterable[str], rail_mtu: int
) -> tuple[Component, ...]:
    """Return a component for each kind that has sets: the set that is in force, or "none"."""
    whole = evidence.exit_code == 0 and not evidence.truncated and END_WORDS in evidence.text
    facts = read_facts(evidence.text, rail_cards, rail_mtu) if whole else {}
    components = []
    for kind, named in sorted(sets.items()):
        fitting = [n for n, s in named.items() if whole and s and not find_differences(s, facts)]
        version = max(fitting, key=lambda n: (len(named[n]), n), default=NONE)
        components.append(
            Component(
                kind=kind,
                slot="host",
                version=version if whole else None,
                source=evidence.source[:200],
                updateable=True,
            )
        )
    return tuple(components)


LACKS_MAX = 64


@dataclass(frozen=True)
class HostTool:
    """One tool, the package that brings it, and checks that need it without naming it."""

    name: str
    package: str
    needed_by: tuple[str, ...] = ()


_NVIDIA = "the GPU driver"
_MFT = "MFT, as mft or in DOCA-OFED"
_FABRIC = ("nccl_pair", "nccl_rail", "nccl_group", "nccl_group_alltoall")
CUDA_PERFTEST = "ib_write_bw --use_cuda"
HOSTENGINE = "nv-hostengine"
TOOLS = (
    HostTool("nvidia-smi", _NVIDIA),
    HostTool("dcgmi", "datacenter-gpu-manager-4-core and -cuda12 or -cuda13"),
    HostTool("nvbandwidth", "the site's own build of nvbandwidth"),
    HostTool("all_reduce_perf", "the site's own build of nccl-tests", _FABRIC[:3]),
    HostTool("alltoall_perf", "the site's own build of nccl-tests", _FABRIC[3:]),
    HostTool("mpirun", "openmpi-bin", _FABRIC),
    HostTool("ib_write_bw", "perftest"),
    HostTool("ib_read_lat", "perftest"),
    HostTool("gpu_burn", "the site's own build of gpu_burn"),
    HostTool("mlxlink", _MFT),
    HostTool("mlxconfig", _MFT),
    HostTool("mlxfwmanager", _MFT),
    HostTool("mlxreg", _MFT),
    HostTool("mlnx_qos", "mlnx-tools of DOCA-OFED"),
    HostTool("devlink", "iproute2"),
    HostTool("ip", "iproute2"),
    HostTool("ping", "iputils-ping"),
    HostTool("ethtool", "ethtool"),
    HostTool("lldpctl", "lldpd"),
    HostTool("ipmitool", "ipmitool"),
    HostTool("smartctl", "smartmontools"),
    HostTool("lscpu", "util-linux"),
    HostTool("setpci", "pciutils", ("host.baseline",)),
    HostTool("nvme", "nvme-cli", ("drive.nvme",)),
    HostTool("fio", "fio"),
    HostTool("stress-ng", "stress-ng"),
    # Debian's perftest is built without CUDA (linux-rdma/perftest: CUDA_H_PATH)
    HostTool(CUDA_PERFTEST, "perftest built with CUDA_H_PATH", ("gdr_loopback", "rdma_pair")),
    HostTool(HOSTENGINE, "service nvidia-dcgm", ("dcgm_diag", "hbm")),
)
_PLAIN_TOOLS = [tool.name for tool in TOOLS if tool.name not in (CUDA_PERFTEST, HOSTENGINE)]
HOST_TOOLS_LOOK = (
    f"for tool in {' '.join(_PLAIN_TOOLS)}; do command -v $tool >/dev/null && echo has $tool; done;"
    f" ib_write_bw --help 2>&1 | grep -q use_cuda && echo has {CUDA_PERFTEST};"
    f" systemctl is-active --quiet nvidia-dcgm && echo has {HOSTENGINE};"
    f" {LOOK}; echo looked"
)
HOST_TOOLS_LIMIT_S = 30.0


def list_checks_of(tool: HostTool) -> dict[str, Gate | None]:
    """Return the checks of a host that need the tool, each with its gate; None: no check."""
    needing: dict[str, Gate | None] = {}
    word = re.compile(rf"(?<![\w/-]){re.escape(tool.name)}(?![\w-])")
    for check in checks.ALL:
        if check.kind is not NodeKind.HOST:
            continue
        lines = [c.line for c in check.commands_of(CheckContext(rail_paths=(("a", "b"),)))]
        if check.name in tool.needed_by or any(word.search(line) for line in lines):
            needing[check.name] = check.gate
    for name in tool.needed_by:
        needing.setdefault(name, None)
    return needing


def find_lacks(evidence: Evidence) -> tuple[str, ...]:
    """Return a sentence for every tool that is missing: the gates and checks, and the package."""
    lines = evidence.text.splitlines()
    if evidence.exit_code != 0 or "looked" not in lines:
        return ("its tools could not be listed",)
    present = {line.removeprefix("has ") for line in lines if line.startswith("has ")}
    lacks = []
    for tool in TOOLS:
        if tool.name in present or not (needing := list_checks_of(tool)):
            continue
        gates = ", ".join(sorted({g.value for g in needing.values() if g is not None})) or "none"
        named = ", ".join(sorted(needing))
        lacks.append(f"{tool.name} (gate {gates}: {named}); install {tool.package}")
    return tuple(lacks[:LACKS_MAX])
