"""Floors and limits per GPU model, each with where it was published. None: nobody published one.

A check that meets None is skipped with that reason, and a skipped check is never a pass.
"""

from __future__ import annotations

from provisioner.checks.check import NotJudged
from provisioner.model.base import Record


class Thresholds(Record):
    """Bandwidths in GB/s (10^9 bytes)."""

    pcie_gen: int  # of every GPU's link; DCGM's own floor of generation 3 lets a Gen4 link pass
    pcie_width: int
    nvlinks: int  # per GPU: NV18 between any two GPUs
    host_gpu_gb_s: float | None  # nvbandwidth, each direction, each GPU
    all_reduce_gb_s: float | None  # nccl-tests, bus bandwidth, one node, 16 GB


# H100, H200: Azure/azurehpc-health-checks conf/nd96isr_h100_v5.conf and nd96isr_h200_v5.conf.
# B200: no cloud or vendor publishes single-node floors.
TABLE: dict[str, Thresholds] = {
    "H100": Thresholds(
        pcie_gen=5, pcie_width=16, nvlinks=18, host_gpu_gb_s=48.0, all_reduce_gb_s=460.0
    ),
    "H200": Thresholds(
        pcie_gen=5, pcie_width=16, nvlinks=18, host_gpu_gb_s=48.0, all_reduce_gb_s=431.0
    ),
    "B200": Thresholds(
        pcie_gen=5, pcie_width=16, nvlinks=18, host_gpu_gb_s=None, all_reduce_gb_s=None
    ),
}

# Noise gate only: Azure fails at 20 million, Meta's gcm at 50 million (volatile).
DRAM_CORRECTABLE_MAX = 20_000_000
# Azure: more than 512 remapped rows for uncorrectable errors.
REMAPPED_UNCORRECTABLE_MAX = 512
# Spectrum-X rails are one 400 Gb/s port each (reference architecture).
RAIL_GBIT_S = 400


def thresholds(gpu_model: str) -> Thresholds:
    """The row of a GPU model; `NotJudged` if there is none."""
    if gpu_model not in TABLE:
        raise NotJudged(f"no thresholds for GPU model {gpu_model or 'unknown'!r}")
    return TABLE[gpu_model]


def known(value: float | None, what: str, gpu_model: str) -> float:
    """A published floor; `NotJudged` if nobody published one."""
    if value is None:
        raise NotJudged(f"no published floor of {what} for {gpu_model}")
    return value
