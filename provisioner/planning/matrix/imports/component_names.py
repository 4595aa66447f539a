"""Component kinds by the names that makers' documents use for them.

Only names whose meaning a source gives are here; any other stays unclassified until a person maps
it. NIC names are checked against the version: NVIDIA's table for GB300 writes "CX7" beside
40.47.1026, which is ConnectX-8 firmware (docs.nvidia.com/dgx/dgxgb200-fw-update-guide).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from provisioner import components
from provisioner.components.kind import UNCLASSIFIED, Item

# source: github.com/NVIDIA/fwpkg_unpack, README, set names of HGX-H100x8_0002_230517.3.0
HGX_PARTS = {
    "erot": "hgx.erot",
    "hmc": "hgx.bmc",
    "fpga": "hgx.fpga",
    "gpu": "hgx.gpu",
    "nvswitch": "hgx.nvswitch",
    "pcieswitch": "hgx.pcieswitch",
    "pcieretimer": "hgx.retimer",
}
# source: docs.nvidia.com/dgx/dgxgb200-fw-update-guide, tables of the compute tray; "SBIOS" and
# "SMR" are left out: it is not stated which item of the inventory they are
_DOCUMENT_NAMES = {
    "hmc": "hgx.bmc",
    "hmc erot": "hgx.erot",
    "hmc cpld": "hgx.cpld",
    "gpu": "hgx.gpu",
    "bmc": "host.bmc",
    "bmc erot": "host.erot",
    # source: docs.nvidia.com/doca/archive/2-9-3/General+Support
    "bluefield-3 nic firmware": "bluefield.nic",
    "bluefield-3": "bluefield.nic",
    "bf3": "bluefield.nic",
    "bluefield-3 erot (glacier)": "bluefield.erot",
    "bmc firmware": "bluefield.bmc",
    "atf": "bluefield.atf",
    "uefi": "bluefield.uefi",
    "bsp": "bluefield.bsp",
    "connectx-7": "nic.cx7",
    "cx7": "nic.cx7",
    "connectx-8": "nic.cx8",
    "cx8": "nic.cx8",
    # source: docs.nvidia.com/dgx/dgxgb300nvl72-release-notes/package-contents.html
    "gpu driver": "host.driver",
    "doca_host": "host.doca",
    "bf3_bfb": "bluefield.bundle",
    # source: github.com/Mellanox/nic-configuration-operator, GetFWVersionsFromBFB
    "bf3_nic_fw": "bluefield.nic",
}
# firmware trains of NICs: hardware facts of DOCA's General Support pages
_NIC_TRAINS = {"28": "nic.cx7", "40": "nic.cx8", "32": "bluefield.nic"}
_NIC_KINDS = frozenset({"nic.cx7", "nic.cx8", "bluefield.nic", "supernic.nic"})
# source: PCI Ids in hardware facts 4.6 and pci-ids; a BlueField-3 is bluefield.nic or supernic.nic
PCI_DEVICES = {0x1021: "nic.cx7", 0x1023: "nic.cx8"}


def find_kind(name: str, version: str, maps: Mapping[str, str]) -> str:
    """Return the component kind of a name, "" if none is certain. `maps` are a person's choices."""
    if name in maps:
        return maps[name]
    if name in components.ALL:
        return name
    kind = _DOCUMENT_NAMES.get(name.lower(), "")
    if not kind:
        classified, _, _ = components.classify(Item(id=name, version=version), "")
        kind = "" if classified == UNCLASSIFIED else classified
    return check_train(kind, version)


def check_train(kind: str, version: str) -> str:
    """Return the kind of NIC that a firmware train is for, whatever the name of the row says."""
    train = re.match(r"(\d\d)\.\d", version)
    if kind in _NIC_KINDS and train:
        actual = _NIC_TRAINS.get(train[1], "")
        return kind if actual == "bluefield.nic" and kind == "supernic.nic" else actual
    return kind
