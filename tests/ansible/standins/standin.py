"""One program behind every stand-in's name: what it is called as decides what it prints."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

import standin_host
import standin_nic
import standin_nvme
from standin_state import boot, state

TOOLS = {
    "flint": standin_nic.flint,
    "mlxconfig": standin_nic.mlxconfig,
    "mlxfwreset": standin_nic.mlxfwreset,
    "mlxreg": standin_nic.mlxreg,
    "mlnx_qos": standin_nic.mlnx_qos,
    "nvme": standin_nvme.nvme,
    "setpci": standin_nic.setpci,
    "lspci": standin_nic.lspci,
    "netplan": lambda words: None,
    "update-grub": standin_host.update_grub,
    "bfb-install": standin_nic.bfb_install,
    "dpu-release": standin_nic.release,
    "nvidia-smi": standin_host.nvidia_smi,
    "systemctl": standin_host.systemctl,
    "modinfo": standin_host.modinfo,
    "dkms": standin_host.dkms,
    "ofed_info": standin_host.ofed_info,
    "ofed_uninstall.sh": standin_host.ofed_uninstall,
    "dmsd": standin_host.dmsd,
    "dmsc": standin_host.dmsc,
    "boot": lambda _: start(),
}


def start():
    """Power came, or the system started again."""
    boot(cold=os.environ.get("HOST_COLD") == "1")
    with state() as content:
        standin_nvme.boot(content["drives"])


def main():
    """Called as `standin.py NAME WORDS...` by each tool's two-line script."""
    TOOLS[sys.argv[1]](sys.argv[2:])


if __name__ == "__main__":
    main()
