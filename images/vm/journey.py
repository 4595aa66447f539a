"""The stages of `make vm-test`, in the order of a node's own journey, each with its time.

The Redfish client, the agent API with its token and certificates, the file server and the commands
are the daemon's own; only the machine is emulated.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh

from images.manifest import Manifest
from images.vm import disk
from images.vm.lab import (
    AGENT_PORT,
    DISK_SERIAL,
    FILE_PORT,
    GATEWAY,
    MAC,
    NAMESPACES,
    NVME_SERIAL,
    TENANT_DATA,
    Lab,
    Login,
)
from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.discovery import Probe, probe
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.daemon.agents import AgentDoor, serve_agents
from provisioner.daemon.artifacts import serve_artifacts
from provisioner.daemon.data import open_data
from provisioner.execution.steps.agent_steps import DEPLOY
from provisioner.model.inventory import Power
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker
from provisioner.planning.erasure import deployment, disk_answers
from provisioner.ports import AgentAddress, AgentResult, Agents, BmcAddress, Secret
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings

NODE = "vm-1"
MARKER = "PROVISIONER-BOOTED-FROM-DISK"
BOOT_LIMIT_S = 2400.0  # under emulation on a starved machine; an idle one needs a tenth
STEP_LIMIT_S = 900.0
DISK_BOOT_LIMIT_S = 300.0


class StageFailed(Exception):
    """Raised when a stage fails; the message contains the observation."""


@dataclass
class StageTimes:
    """Seconds of each stage: wall-clock time and QEMU's CPU time."""

    lab: Lab
    stages: dict[str, dict[str, float]] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    cpu: float = 0.0

    def record_stage(self, stage: str, note: str = "") -> None:
        """Record the end of a stage, and print it at once for a waiting person."""
        now, cpu = time.monotonic(), self.lab.cpu_s()
        used = max(0.0, cpu - self.cpu)
        self.stages[stage] = {"wall_s": round(now - self.began, 1), "cpu_s": round(used, 1)}
        print(f"{now - self.began:8.1f} s {used:8.1f} CPU s  {stage}  {note}", flush=True)  # noqa: T201
        self.began, self.cpu = now, cpu


@dataclass
class Bench:
    """The objects that the stages use."""

    lab: Lab
    times: StageTimes
    host: Redfish
    agents: Agents
    iso_url: str
    os_url: str
    os_image: Path
    key: asyncssh.SSHKey


async def run(
    lab: Lab,
    login: Login,
    site_iso: Path,
    built: Manifest,
    key: asyncssh.SSHKey,
    data: Path,
    times: StageTimes,
) -> None:
    """Run every stage. Raises StageFailed at the first that fails."""
    clock, settings = WallClock(), Settings(agent_lookup_trusts="first")
    os_image = site_iso.with_name("os.img")
    disk.make_disk(os_image, MARKER)
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(open_data(data, clock.now()))
        await opened.store.nodes.add(Node(id=NODE, kind=NodeKind.HOST))
        door = AgentDoor(GATEWAY, AGENT_PORT)
        served = await stack.enter_async_context(
            serve_agents(door, data, opened.store, opened.vault, clock, settings)
        )
        files = await stack.enter_async_context(
            serve_artifacts(site_iso.parent, GATEWAY, FILE_PORT, settings)
        )
        for file, sha256 in ((site_iso, built.files["iso"].sha256), (os_image, _sha256(os_image))):
            require_success(await files.resolve(file.name, sha256))
        transport = RedfishTransport()
        stack.push_async_callback(transport.close)
        host = await _connect(transport, login)
        bench = Bench(
            lab,
            times,
            host,
            served.agents,
            files.pull_url(site_iso.name),
            files.pull_url(os_image.name),
            os_image,
            key,
        )
        times.record_stage("laboratory", "libvirt, network, machine, Redfish service, agent API")
        agent = await _boot_ramdisk(bench)
        await _read_inventory(bench, agent)
        await _erase(bench, agent)
        await _deploy(bench, agent)
        await _power_off(bench, agent)
        await _boot_disk(bench)


def read_authority(data: Path) -> str:
    """Return the daemon's CA, made as `provisioner serve` makes it."""
    from provisioner.adapters.agent.tls import open_authority
    from provisioner.runtime.whole_files import write_private
    from provisioner.store.database.data_directory import SealedFile
    from provisioner.store.repositories.signing_keys import MasterKey, read_key_file

    data.mkdir(mode=0o700, exist_ok=True)
    file = data / "master.key"
    if not file.exists():
        write_private(file, MasterKey.generate().text().encode())
    return open_authority(data, SealedFile(data, read_key_file(file))).ca_pem()


async def _connect(transport: RedfishTransport, login: Login) -> Redfish:
    for _ in range(300):
        answer = await probe(transport, login.url)
        if isinstance(answer, Probe):
            break
        await asyncio.sleep(0.2)
    else:
        raise StageFailed(f"the Redfish service does not answer: {answer}")
    address = BmcAddress(login.url, login.username, Secret(login.password), answer.fingerprint)
    return Redfish(transport, address, quirks.ALL.get(answer.vendor, quirks.UNKNOWN))


