"""Examine at intake which checks a host cannot run, and for want of which tool.

The gates and checks of a tool follow from the command lines of the checks themselves. A tool that
the host does not list counts as missing; a host that could not be asked is reported as such.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from provisioner import checks
from provisioner.checks.check import CheckContext
from provisioner.model.health import Evidence, Gate
from provisioner.model.node import NodeKind
from provisioner.planning.intake import host_systems

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
_PLAIN = [tool.name for tool in TOOLS if tool.name not in (CUDA_PERFTEST, HOSTENGINE)]
LOOK = (
    f"for tool in {' '.join(_PLAIN)}; do command -v $tool >/dev/null && echo has $tool; done;"
    f" ib_write_bw --help 2>&1 | grep -q use_cuda && echo has {CUDA_PERFTEST};"
    f" systemctl is-active --quiet nvidia-dcgm && echo has {HOSTENGINE};"
    f" {host_systems.LOOK}; echo looked"
)
LIMIT_S = 30.0


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
