"""The commands that checks run inside a host, exactly as docs/in-band.md lists them.

A test keeps this table and the document equal. Limits are in seconds: a few times the duration that
vendors and clouds report for the command, so that a hung tool fails one check and not the whole
validation.
"""

from __future__ import annotations

from provisioner.checks.check import Command
from provisioner.model import host_packages

GPUS = Command(
    name="gpus",
    line="nvidia-smi --query-gpu=index,uuid,serial,name,pci.bus_id,vbios_version,driver_version"
    " --format=csv,noheader",
    limit_s=60.0,
)
PCIE = Command(
    name="pcie",
    line="nvidia-smi --query-gpu=index,pci.bus_id,pcie.link.gen.current,pcie.link.gen.max,"
    "pcie.link.width.current,pcie.link.width.max --format=csv,noheader",
    limit_s=60.0,
)
ECC = Command(
    name="ecc",
    line="nvidia-smi --query-gpu=index,ecc.mode.current,ecc.errors.uncorrected.volatile.total,"
    "ecc.errors.corrected.volatile.dram --format=csv,noheader",
    limit_s=60.0,
)
REMAP = Command(
    name="remap",
    line="nvidia-smi --query-remapped-rows=gpu_uuid,remapped_rows.correctable,"
    "remapped_rows.uncorrectable,remapped_rows.pending,remapped_rows.failure"
    " --format=csv,noheader",
    limit_s=60.0,
)
PACKAGES = Command(name="packages", line=host_packages.QUERY, limit_s=30.0)
NICS = Command(name="nics", line="mlxfwmanager --query-format xml", limit_s=120.0)
NIC_CONFIG = Command(name="nic_config", line="mlxconfig -e -j /dev/stdout q", limit_s=120.0)
NVLINK = Command(name="nvlink", line="nvidia-smi nvlink -s", limit_s=60.0)
KERNEL_LOG = Command(name="kernel_log", line="dmesg --time-format iso", limit_s=30.0)
SERVICES = Command(
    name="services",
    line="systemctl is-active nvidia-fabricmanager nvidia-persistenced",
    limit_s=30.0,
)
LLDP = Command(name="lldp", line="lldpctl -f json", limit_s=30.0)
DCGM = Command(name="dcgm", line="dcgmi diag -r 2 -j", limit_s=1800.0)  # 2.5 to 10.5 min (AWS)
NVBANDWIDTH = Command(
    name="nvbandwidth",
    line="nvbandwidth -j -i 10 -t host_to_device_memcpy_ce device_to_host_memcpy_ce"
    " device_to_device_memcpy_read_ce",
    limit_s=600.0,
)
NCCL = Command(name="nccl", line="all_reduce_perf -b 16G -e 16G -f 2 -g 8 -c 1", limit_s=600.0)
