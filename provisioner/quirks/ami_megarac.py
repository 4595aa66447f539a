"""AMI MegaRAC, first of all the host BMC of DGX H100 (docs/sources/redfish.md#ami)."""

from __future__ import annotations

from provisioner.quirks.meaning import enabled, switch
from provisioner.quirks.quirk import Quirk

# Only one value of an attribute is in the captured tree, whose registry is not: other values of
# ProcessorHyperThreadingDisable, PackageCState and ApplicationProfile are unknown
_DGX = "captured tree of a DGX H100"
_VIKING_RS = f"libredfish nvidia_viking.rs; {_DGX}"
_MEANINGS = (
    enabled("iommu", "VTdSupport", _VIKING_RS),
    enabled("sr_iov", "SRIOVEnable|SriovSupport", _VIKING_RS),
    switch("relaxed_ordering", "PcieRelaxedOrdering", "Yes", "No", _DGX),
    enabled("http_boot", "Ipv4Http", _VIKING_RS),
    enabled("pxe_boot", "Ipv4Pxe", _VIKING_RS),
    enabled("boot_retry", "NvidiaInfiniteboot", "libredfish nvidia_viking.rs"),
    enabled("tpm", "TpmSupport", _VIKING_RS),
    switch("inband_bmc", "KcsInterfaceDisable", "Allow All", "Deny All", _VIKING_RS),
)

QUIRK = Quirk(
    name="ami_megarac",
    title="AMI MegaRAC (DGX)",
    # source: GIGABYTE, security notice 1762 (a board with AMI's MegaRAC)
    factory_user="admin",
    factory_printed="on the sticker of the board or chassis, by its maker",
    vendor=r"^AMI$|American Megatrends",
    product=r"^AMI Redfish Server",
    oem="Ami",
    expand=False,  # drops required properties
    targets={"hgx.bundle": "FirmwareInventory/HGX_0"},  # accepted, though never listed
    bmc_first="NVIDIA's DGX runbooks: the BMC is updated and reset before the trays",
    force="options",
    password_if_match="any",  # noqa: S106 (a way to send an ETag)
    full_override=True,
    media_login="none",
    # source: captured tree of a DGX H100, EnableRMediaActionInfo: drives are listed only after it
    media_enable="AMIVirtualMedia.EnableRMedia",
    media_enable_body={"RMediaState": "Enable"},
    bmc_reset_types=("ForceRestart", "GracefulRestart"),
    bmc_reset_s=300.0,
    read_timeout_s=180.0,  # a DGX may need this long for its firmware inventory
    lockout_failures=5,
    settings_if_match="any",  # libredfish nvidia_viking.rs
    meanings=_MEANINGS,
)
