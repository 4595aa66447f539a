"""The real ironic-python-agent as a process that can do no harm: its disks are plain files.

Started by `enter.sh` as nobody, in namespaces without any block device. Only `ScratchHardware` is
loaded (the agent's own manager would look for disks, modules and a watchdog), every external
command but `ip route get` is denied, and switching the power ends the process. Everything else,
its API, its commands, its image writer and its TLS, is the agent's own.
"""

# ruff: noqa: E402 (nothing of the agent is imported before it is sure what we are)

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

STATE = Path("/run/state")
OURS = argparse.ArgumentParser()
OURS.add_argument("--mac", required=True)
OURS.add_argument("--disks", type=int, required=True)
OURS.add_argument("--chunk-s", type=float, default=0.0)
ours, rest = OURS.parse_known_args()
DISKS = [str(STATE / f"disk{n}") for n in range(ours.disks)]

assert os.geteuid() != 0, "never as root: the agent erases disks"
assert all(Path(disk).is_file() for disk in DISKS)

from ironic_python_agent import utils

utils.copy_config_from_vmedia = lambda: None  # it would mount virtual media
utils.get_agent_params = dict  # it would read this machine's kernel command line

from ironic_python_agent import agent, disk_utils, errors, hardware, tls_utils
from ironic_python_agent.cmd import agent as command
from ironic_python_agent.extensions import standby
from oslo_concurrency import processutils
from scratch_writing import WritingHardware, note, prepare

truly_execute = processutils.execute


def execute(*words: Any, **_options: Any) -> Any:
    if words[:3] == ("ip", "route", "get"):
        return truly_execute(*words)
    with (STATE / "denied").open("a") as file:
        file.write(json.dumps([str(w) for w in words]) + "\n")
    raise processutils.ProcessExecutionError(cmd=" ".join(map(str, words)), exit_code=126)


def end(_self: object, what: str = "lockdown") -> None:
    (STATE / "ended").write_text(what)
    threading.Timer(0.3, lambda: os._exit(0)).start()  # after the answer has left


utils.execute = processutils.execute = execute
utils.sync_clock = lambda *_args, **_options: None
disk_utils.partprobe = lambda *_args, **_options: None
disk_utils.list_partitions = lambda _device: [{"number": 1}]
disk_utils.fix_gpt_partition = disk_utils.block_uuid = lambda *_args, **_options: None
disk_utils.get_disk_identifier = lambda _device: "0xdeadbeef"
standby.StandbyExtension._run_shutdown_command = end
agent.IronicPythonAgent._lockdown_system = end


class ScratchHardware(WritingHardware):
    """Knows one interface and some files."""

    HARDWARE_MANAGER_NAME, HARDWARE_MANAGER_VERSION = "ScratchHardware", "1"

    def evaluate_hardware_support(self) -> int:
        return hardware.HardwareSupport.SERVICE_PROVIDER

    def list_network_interfaces(self) -> list[Any]:
        return [hardware.NetworkInterface("eth0", ours.mac, has_carrier=True)]

    def get_cpus(self) -> Any:
        return hardware.CPU("scratch", 2000, 2, "x86_64", [])

    def get_memory(self) -> Any:
        return hardware.Memory(8 << 30, 8192)

    def list_block_devices(self, **_options: Any) -> list[Any]:
        return [
            hardware.BlockDevice(d, "scratch", Path(d).stat().st_size, False, serial=f"SCRATCH{n}")
            for n, d in enumerate(DISKS)
        ]

    def get_os_install_device(self, permit_refresh: bool = False) -> str:
        """As the generic manager: by hints in the node that a command named, never by guessing."""
        node = hardware.get_cached_node() or {}
        if hints := node.get("properties", {}).get("root_device"):
            return self.by_hints(hints)
        if permit_refresh and not node.get("instance_info", {}).get("root_device"):
            node = hardware.update_cached_node() or {}
        serial = node.get("instance_info", {}).get("root_device", {}).get("serial")
        for number, disk in enumerate(DISKS):
            if serial == f"SCRATCH{number}":
                return disk
        raise errors.DeviceNotFound(f"no disk has the serial {serial}")

    def get_bmc_address(self) -> str:
        return "192.0.2.1"

    def get_bmc_v6address(self) -> str:
        return "::/0"

    def get_bmc_mac(self) -> str:
        raise errors.IncompatibleHardwareMethodError

    def get_system_vendor_info(self) -> Any:
        return hardware.SystemVendorInfo("scratch", "SCRATCH", "Scratch", None)

    def get_boot_info(self) -> Any:
        return hardware.BootInfo("uefi", None)

    def generate_tls_certificate(self, ip_address: str) -> Any:
        return tls_utils.generate_tls_certificate(ip_address)

    def full_sync(self) -> None:
        return None

    def get_clean_steps(self, _node: Any, _ports: Any) -> list[dict[str, Any]]:
        same = {"priority": 0, "interface": "deploy", "reboot_requested": False}
        names = ("erase_devices", "count", "fail", "provisioner_disks", "provisioner_read_disk",
                 "write_image")  # fmt: skip
        return [{"step": name, **same} for name in names]

    get_deploy_steps = get_service_steps = get_clean_steps

    def erase_devices(self, _node: Any, _ports: Any) -> dict[str, str]:
        for disk in DISKS:
            size = Path(disk).stat().st_size
            with Path(disk).open("r+b") as file:
                file.write(bytes(size))
        return dict.fromkeys(DISKS, "zeroed")

    def count(self, _node: Any, _ports: Any, seconds: float = 0.0) -> dict[str, int]:
        """Does something that may be done once only, and takes its time."""
        with (STATE / "counted").open("a") as file:
            file.write("once\n")
        time.sleep(seconds)
        return {"counted": len((STATE / "counted").read_text().split())}

    def fail(self, _node: Any, _ports: Any) -> None:
        raise errors.CleaningError("the disk said \x1b[31mno\x1b[0m")


MANAGER = {"name": "ScratchHardware", "manager": ScratchHardware(), "support": 3}
hardware._global_managers = [MANAGER]
prepare(ours.chunk_s)
note("boot")
sys.argv = ["ironic-python-agent", *rest]
command.run()