async def _boot_ramdisk(bench: Bench) -> AgentAddress:
    """Boot by virtual media, override and power on, until the agent's lookup and heartbeat."""
    host = bench.host
    require(await host.power() is Power.OFF, "the machine is off at first")
    await bench.agents.expect(NODE, [MAC], BOOT_LIMIT_S)
    require_success(await host.insert_media(bench.iso_url))
    require(await host.media_inserted(bench.iso_url), "the ISO is inserted")
    bench.times.record_stage("virtual media inserted")
    require_success(await host.boot_override("Cd"))
    require_success(await host.reset_system("On"))
    require(await host.power() is Power.ON, "the machine is on")
    agent = await bench.agents.wait(NODE, BOOT_LIMIT_S)
    if agent is None:
        raise StageFailed(f"no agent registered:\n{bench.lab.read_console()[-2000:]}")
    require(agent.url.startswith("https://"), "the agent serves TLS")
    bench.times.record_stage("ramdisk booted, agent phoned home", agent.url)
    return agent


async def _read_inventory(bench: Bench, agent: AgentAddress) -> None:
    """Read the agent's and our own inventory, and log in by SSH with the reported host key."""
    info = await run_command(bench, agent, "poll.get_hardware_info", {})
    macs = [i.get("mac_address") for i in info.get("interfaces", [])]
    require(MAC in macs, f"the agent sees its network port: {macs}")
    bench.times.record_stage("agent inventory", f"{len(info.get('disks', []))} disks")
    own = await run_step(bench, agent, "provisioner_inventory")
    require(any(p["mac"] == MAC for p in own["ports"]), "our inventory has the port")
    require(any(p["kind"] == "nvme" for p in own["pci"]), "our inventory has the NVMe controller")
    listed = {d["serial"]: d for d in (await run_step(bench, agent, "provisioner_disks"))["disks"]}
    require({DISK_SERIAL, NVME_SERIAL} == set(listed), f"both disks, no more: {sorted(listed)}")
    checks = await run_step(bench, agent, "provisioner_checks", expected={"nvme": 1})
    verdicts = {c["check"]: c["verdict"] for c in checks["checks"]}
    require(verdicts["devices"] == "pass", f"the device check passes: {verdicts}")
    bench.times.record_stage("our inventory and checks", f"image {own['image']}; {verdicts}")
    release = await _login(bench, agent, own["ssh_host_key"])
    bench.times.record_stage("SSH by the reported host key", release)


async def _login(bench: Bench, agent: AgentAddress, host_key: str) -> str:
    """Log in as Ansible would, and verify that the agent's token is in no log."""
    address = agent.url.split("//")[1].split(":")[0]
    known_hosts = asyncssh.import_known_hosts(f"{address} {host_key}\n")
    async with asyncssh.connect(
        address,
        username="root",
        client_keys=[bench.key],
        known_hosts=known_hosts,
        login_timeout=300,
        connect_timeout=120,
    ) as connection:
        log = await connection.run("journalctl --no-pager -o cat", check=True, timeout=300)
        text = str(log.stdout)
        require("agent_token=***" in text, "the agent's requests are in its log, the token hidden")
        require(agent.token.reveal() not in text, "the token is in no log")
        release = await connection.run("python3 --version; uname -r", check=True, timeout=120)
        return " ".join(str(release.stdout).split())


async def _erase(bench: Bench, agent: AgentAddress) -> None:
    """Erase metadata by the agent and the NVMe disk by our step; another serial is left alone."""
    await run_step(bench, agent, "erase_devices_metadata")
    bench.times.record_stage("metadata erased")
    listed = {d["serial"]: d for d in (await run_step(bench, agent, "provisioner_disks"))["disks"]}
    drive = listed[NVME_SERIAL]
    name = drive["name"]
    spaces = (drive["nvme"]["namespaces"], drive["nvme"]["attached"])
    require(
        spaces == (list(NAMESPACES), list(NAMESPACES[:-1])),
        f"all namespaces are listed, the detached one too: {spaces}",
    )
    wrong = await run_step(
        bench,
        agent,
        "provisioner_erase_device",
        device=name,
        serial="ANOTHER",
        by="nvme_format_user_data",
    )
    require(wrong["result"] == "not_done", f"another serial is left alone: {wrong}")
    for method in ("nvme_sanitize_crypto", "nvme_format_user_data", "overwrite"):
        record = await run_step(
            bench, agent, "provisioner_erase_device", device=name, serial=NVME_SERIAL, by=method
        )
        if record["result"] == "done":
            break
    require(record["result"] == "done", f"the NVMe disk is erased: {record}")
    read = await run_step(
        bench, agent, "provisioner_read_disk", serial=NVME_SERIAL, offset=0, bytes=1 << 20
    )
    zeroes = hashlib.sha256(bytes(1 << 20)).hexdigest()
    require(read["sha256"] == zeroes, "its first megabyte reads as zeroes")
    for number in NAMESPACES:  # as seen from outside of the machine
        left = TENANT_DATA in bench.lab.namespace(number).read_bytes()
        require(not left, f"namespace {number} holds nothing of the tenant")
    bench.times.record_stage("NVMe disk erased", f"{record['method']}: {record['detail']}")


