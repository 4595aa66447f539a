"""What NVIDIA asks to be done at once for each Xid and SXid: data, no rules.

Sources: NVIDIA's Xid catalogue (column "Immediate Action", H100 and B100) and the Fabric Manager
guide's tables of NVSwitch SXids. A number that is in no row is treated as the worst.
"""

from __future__ import annotations

from provisioner.model.health import Severity

# Xid -> what it asks for; IGNORED is not a finding
RESET_GPU = (46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158, 159)
RESTART = (79, 151)  # RESTART_BM (fallen off the bus), RESTART_VM
# RESTART_APP and the workflows that begin with the application: no application but our own tests
# runs on a node in maintenance, so that one of these is a fault to look into
LOOK = (
    *(8, 11, 13, 25, 31, 32, 39, 40, 41, 45, 60, *range(68, 73), *range(75, 78), 80),
    *(*range(82, 87), 88, 89, 94, *range(96, 106), *range(126, 136), 139),
)
UPDATE = (78,)  # UPDATE_SWFW
IGNORED = (14, 37, 38, 43, 44, 63, 66, 67, 92, 106, 107, 108, 137, 141, 157, 160, 161)
# 48: field diagnosis; 54: power connectors; 74 and 144 to 150: NVLink, decoded by a person
ISOLATE = (48, 54, 74, *range(144, 151))

XIDS: dict[int, Severity | None] = {
    **dict.fromkeys(RESET_GPU, Severity.RESET_GPU),
    **dict.fromkeys(RESTART, Severity.RESTART),
    **dict.fromkeys(LOOK, Severity.MONITOR),
    **dict.fromkeys(UPDATE, Severity.CONFIG),
    **dict.fromkeys(ISOLATE, Severity.ISOLATE),
    **dict.fromkeys(IGNORED, None),
}

# Xid 154 carries the recovery action in its text, and it escalates
RECOVERY_XID = 154
RECOVERY_WORDS: dict[str, Severity | None] = {
    "GPU Reset Required": Severity.RESET_GPU,
    "Node Reboot Required": Severity.RESTART,
    "Drain and Reset": Severity.RESET_GPU,
    "Drain P2P": Severity.RESET_GPU,
    "(None)": None,
}

# always fatal: the host restarts, which resets GPUs and NVSwitches
SXIDS_FATAL = (10003, 12020, 22003, 22011, *range(23001, 23018))
SXIDS_PERHAPS_FATAL = (
    *(10001, 10002, 10004, 10005, 11001, 11009, 11013, 11018, 11019, 11020, 12001, 12002, 12022),
    *(*range(12024, 12028), 12030, 12031, 12032, 14017, 15001, 15006, 15009, 15010, 15012, 15013),
    *(19047, 19048, 19054, 19056, 19058, 19060, 19061, 19063, 19064, 19066, 19067, 19069, 19070),
    *(20034, 22012, *range(24004, 24008)),
)
SXIDS_HARMLESS = (
    *(11004, 11012, 11021, 11022, 11023, 12021, 12023, 12028, 15008, 15011, 19049, 19055, 19057),
    *(19059, 19062, 19065, 19068, 19071, 19084, 20001, 20009, 20012, 22013, *range(24001, 24004)),
)
SXIDS: dict[int, Severity | None] = {
    **dict.fromkeys(SXIDS_FATAL, Severity.RESTART),
    **dict.fromkeys(SXIDS_PERHAPS_FATAL, Severity.RESTART),
    **dict.fromkeys(SXIDS_HARMLESS, None),
}
