"""The commands of the agent in a simulated ramdisk, their effects and how long they take.

`COMMANDS` maps a command to the function that runs it. Each returns its seconds and its effect at
the end: a result, or `Failed`. A command that is interrupted before its end is half done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from provisioner.sim.agent.agent_images import deploy_step, prepare_image
from provisioner.sim.agent.agent_steps import STEPS
from provisioner.sim.agent.agent_work import Act, Failed, Json, Ramdisk, Work
from provisioner.sim.hardware.machine import Machine

VERSIONS = {"ProvisionerHardwareManager": "1", "generic_hardware_manager": "1.2"}


def _instant(finish: Callable[[float], Any], takes_s: float = 0.5) -> Work:
    return Work(takes_s, finish, sync=True)


def get_hardware_info(ramdisk: Ramdisk, _params: Mapping[str, Any]) -> Work:
    """poll.get_hardware_info."""
    return _instant(lambda _now: list_inventory(ramdisk.machine), 3.0)


def list_inventory(machine: Machine) -> Json:
    """hardware.py, list_hardware_info."""
    host = machine.host
    cards = [d for d in machine.devices.values() if d.mac and d.present]
    nics = [
        {
            "name": f"eth{n}",
            "mac_address": d.mac,
            "has_carrier": not d.traits.get("link_down"),
            "ipv4_address": None,
            "ipv6_address": None,
            "lldp": None,
            "vendor": "0x15b3",
            "product": "0xa2dc",
            "client_id": None,
            "biosdevname": None,
            "speed_mbps": 400000,
            "pci_address": d.pci,
            "driver": "mlx5_core",
        }
        for n, d in enumerate(cards)
    ]
    disks = [d for d in machine.disks.values() if d.device.present]
    memory = sum(d.kind == "memory" and d.present for d in machine.devices.values()) * 64
    return {
        "interfaces": nics,
        "cpu": {
            "model_name": "simulated",
            "frequency": 2000,
            "count": 224,
            "architecture": "x86_64",
            "flags": [],
            "socket_count": 2,
        },
        "disks": [d.list_block_device() for d in disks],
        "memory": {"total": memory << 30, "physical_mb": memory << 10},
        "bmc_address": None,
        "bmc_v6address": None,
        "system_vendor": {
            "product_name": "simulated",
            "serial_number": host.serial,
            "manufacturer": "simulated",
            "firmware": None,
        },
        "boot": {"current_boot_mode": "uefi", "pxe_interface": None},
        "hostname": "ramdisk",
    }


def get_clean_steps(ramdisk: Ramdisk, params: Mapping[str, Any]) -> Work:
    """clean.get_clean_steps."""
    ramdisk.node = dict(params.get("node") or {})
    steps = [
        {
            "step": name,
            "priority": 0,
            "interface": "deploy",
            "reboot_requested": False,
            "abortable": True,
            "argsinfo": {},
        }
        for name in STEPS
    ]
    listed = {"ProvisionerHardwareManager": steps}
    return _instant(
        lambda _now: {"clean_steps": listed, "hardware_manager_version": dict(VERSIONS)}
    )


def execute_clean_step(ramdisk: Ramdisk, params: Mapping[str, Any]) -> Work:
    """clean.execute_clean_step."""
    step = params.get("step")
    if not isinstance(step, dict) or "step" not in step:
        raise Failed("CommandExecutionError", "Command execution failed", "no step")
    ramdisk.node = dict(params.get("node") or {})
    act = STEPS.get(str(step["step"]))
    if act is None:
        details = f"Could not find method: {step['step']}"
        message = "No HardwareManager found to handle method"
        raise Failed("HardwareManagerMethodNotFound", message, details)
    work = act(ramdisk, step.get("args") or {})

    def finish(now: float) -> Json:
        return {"clean_result": work.finish(now), "clean_step": step}

    return work._replace(finish=finish, sync=False)


def sync(_ramdisk: Ramdisk, _params: Mapping[str, Any]) -> Work:
    """standby.sync."""
    return _instant(lambda _now: None, 2.0)


def power_off(ramdisk: Ramdisk, _params: Mapping[str, Any]) -> Work:
    """standby.power_off."""
    return Work(2.0, lambda now: ramdisk.machine.power_off(now, graceful=True))


def run_image(ramdisk: Ramdisk, _params: Mapping[str, Any]) -> Work:
    """standby.run_image: a reboot."""
    return Work(2.0, ramdisk.machine.restart_host)


COMMANDS: dict[str, Act] = {
    "poll.get_hardware_info": get_hardware_info,
    "clean.get_clean_steps": get_clean_steps,
    "clean.execute_clean_step": execute_clean_step,
    "deploy.execute_deploy_step": deploy_step,
    "standby.prepare_image": prepare_image,
    "standby.sync": sync,
    "standby.power_off": power_off,
    "standby.run_image": run_image,
}
