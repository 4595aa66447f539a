"""The in-band half of a simulated site: its hosts answer the plays of docs/in-band.md.

`Inband.run` takes as long as the real play: it sleeps on the simulated time that it is given and
reads the host again afterwards. A host that stopped meanwhile answers `unreachable`, and an
interrupted write has no effect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from provisioner.sim.hardware.clock import SimClock
from provisioner.sim.outputs import (
    host as outputs_drives,
)
from provisioner.sim.outputs import (
    outputs_fabric,
    outputs_gpu,
    outputs_load,
    outputs_nic,
    outputs_system,
)
from provisioner.sim.outputs import (
    outputs_gpu as outputs_attestation,
)
from provisioner.sim.outputs import (
    outputs_load as outputs_burn,
)
from provisioner.sim.outputs import (
    outputs_nic as outputs_runtime,
)
from provisioner.sim.outputs import (
    outputs_system as outputs_baseline,
)
from provisioner.sim.outputs.host import IN_GUEST, HostView, Output, run_in_guest
from provisioner.sim.outputs.outputs_gpu import reset_gpus
from provisioner.sim.outputs.outputs_server import LOOKS, add_echo, strip_echo

Sleep = Callable[[float], Awaitable[None]]  # seconds of simulated time
Result = dict[str, Any]  # status, facts, detail
Tool = Callable[[HostView, str], Output]

# first words of a command -> its tool, and its duration in seconds
TOOLS: tuple[tuple[str, Tool, float], ...] = (
    *LOOKS,
    ("cat /proc/sys/kernel/random/boot_id /run/", outputs_system.print_boot_id_and_files, 0.1),
    ("cat /proc/sys/kernel/random/boot_id", outputs_system.print_boot_id, 0.1),
    ("cat /etc/provisioner-release /etc/os-release", outputs_system.print_system, 0.1),
    ("cat /etc/provisioner-release", outputs_system.print_stamp, 0.1),
    ("lsblk --inverse --list ", outputs_system.print_root_disk, 0.1),
    ("exec 9>>/run/lock/provisioner-tools; ", reset_gpus, 45.0),
    ("u=provisioner; k=", outputs_system.remove_login, 2.0),
    ("tenant_login=; ", outputs_system.make_tenant_login, 2.0),
    ("tenant_user_data=; ", outputs_system.place_user_data, 2.0),
    ("lsblk --json --nodeps --output ", outputs_system.print_lsblk, 0.1),
    ("nvidia-smi ", outputs_gpu.print_nvidia_smi, 1.5),
    ("NVAT_FORMAT=json NVAT_LOG_LEVEL=error nvattest ", outputs_attestation.print_nvattest, 8.0),
    ("dpkg-query -W -f ", outputs_system.print_dpkg_query, 0.2),
    ("mlxfwmanager --query-format xml", outputs_nic.print_mlxfwmanager, 12.0),
    ("mlxconfig -e -j /dev/stdout q", outputs_nic.print_mlxconfig, 4.0),
    ("dmesg --time-format iso", outputs_system.print_dmesg, 0.2),
    ("dcgmi diag -r 4 -j", outputs_load.print_dcgm, 5400.0),
    ("dcgmi diag -r 3 -j", outputs_load.print_dcgm, 1200.0),
    ("dcgmi diag -r memory_bandwidth -j", outputs_load.print_dcgm, 60.0),
    ("dcgmi diag -r 1 -j", outputs_load.print_dcgm, 30.0),
    ("dcgmi diag -r 2 -j", outputs_load.print_dcgm, 150.0),
    ("gpu_burn -tc 900", outputs_burn.print_gpu_burn, 905.0),
    ("gpu_burn -tc ", outputs_burn.print_gpu_burn, 125.0),
    ("i=0; export CUDA_DEVICE_ORDER=PCI_BUS_ID; for p in ", outputs_burn.print_loopback, 100.0),
    ("command -v ib_write_bw; ", outputs_fabric.print_devices, 0.1),
    ("for d in mlx5_", outputs_fabric.print_counters, 0.1),
    ("export PROVISIONER_FABRIC=", outputs_fabric.run_fabric_command, 30.0),
    ("for f in $(grep -lsz '^PROVISIONER_FABRIC=", outputs_fabric.end_processes, 0.1),
    ("fio ", outputs_burn.print_fio, 75.0),
    ("stress-ng ", outputs_burn.print_stress_ng, 121.0),
    ("stream_c", outputs_burn.print_stream, 20.0),
    ("all_gather_perf ", outputs_load.print_nccl, 45.0),
    ("reduce_scatter_perf ", outputs_load.print_nccl, 45.0),
    ("alltoall_perf ", outputs_load.print_nccl, 45.0),
    ("nvbandwidth -j ", outputs_load.print_nvbandwidth, 60.0),
    ("all_reduce_perf ", outputs_load.print_nccl, 45.0),
    ("systemctl is-active ", outputs_system.print_systemctl, 0.1),
    ("lldpctl -f json", outputs_nic.print_lldpctl, 0.2),
)
INSTALL_S = 90.0  # one package set with its kernel modules
DRIVE_S = 8.0  # a download of some megabytes and its commit
CONFIG_S = 6.0  # `mlxconfig set` on one card
RUNTIME_S = 15.0  # the management service starts, sets and reads a hundred values
SSH_S = 3.0  # connect, gather, fork
# kinds that a host has only where somebody pinned them
PINNED_APART = frozenset({"host.driver_packages", "host.doca_ofed", "host.kernel"})
NEEDS_REBOOT = frozenset({"host.driver", "host.doca", "host.kernel"})  # or kernel modules of theirs


class Inband:
    """All hosts of a site by node name."""

    def __init__(self, hosts: Mapping[str, HostView], clock: SimClock, sleep: Sleep) -> None:
        self._hosts = hosts
        self._clock = clock
        self._sleep = sleep
        self._busy: set[str] = set()  # hosts whose package or firmware tools hold their lock
        self.calls = 0
        self.guests: dict[str, tuple[str, ...]] = {}  # node -> program that runs a line in it
        self._plays: dict[str, Callable[[HostView, Mapping[str, Any]], Awaitable[Result]]] = {
            "run_commands": self._run_commands,
            "host_software": self._host_software,
            "nic_firmware": self._nic_firmware,
            "nic_config": self._nic_config,
            "drive_firmware": self._drive_firmware,
            "bluefield_runtime": self._runtime,
            "host_baseline": partial(self._host_sets, outputs_baseline.apply_baseline),
            "check_tools": partial(self._host_sets, outputs_baseline.apply_tools),
            "nic_reset": self._nic_reset,
        }

    async def run(self, play: str, host: str, variables: Mapping[str, Any]) -> Result:
        """Run one play on one host: `status` (ok, failed, unreachable), `facts`, `detail`."""
        self.calls += 1
        view = self._hosts.get(host)
        act = self._plays.get(play)
        if act is None:
            return _failed(f"the playbook {play!r:.60} could not be found")
        if view is None:
            return _unreachable(f"Could not resolve hostname {host!r:.60}")
        await self._pass(view, SSH_S)
        if not view.reachable or "inband_unreachable" in view.machine.faults:
            return _unreachable(f"ssh: connect to host {host} port 22: Connection timed out")
        if view.machine.host.login_removed:
            return _unreachable(f"provisioner@{host}: Permission denied (publickey).")
        return await act(view, variables)

    async def _pass(self, view: HostView, seconds: float) -> float:
        """Wait for simulated seconds and advance the site; return the new time."""
        if seconds > 0:
            await self._sleep(seconds)
        view.now = self._clock.now()
        view.machine.schedule.advance(view.now)
        return view.now

    async def _run_commands(self, view: HostView, variables: Mapping[str, Any]) -> Result:
        listed = variables.get("commands")
        boot = view.machine.host.boot_id
        outputs: dict[str, Any] = {}
        for entry in listed if isinstance(listed, list) else []:
            line = str(entry["command"])
            limit_s = float(entry.get("timeout_s", 60.0))
            view.sent = str(entry.get("sent", ""))
            if line.startswith("shutdown -r"):
                view.machine.restart_host(view.now)
                return _unreachable("the connection was closed by the host")
            tool, takes_s = self._probe_or_tool(line)
            if "tools_hang" in view.machine.faults and takes_s > 1.0:
                takes_s = limit_s + 1.0
            await self._pass(view, min(takes_s, limit_s))
            if view.machine.host.boot_id != boot:
                return _unreachable("the connection was closed by the host")
            if view.machine.name in self.guests and line.startswith(IN_GUEST):
                output = await run_in_guest(self.guests[view.machine.name], boot or "", line)
            else:
                output = Output(None, "", "") if takes_s > limit_s else tool(view, line)
            outputs[str(entry["name"])] = {
                "rc": output.rc,
                "stdout": output.stdout,
                "stderr": output.stderr,
            }
        return _ok({"commands": outputs})

    async def _host_software(self, view: HostView, variables: Mapping[str, Any]) -> Result:
        requested = {str(k): str(v) for k, v in dict(variables.get("packages") or {}).items()}
        packages = view.machine.host.packages
        if unknown := [k for k in requested if k not in packages and k not in PINNED_APART]:
            return _failed(f"No package matching '{unknown[0]}' is available")
        older = packages.get("host.doca", "")
        allowed = bool(variables.get("ofed_removal_allowed"))
        if "host.doca" in requested and older.startswith("MLNX_OFED_LINUX-") and not allowed:
            return _failed(f"{older} is installed; DOCA-Host needs it removed")
        changes = {k: v for k, v in requested.items() if packages.get(k) != v}
        if "package_install_fails" in view.machine.faults and changes:
            return _failed("E: Sub-process /usr/bin/dpkg returned an error code (1)")

        def install(kind: str, now: float) -> None:
            packages[kind] = changes[kind]
            view.machine.log_event(now, "installed", f"host/{kind}", changes[kind])

        outcome = await self._write(view, [(f"host/{k}", INSTALL_S, k) for k in changes], install)
        if outcome is not None:
            return outcome
        loaded = view.machine.host.loaded
        pending = any(k in NEEDS_REBOOT and packages[k] != loaded.get(k) for k in packages)
        installed = {k: packages[k] for k in requested}
        return _ok({"installed": installed, "reboot_required": pending})

    async def _nic_firmware(self, view: HostView, variables: Mapping[str, Any]) -> Result:
        version = str(variables.get("version", ""))
        cards = self._cards(view, variables)
        if isinstance(cards, str):
            return _failed(cards)
        items = {pci: view.machine.firmware[slot, "DPU_NIC"] for pci, slot in cards.items()}
        if "nic_burn_fails" in view.machine.faults:
            return _failed("-E- Burning FS4 image failed: Rejected authentication")
        writes = [
            (f"{items[pci].bmc}/DPU_NIC", view.machine.durations.nic_burn_s, pci)
            for pci in items
            if variables.get("again")
            or version
            not in (items[pci].staged, items[pci].running if not items[pci].staged else "")
        ]

        def burn(pci: str, now: float) -> None:
            view.machine.log_event(now, "push", f"{items[pci].bmc}/DPU_NIC", version)
            view.machine.stage_version(items[pci], version, now)

        outcome = await self._write(view, writes, burn)
        if outcome is not None:
            return outcome
        return _ok({"burned": {pci: i.staged or i.running for pci, i in items.items()}})

    async def _drive_firmware(self, view: HostView, variables: Mapping[str, Any]) -> Result:
        drives = outputs_drives.select_drives(view, variables)
        if isinstance(drives, str):
            return _failed(drives)
        version = str(variables["version"])

        def write(serial: str, now: float) -> None:
            drives[serial].write_firmware(version)
            view.machine.log_event(now, "push", f"drive/{serial}", version)

        old = [s for s, d in drives.items() if outputs_drives.find_following(d) != version]
        writes = [(f"drive/{serial}", DRIVE_S, serial) for serial in old]
        outcome = await self._write(view, writes, write)
        if outcome is not None:
            return outcome
        written = {s: outputs_drives.find_following(d) for s, d in drives.items()}
        return _ok({"written": written})

    async def _nic_config(self, view: HostView, variables: Mapping[str, Any]) -> Result:
        requested = {str(k): str(v) for k, v in dict(variables.get("parameters") or {}).items()}
        cards = self._cards(view, variables)
        if isinstance(cards, str):
            return _failed(cards)
        following = {p: view.machine.bluefields[slot].nv_config_next for p, slot in cards.items()}
        writes = [
            (f"{cards[p]}/nv_config", CONFIG_S, p)
            for p, values in following.items()
            if any(values.get(k) != v for k, v in requested.items())
        ]

        def configure(pci: str, now: float) -> None:
            following[pci].update(requested)
            view.machine.log_event(now, "nv_config", f"{cards[pci]}/nv_config", str(len(requested)))

        outcome = await self._write(view, writes, configure)
        if outcome is not None:
            return outcome
        return _ok({"next_boot": {p: {k: following[p][k] for k in requested} for p in cards}})

    def _probe_or_tool(self, line: str) -> tuple[Tool, float]:
        """The tool of a command line; only this module knows whether a play's tools are running."""
        if not line.startswith("l=/run/lock/provisioner-tools"):
            return _tool(line)

        def probe(view: HostView, _command: str) -> Output:
            held = "/run/lock/provisioner-tools is held\n" * (view.machine.name in self._busy)
            return Output(0, f"{held}looked\n")

        return probe, 0.1

    async def _runtime(self, view: HostView, variables: Mapping[str, Any]) -> Result:
        cards = self._cards(view, variables)
        if isinstance(cards, str):
            return _failed(cards)
        boot = view.machine.host.boot_id
        await self._pass(view, RUNTIME_S)
        if view.machine.host.boot_id != boot:
            return _unreachable("the connection was closed by the host")
        return _ok(outputs_runtime.apply_settings(view, variables, cards))

    async def _host_sets(
        self,
        apply: Callable[[HostView, Mapping[str, Any]], dict[str, Any]],
        view: HostView,
        variables: Mapping[str, Any],
    ) -> Result:
        """One of the plays that set the pins of a profile by name."""
        facts: dict[str, Any] = {}

        def finish(_key: str, _now: float) -> None:
            facts.update(apply(view, variables))

        outcome = await self._write(view, [("host/settings", INSTALL_S, "settings")], finish)
        return outcome if outcome is not None else _ok(facts)

    async def _nic_reset(self, view: HostView, variables: Mapping[str, Any]) -> Result:
        cards = self._cards(view, variables)
        if isinstance(cards, str):
            return _failed(cards)
        await self._pass(view, RUNTIME_S)
        for slot in cards.values():
            view.machine.nic_reset(slot, view.now)
        items = {pci: view.machine.firmware[slot, "DPU_NIC"] for pci, slot in cards.items()}
        return _ok({"running": {p: i.running for p, i in items.items()}, "waiting": []})

    def _cards(self, view: HostView, variables: Mapping[str, Any]) -> dict[str, str] | str:
        """PCI address as requested -> card slot, or an error text."""
        listed = variables.get("devices")
        slots = {card.pci: card.slot for card in view.cards}
        addresses = [str(d) for d in listed] if isinstance(listed, list) else []
        if missing := [d for d in addresses if d.lower() not in slots]:
            return f"-E- Failed to open device {missing[0]}: No such device"
        return {d: slots[d.lower()] for d in addresses}

    async def _write(
        self,
        view: HostView,
        writes: list[tuple[str, float, str]],
        finish: Callable[[str, float], None],
    ) -> Result | None:
        """Write (subject, seconds, key) one after the other; None if all are done."""
        if not writes:
            return None
        machine = view.machine
        name = view.machine.name
        if name in self._busy:
            return _failed(
                "Could not get lock /var/lib/dpkg/lock-frontend: held by another process"
            )
        self._busy.add(name)
        boot = machine.host.boot_id
        try:
            for subject, seconds, key in writes:
                machine.log_event(view.now, "write_start", subject)
                await self._pass(view, machine.add_jitter(seconds))
                interrupted = machine.host.boot_id != boot
                machine.log_event(
                    view.now, "write_end", subject, "interrupted" if interrupted else ""
                )
                if interrupted:
                    return _unreachable("the connection was closed by the host")
                finish(key, view.now)
        finally:
            self._busy.discard(name)
        return None


def _tool(line: str) -> tuple[Tool, float]:
    for prefix, tool, seconds in TOOLS:
        if strip_echo(line).startswith(prefix):
            return add_echo(tool, line), seconds
    return _unknown, 0.0


def _unknown(_view: HostView, command: str) -> Output:
    return Output(127, "", f"/bin/sh: 1: {(command.split() or [''])[0]:.60}: not found\n")


def _ok(facts: Mapping[str, Any]) -> Result:
    return {"status": "ok", "facts": dict(facts), "detail": ""}


def _failed(detail: str) -> Result:
    return {"status": "failed", "facts": {}, "detail": detail}


def _unreachable(detail: str) -> Result:
    return {"status": "unreachable", "facts": {}, "detail": detail}
