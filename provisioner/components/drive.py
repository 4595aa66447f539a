"""Drives whose firmware is written in band, by model: NVMe.

`host.nvme` in `host` is a drive as the host's BMC lists it, for BMCs that update drives themselves.
"""

from __future__ import annotations

from provisioner.components.kind import ComponentKind
from provisioner.model.inventory import Activation
from provisioner.model.machine.settings import NVME_FIRMWARE

KINDS = (
    ComponentKind(
        name=NVME_FIRMWARE,  # slots are serial numbers: names of devices change between boots
        title="NVMe drive firmware",
        method="playbook_drive_firmware",
        activation=Activation.COLD_BOOT,  # NVMe: a reset; which one is enough depends on the drive
        duration_s=120,
    ),
)
