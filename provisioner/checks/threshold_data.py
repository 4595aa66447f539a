"""The published thresholds, one row per figure: its unit, its direction, and a value with its
source for each GPU model.

A figure without a published value is None with `learned=True`, never a guess. It may be learned
from the fleet or set in a site's own file (docs/thresholds.md); until then nothing is judged by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pydantic import Field

from provisioner.model.base import Record

ANY = "any"  # key of a value that holds for every GPU model
MODELS = ("H100", "H200", "B200")  # names by which a node's model is recognised (checks/context.py)

_AZURE_H100 = "Azure/azurehpc-health-checks conf/nd96isr_h100_v5.conf"
_AZURE_H200 = "Azure/azurehpc-health-checks conf/nd96isr_h200_v5.conf"
_DCGM = "NVIDIA/DCGM nvvs/diag-skus.yaml.in"
_GCP = "GoogleCloudPlatform/cluster-health-scanner"
# an all-reduce of eight GPUs over their NICs alone, of 400 Gbit/s each, over InfiniBand
_AZURE_RAIL = f"{_AZURE_H100} at 06114325: check_nccl_allreduce_ib_loopback 40.0 on 400 Gbit/s"
_NVS_GANG = "NVIDIA/NVSentinel preflight: nccl-allreduce of a gang, 4 GB messages; a coarse floor"
_GCP_H100 = (
    "GoogleCloudPlatform/cluster-health-scanner, a3-ultra: the same NICs, NVLink and PCIe;"
    " NVSentinel measured 346 with H100"
)
_COARSE = frozenset({_AZURE_RAIL, _NVS_GANG, _GCP_H100})  # a stricter floor of the fleet is used
_IMBUE = "imbue-ai/cluster-health"
_GCM = "facebookresearch/gcm"
_NVS = "NVIDIA/NVSentinel, NIC health monitor"
_AS_NIC = "as for ports of NICs (NVSentinel); no value is published for NVLink"
_OURS = "our own default: no value is published"
_MLXLINK = "mlxlink of a healthy port (yuuki/mlxlink_exporter): none in 45 hours"
_NOBODY = "no vendor or cloud publishes one"


class Bound(StrEnum):
    """The good side of a threshold."""

    MIN = "at least"
    MAX = "at most"


class Limit(Record):
    """One value and its source. `value` is None where none is published; `learned`: it may be.

    A value that may be learned as well is coarse: a stricter one of the fleet replaces it.
    """

    value: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    source: str = Field(min_length=1, max_length=300)
    learned: bool = False


Limits = Mapping[str, Limit]  # by profile, GPU model or "any"; the first that exists applies


class Threshold(Record):
    """One figure that a check compares with a measured value."""

    unit: str
    bound: Bound
    about: str
    values: Mapping[str, Limit]


def _build_row(
    unit: str, bound: Bound, about: str, **values: tuple[float | None, str]
) -> Threshold:
    limits = {
        model: Limit(value=value, source=source, learned=value is None or source in _COARSE)
        for model, (value, source) in values.items()
    }
    return Threshold(unit=unit, bound=bound, about=about, values=limits)


def _build_row_for_models(unit: str, about: str, value: tuple[float, str]) -> Threshold:
    """Return a row whose value holds for every known GPU model; other models have none."""
    return _build_row(unit, Bound.MIN, about, **dict.fromkeys(MODELS, value))


_UNKNOWN = (None, _NOBODY)
_LINK = "the part's own link: PCIe 5.0 x16; DCGM's floor of generation 3 lets a Gen4 link pass"
_NV18 = "18 NVLinks a GPU: NV18 between any two in `nvidia-smi topo -m`"

THRESHOLDS: Mapping[str, Threshold] = {
    "pcie_gen": _build_row_for_models("generation", "PCIe generation of a GPU's link", (5, _LINK)),
    "pcie_width": _build_row_for_models("lanes", "PCIe width of a GPU's link", (16, _LINK)),
    "nvlinks": _build_row_for_models("links", "NVLinks of a GPU that are up", (18, _NV18)),
    "host_gpu_gb_s": _build_row(
        "GB/s",
        Bound.MIN,
        "host to GPU and back, each GPU (nvbandwidth)",
        H100=(48, _AZURE_H100),
        H200=(48, _AZURE_H200),
        B200=_UNKNOWN,
    ),
    "gpu_gpu_gb_s": _build_row(
        "GB/s",
        Bound.MIN,
        "GPU to GPU over NVLink, each pair (nvbandwidth)",
        H100=(335, _AZURE_H100),
        H200=(335, _AZURE_H200),
        B200=_UNKNOWN,
    ),
    "all_reduce_gb_s": _build_row(
        "GB/s",
        Bound.MIN,
        "bus bandwidth of an all-reduce in one node (nccl-tests)",
        H100=(460, _AZURE_H100),
        H200=(431, _AZURE_H200),
        B200=_UNKNOWN,
    ),
    "nccl_message_gib": _build_row(
        "GiB", Bound.MIN, "message that the floors of nccl-tests are for", any=(16, _AZURE_H100)
    ),
    "all_gather_gb_s": _build_row("GB/s", Bound.MIN, "all-gather in one node", any=_UNKNOWN),
    "reduce_scatter_gb_s": _build_row(
        "GB/s", Bound.MIN, "reduce-scatter in one node", any=_UNKNOWN
    ),
    "alltoall_gb_s": _build_row("GB/s", Bound.MIN, "all-to-all in one node", any=_UNKNOWN),
    "gdr_loopback_gbit_s": _build_row(
        "Gbit/s",
        Bound.MIN,
        "GPUDirect loopback of a 400 Gbit/s NIC (ib_write_bw)",
        H100=(380, _AZURE_H100),
        H200=(360, _AZURE_H200),
        B200=_UNKNOWN,
    ),
    "hbm_mb_s": _build_row(
        "MB/s",
        Bound.MIN,
        "HBM bandwidth of a GPU (DCGM memory_bandwidth), passed explicitly",
        H100=(1_905_000, f"{_DCGM}, device 2330: 75 % of a measured value"),
        # the entry says 2333 in a field of MB/s, with a comment of 3110 GB/s x .75: used as it is,
        # that test cannot fail
        H200=(2_332_500, f"{_DCGM}, device 2335: 75 % of 3110 GB/s (its own field says 2333 MB/s)"),
        B200=(4_072_500, f"{_DCGM}, device 2901: 75 % of a measured value"),
    ),
    "burn_of_median": _build_row(
        "of the node's median",
        Bound.MIN,
        "GFLOP/s of a GPU beside the other GPUs of its node (gpu_burn)",
        any=(0.95, "microsoft/superbenchmark: variance rule of 5 %"),
    ),
    "storage_read_gb_s": _build_row("GB/s", Bound.MIN, "sequential read of a drive", any=_UNKNOWN),
    "storage_read_iops": _build_row(
        "1/s", Bound.MIN, "random reads of a drive, 4 KiB", any=_UNKNOWN
    ),
    "stream_triad_gb_s": _build_row(
        "GB/s", Bound.MIN, "memory bandwidth (STREAM triad)", any=_UNKNOWN
    ),
    "nccl_pair_gb_s": _build_row(
        "GB/s",
        Bound.MIN,
        "all-reduce over two nodes, 16 GPUs (nccl-tests)",
        H100=(250, _GCP_H100),
        H200=(250, f"{_GCP}, a3-ultra: 8 x 400 Gbit/s RoCE"),
        B200=(250, f"{_GCP}, a4: 8 x 400 Gbit/s RoCE"),
    ),
    "nccl_rail_gb_s": _build_row(
        "GB/s",
        Bound.MIN,
        "all-reduce over two nodes, one rail",
        H100=(40, _AZURE_RAIL),
        H200=(40, _AZURE_RAIL),
        B200=_UNKNOWN,
    ),
    "nccl_group_gb_s": _build_row(
        "GB/s",
        Bound.MIN,
        "all-reduce over k nodes",
        H100=(100, _NVS_GANG),
        H200=(100, _NVS_GANG),
        B200=_UNKNOWN,
    ),
    "nccl_group_alltoall_gb_s": _build_row(
        "GB/s", Bound.MIN, "all-to-all over k nodes", any=_UNKNOWN
    ),
    "training_step_ms": _build_row(
        "ms", Bound.MAX, "a step of the reference training over k nodes", any=_UNKNOWN
    ),
    "training_jitter_percent": _build_row(
        "%", Bound.MAX, "90th percentile of its steps above their median", any=(10, _OURS)
    ),
    "training_slow_percent": _build_row(
        "%", Bound.MAX, "a GPU's own forward and backward pass above the median", any=(5, _OURS)
    ),
    "training_receive_percent": _build_row(
        "%", Bound.MAX, "a rank's time to receive, from every sender", any=(25, _OURS)
    ),
    "rdma_pair_gbit_s": _build_row(
        "Gbit/s",
        Bound.MIN,
        "one rail between two nodes, both ways at once, GPUDirect (ib_write_bw -b)",
        any=(720, f"{_IMBUE}: 90 % of 2 x 400 Gbit/s"),
    ),
    "rdma_latency_us": _build_row(
        "us", Bound.MAX, "99th percentile of one rail between two nodes (ib_read_lat)", any=_UNKNOWN
    ),
    "rail_gbit_s": _build_row(
        "Gbit/s", Bound.MIN, "rate of a rail's port", any=(400, "Spectrum-X reference architecture")
    ),
    "dram_correctable": _build_row(
        "errors",
        Bound.MAX,
        "correctable DRAM errors since boot: a noise gate only",
        any=(
            19_999_999,
            f"{_AZURE_H100}: below 20 million; facebookresearch/gcm allows 50 million",
        ),
    ),
    "remapped_uncorrectable": _build_row(
        "rows", Bound.MAX, "rows remapped for uncorrectable errors", any=(512, _AZURE_H100)
    ),
    "sram_correctable": _build_row(
        "errors", Bound.MAX, "correctable SRAM errors, ever", any=(9_999, _AZURE_H100)
    ),
    "retired_pages": _build_row(
        "pages",
        Bound.MAX,
        "retired pages of a GPU that remaps no rows",
        any=(59, "NVIDIA Dynamic Page Retirement: returned from 60 on"),
    ),
    "idle_memory_mib": _build_row(
        "MiB", Bound.MAX, "memory in use on an idle GPU", any=(15, f"{_GCM}: its default")
    ),
    "power_limit_w": _build_row(
        "W",
        Bound.MIN,
        "power limit of a GPU",
        H100=(700, _DCGM),
        H200=(700, _DCGM),
        B200=(1000, _DCGM),
    ),
    "nvlink_errors": _build_row(
        "errors", Bound.MAX, "errors of a kind on an NVLink, before a load", any=(9, _GCM)
    ),
    "nvlink_effective_ber": _build_row(
        "errors a bit", Bound.MAX, "effective bit error rate of an NVLink", any=(1e-12, _AS_NIC)
    ),
    "link_effective_ber": _build_row(
        "errors a bit", Bound.MAX, "effective bit error rate of a healthy port", any=(1e-15, _NVS)
    ),
    "link_effective_ber_bad": _build_row(
        "errors a bit", Bound.MAX, "effective bit error rate of a port to watch", any=(1e-12, _NVS)
    ),
    "link_faults_since_clear": _build_row(
        "events", Bound.MAX, "link downs, recoveries, lost blocks since clear", any=(0, _MLXLINK)
    ),
    "fec_symbols": _build_row(
        "symbols", Bound.MAX, "corrected symbols in one codeword, of 15", any=(8, _OURS)
    ),
    "fec_symbols_in_a_load": _build_row(
        "symbols", Bound.MAX, "corrected symbols in one codeword under load", any=(7, _OURS)
    ),
    "carrier_losses": _build_row(
        "losses", Bound.MAX, "losses of carrier of a port since boot", any=(4, _AZURE_H100)
    ),
    "mtu": _build_row(
        "bytes", Bound.MIN, "frames of a rail's port", any=(9000, "Cumulus Linux, RoCE")
    ),
    "pcie_corrected_in_a_load": _build_row(
        "errors", Bound.MAX, "corrected PCIe errors of a device under load", any=(100, _OURS)
    ),
    "numa_memory_difference": _build_row(
        "of the largest", Bound.MAX, "memory missing on a NUMA node", any=(0.05, _OURS)
    ),
    "nvme_used_watch": _build_row(
        "%", Bound.MAX, "rated writes of a drive used, to watch", any=(80, _GCM)
    ),
    "nvme_used": _build_row("%", Bound.MAX, "rated writes of a drive used", any=(100, _GCM)),
    "disk_free": _build_row(
        "of the whole", Bound.MIN, "free space of a file system", any=(0.05, _IMBUE)
    ),
    "symbol_error_per_s": _build_row(
        "a second", Bound.MAX, "growth of a port's symbol_error", any=(120 / 3600, _NVS)
    ),
    "link_error_recovery_per_s": _build_row(
        "a second", Bound.MAX, "growth of a port's link_error_recovery", any=(5 / 60, _NVS)
    ),
    "port_rcv_errors_per_s": _build_row(
        "a second", Bound.MAX, "growth of a port's port_rcv_errors", any=(10, _NVS)
    ),
    "port_xmit_discards_per_s": _build_row(
        "a second", Bound.MAX, "growth of a port's port_xmit_discards", any=(100, _NVS)
    ),
    "roce_slow_restart_per_s": _build_row(
        "a second", Bound.MAX, "growth of a port's roce_slow_restart", any=(10, _NVS)
    ),
    "local_ack_timeout_err_per_s": _build_row(
        "a second", Bound.MAX, "growth of a port's local_ack_timeout_err", any=(1, _NVS)
    ),
}
