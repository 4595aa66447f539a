"""Components of an Ethernet switch, read and written through the switch's own API, not Redfish."""

from __future__ import annotations

from provisioner.components.kind import ComponentKind
from provisioner.model.inventory import Activation

KINDS = (
    ComponentKind(
        name="switch.os",
        title="switch operating system",
        grammar="cumulus",
        method="nvue_image",
        activation=Activation.IMAGE_REBOOT,
        duration_s=900,
    ),
    ComponentKind(
        name="switch.settings",
        title="settings of a switch",
        method="switch_settings",
        activation=Activation.NONE,
        duration_s=60,
    ),
    ComponentKind(
        name="switch.asic",
        title="switch ASIC firmware",
        grammar="dotted",
        method="with_bundle",  # the operating system's image carries it
        activation=Activation.IMAGE_REBOOT,
    ),
    ComponentKind(
        name="switch.bios",
        title="switch BIOS",
        method="with_bundle",
        activation=Activation.COLD_BOOT,
    ),
)