async def _deploy(bench: Bench, agent: AgentAddress) -> None:
    """Verify that a wrong digest is refused, then write the image and read it back."""
    bad = await _write(bench, agent, "0" * 64)
    require(bad.status == "FAILED", f"a wrong digest is refused: {bad.status}")
    written = await _write(bench, agent, _sha256(bench.os_image))
    require(written.status == "SUCCEEDED", f"the image is written: {written.error}")
    size = bench.os_image.stat().st_size
    bench.times.record_stage(
        "image written", f"{size >> 20} MiB; a wrong digest was refused before"
    )
    offset, length = deployment.read_range(size)
    read = await run_step(
        bench, agent, "provisioner_read_disk", serial=DISK_SERIAL, offset=offset, bytes=length
    )
    expected = bench.os_image.read_bytes()[offset : offset + length]
    same = read["sha256"] == hashlib.sha256(expected).hexdigest()
    require(same, f"the disk has the image's {length} bytes from {offset}")
    bench.times.record_stage("image read back")
    cleared = await run_step(bench, agent, "provisioner_clear_boot_entries")
    require(cleared["result"] == "done", f"boot entries of disks are removed: {cleared}")
    chosen = await run_step(bench, agent, "provisioner_choose_boot_disk", serial=DISK_SERIAL)
    require(chosen["result"] == "done", f"the written disk is the first boot entry: {chosen}")
    bench.times.record_stage("boot entry of the written disk", chosen["detail"])


async def _write(bench: Bench, agent: AgentAddress, sha256: str) -> AgentResult:
    """Send exactly the command that the daemon sends (planning/erasure/deployment.py)."""
    answer = await run_step(bench, agent, "provisioner_disks")
    listed = disk_answers.parse_disks(answer, NODE)
    if isinstance(listed, Blocker):
        raise StageFailed(listed.detail)
    (target,) = (d for d in listed if d.serial == DISK_SERIAL)
    size = bench.os_image.stat().st_size
    image = deployment.ImageFile(
        name=bench.os_image.name, url=bench.os_url, size=size, sha256=sha256, checked=sha256
    )
    parameters = deployment.write_command(_node(), target, image, "")
    return await bench.agents.command(agent, DEPLOY, parameters, STEP_LIMIT_S)


async def _power_off(bench: Bench, agent: AgentAddress) -> None:
    await run_command(bench, agent, "standby.sync", {})
    await bench.agents.command(agent, "standby.power_off", {}, STEP_LIMIT_S)
    for _ in range(600):
        if await bench.host.power() is Power.OFF:
            break
        await asyncio.sleep(1)
    else:
        raise StageFailed("the machine does not go off")
    await bench.agents.dismiss(NODE)
    require(await bench.agents.present(NODE) is None, "a dismissed agent is not there")
    require_success(await bench.host.eject_media())
    bench.times.record_stage("powered off, media ejected")


async def _boot_disk(bench: Bench) -> None:
    require_success(await bench.host.boot_override("Hdd", once=False))
    require_success(await bench.host.reset_system("On"))
    for _ in range(int(DISK_BOOT_LIMIT_S)):
        if MARKER in bench.lab.read_console():
            break
        await asyncio.sleep(1)
    else:
        raise StageFailed(
            f"the written system printed no marker:\n{bench.lab.read_console()[-800:]}"
        )
    bench.times.record_stage("booted from disk", MARKER)
    require_success(await bench.host.reset_system("ForceOff"))


def _node() -> dict[str, Any]:
    return {
        "uuid": "00000000-0000-0000-0000-000000000001",
        "properties": {},
        "instance_info": {},
        "driver_internal_info": {},
    }


async def run_step(bench: Bench, agent: AgentAddress, name: str, **arguments: Any) -> Any:
    """Run a clean step and return its answer."""
    request = {"step": name, "interface": "deploy", "priority": 0, "args": arguments}
    parameters = {"step": request, "node": _node(), "ports": []}
    answer = await run_command(bench, agent, "clean.execute_clean_step", parameters)
    return answer["clean_result"]


async def run_command(
    bench: Bench, agent: AgentAddress, name: str, parameters: Mapping[str, Any]
) -> Any:
    """Return the answer of an agent command. Raises StageFailed if it did not succeed."""
    answer = await bench.agents.command(agent, name, parameters, STEP_LIMIT_S)
    if answer.status != "SUCCEEDED":
        raise StageFailed(f"{name} {parameters.get('step', '')}: {answer.status}: {answer.error}")
    return answer.result


def require(condition: bool, claim: str) -> None:  # noqa: FBT001  a sentence reads best last
    """Raise StageFailed unless the condition holds."""
    if not condition:
        raise StageFailed(f"expected: {claim}")


def require_success(outcome: object) -> None:
    """Raise StageFailed for a blocker."""
    if isinstance(outcome, Blocker):
        raise StageFailed(f"{outcome.reason}: {outcome.subject}: {outcome.detail}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
