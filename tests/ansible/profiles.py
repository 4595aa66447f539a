"""What the daemon would hand to the plays: NV-config of RA1.3 and some of its run-time settings."""

from __future__ import annotations

NV_CONFIG = {
    "LINK_TYPE_P1": "2",
    "SRIOV_EN": "1",
    "NUM_OF_VFS": "1",
    "INTERNAL_CPU_MODEL": "1",
    "INTERNAL_CPU_OFFLOAD_ENGINE": "1",
    "ROCE_ADAPTIVE_ROUTING_EN": "1",
}
_I = "/interfaces/interface"
ROUTING = [
    {"path": f"{_I}/nvidia/qos/config/trust-mode", "value": "dscp", "also": "QOS_TRUST_MODE_DSCP"},
    {"path": f"{_I}/nvidia/qos/config/pfc", "value": "00010000"},
    {"path": f"{_I}/nvidia/roce/config/adaptive-retransmission", "value": "true", "type": "bool"},
    {"path": f"{_I}/nvidia/roce/config/adaptive-routing-force", "value": "true", "type": "bool"},
]
CONGESTION = [
    {"path": f"{_I}/nvidia/cc/config/priority/rp_enabled", "value": "true", "type": "bool"},
    {"path": f"{_I}/nvidia/cc/slot[id=15]/config/enabled", "value": "false", "type": "bool"},
    {
        "path": f"{_I}/nvidia/cc/slot[id=0]/param[id=7]/config/value",
        "value": "15000",
        "type": "int",
    },
    {
        "path": f"{_I}/ethernet/nvidia/config/inter-packet-gap",
        "value": "33",
        "type": "int",
        "restart_interface": True,
    },
]
