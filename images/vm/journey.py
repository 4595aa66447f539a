"""What `make vm-test` proves, in the order of a node's own journey, each stage with its time.

The Redfish client, the agent API with its token and certificates, the file server and the commands
are the daemon's own; only the machine is not.
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
    NVME_SERIAL,
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


class Failed(Exception):
    """A stage did not do what it must; the message says what was seen."""


@dataclass
class Times:
    """Seconds of each stage: as the clock had it, and as QEMU's processor time."""

    lab: Lab
    stages: dict[str, dict[str, float]] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    cpu: float = 0.0

    def done(self, stage: str, said: str = "") -> None:
        """The stage that ends now; printed at once, since a person is waiting."""
        now, cpu = time.monotonic(), self.lab.cpu_s()
        used = max(0.0, cpu - self.cpu)
        self.stages[stage] = {"wall_s": round(now - self.began, 1), "cpu_s": round(used, 1)}
        print(f"{now - self.began:8.1f} s {used:8.1f} CPU s  {stage}  {said}", flush=True)  # noqa: T201
        self.began, self.cpu = now, cpu


@dataclass
class Bench:
    """What the stages work with."""

    lab: Lab
    times: Times
    host: Redfish
    agents: Agents
    iso_url: str
    os_url: str
    os_image: Path
    key: asyncssh.SSHKey


async def run(lab: Lab, login: Login, site_iso: Path, made: Manifest, key: asyncssh.SSHKey,
              data: Path, times: Times) -> None:  # fmt: skip
    """Every stage. Raises Failed at the first that fails."""
    clock, settings = WallClock(), Settings()
    os_image = site_iso.with_name("os.img")
    disk.make(os_image, MARKER)
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(open_data(data, clock.now()))
        await opened.store.add_node(Node(id=NODE, kind=NodeKind.HOST))
        door = AgentDoor(GATEWAY, AGENT_PORT)
        served = await stack.enter_async_context(
            serve_agents(door, data, opened.store, opened.vault, clock, settings)
        )
        files = await stack.enter_async_context(
            serve_artifacts(site_iso.parent, GATEWAY, FILE_PORT)
        )
        for file, sha256 in ((site_iso, made.files["iso"].sha256), (os_image, _sha256(os_image))):
            good(await files.resolve(file.name, sha256))
        transport = RedfishTransport()
        stack.push_async_callback(transport.close)
        host = await _client(transport, login)
        bench = Bench(lab, times, host, served.agents, files.pull_url(site_iso.name),
                      files.pull_url(os_image.name), os_image, key)  # fmt: skip
        times.done("laboratory", "libvirt, network, machine, Redfish service, agent API")
        agent = await _boot_ramdisk(bench)
        await _look(bench, agent)
        await _erase(bench, agent)
        await _deploy(bench, agent)
        await _leave(bench, agent)
        await _boot_disk(bench)


def authority(data: Path) -> str:
    """The daemon's CA, made as `provisioner serve` makes it."""
    from provisioner.adapters.agent.tls import open_authority

    data.mkdir(mode=0o700, exist_ok=True)
    return open_authority(data).ca_pem()


async def _client(transport: RedfishTransport, login: Login) -> Redfish:
    for _ in range(300):
        seen = await probe(transport, login.url)
        if isinstance(seen, Probe):
            break
        await asyncio.sleep(0.2)
    else:
        raise Failed(f"the Redfish service does not answer: {seen}")
    address = BmcAddress(login.url, login.username, Secret(login.password), seen.fingerprint)
    return Redfish(transport, address, quirks.ALL.get(seen.vendor, quirks.UNKNOWN))


async def _boot_ramdisk(bench: Bench) -> AgentAddress:
    """Virtual media, override, power on; lookup and heartbeat as the agent makes them."""
    host = bench.host
    expect(await host.power() is Power.OFF, "the machine is off at first")
    await bench.agents.expect(NODE, [MAC], BOOT_LIMIT_S)
    good(await host.insert_media(bench.iso_url))
    expect(await host.media_inserted(bench.iso_url), "the ISO is inserted")
    bench.times.done("virtual media inserted")
    good(await host.boot_override("Cd"))
    good(await host.reset_system("On"))
    expect(await host.power() is Power.ON, "the machine is on")
    agent = await bench.agents.wait(NODE, BOOT_LIMIT_S)
    if agent is None:
        raise Failed(f"no agent phoned home:\n{bench.lab.said()[-2000:]}")
    expect(agent.url.startswith("https://"), "the agent serves TLS")
    bench.times.done("ramdisk booted, agent phoned home", agent.url)
    return agent


async def _look(bench: Bench, agent: AgentAddress) -> None:
    """Inventory by the agent and by our hardware manager; SSH with the host key that it told."""
    info = await ask(bench, agent, "poll.get_hardware_info", {})
    macs = [i.get("mac_address") for i in info.get("interfaces", [])]
    expect(MAC in macs, f"the agent sees its network port: {macs}")
    bench.times.done("agent inventory", f"{len(info.get('disks', []))} disks")
    own = await step(bench, agent, "provisioner_inventory")
    expect(any(p["mac"] == MAC for p in own["ports"]), "our inventory has the port")
    expect(any(p["kind"] == "nvme" for p in own["pci"]), "our inventory has the NVMe controller")
    listed = {d["serial"]: d for d in (await step(bench, agent, "provisioner_disks"))["disks"]}
    expect({DISK_SERIAL, NVME_SERIAL} == set(listed), f"both disks, no more: {sorted(listed)}")
    checks = await step(bench, agent, "provisioner_checks", expected={"nvme": 1})
    verdicts = {c["check"]: c["verdict"] for c in checks["checks"]}
    expect(verdicts["devices"] == "pass", f"the device check passes: {verdicts}")
    bench.times.done("our inventory and checks", f"image {own['image']}; {verdicts}")
    words = await _ssh(bench, agent, own["ssh_host_key"])
    bench.times.done("SSH by the reported host key", words)


async def _ssh(bench: Bench, agent: AgentAddress, host_key: str) -> str:
    """Log in as Ansible would; the agent's token is in no log."""
    address = agent.url.split("//")[1].split(":")[0]
    known = asyncssh.import_known_hosts(f"{address} {host_key}\n")
    async with asyncssh.connect(
        address, username="root", client_keys=[bench.key], known_hosts=known,
        login_timeout=300, connect_timeout=120,
    ) as connection:  # fmt: skip
        log = await connection.run("journalctl --no-pager -o cat", check=True, timeout=300)
        text = str(log.stdout)
        expect("agent_token=***" in text, "the agent's requests are in its log, the token hidden")
        expect(agent.token.reveal() not in text, "the token is in no log")
        release = await connection.run("python3 --version; uname -r", check=True, timeout=120)
        return " ".join(str(release.stdout).split())


async def _erase(bench: Bench, agent: AgentAddress) -> None:
    """Metadata by the agent, the NVMe disk by our step; another serial is left alone."""
    await step(bench, agent, "erase_devices_metadata")
    bench.times.done("metadata erased")
    listed = {d["serial"]: d for d in (await step(bench, agent, "provisioner_disks"))["disks"]}
    name = listed[NVME_SERIAL]["name"]
    wrong = await step(bench, agent, "provisioner_erase_device", device=name, serial="ANOTHER",
                       by="nvme_format_user_data")  # fmt: skip
    expect(wrong["result"] == "not_done", f"another serial is left alone: {wrong}")
    for method in ("nvme_sanitize_crypto", "nvme_format_user_data", "overwrite"):
        record = await step(bench, agent, "provisioner_erase_device", device=name,
                            serial=NVME_SERIAL, by=method)  # fmt: skip
        if record["result"] == "done":
            break
    expect(record["result"] == "done", f"the NVMe disk is erased: {record}")
    read = await step(bench, agent, "provisioner_read_disk", serial=NVME_SERIAL, offset=0,
                      bytes=1 << 20)  # fmt: skip
    zeroes = hashlib.sha256(bytes(1 << 20)).hexdigest()
    expect(read["sha256"] == zeroes, "its first megabyte reads as zeroes")
    bench.times.done("NVMe disk erased", f"{record['method']}: {record['detail']}")


async def _deploy(bench: Bench, agent: AgentAddress) -> None:
    """A wrong digest is refused; the right image is written, and read back from the disk."""
    bad = await _write(bench, agent, "0" * 64)
    expect(bad.status == "FAILED", f"a wrong digest is refused: {bad.status}")
    written = await _write(bench, agent, _sha256(bench.os_image))
    expect(written.status == "SUCCEEDED", f"the image is written: {written.error}")
    size = bench.os_image.stat().st_size
    bench.times.done("image written", f"{size >> 20} MiB; a wrong digest was refused before")
    offset, length = deployment.read_range(size)
    read = await step(
        bench, agent, "provisioner_read_disk", serial=DISK_SERIAL, offset=offset, bytes=length
    )
    wanted = bench.os_image.read_bytes()[offset : offset + length]
    same = read["sha256"] == hashlib.sha256(wanted).hexdigest()
    expect(same, f"the disk has the image's {length} bytes from {offset}")
    bench.times.done("image read back")


async def _write(bench: Bench, agent: AgentAddress, sha256: str) -> AgentResult:
    """The very command that the daemon sends (planning/erasure/deployment.py)."""
    answer = await step(bench, agent, "provisioner_disks")
    listed = disk_answers.disks(answer, NODE)
    if isinstance(listed, Blocker):
        raise Failed(listed.detail)
    (target,) = (d for d in listed if d.serial == DISK_SERIAL)
    size = bench.os_image.stat().st_size
    image = deployment.ImageFile(
        name=bench.os_image.name, url=bench.os_url, size=size, sha256=sha256, checked=sha256
    )
    parameters = deployment.write_command(_node(), target, image, "")
    return await bench.agents.command(agent, DEPLOY, parameters, STEP_LIMIT_S)


async def _leave(bench: Bench, agent: AgentAddress) -> None:
    await ask(bench, agent, "standby.sync", {})
    await bench.agents.command(agent, "standby.power_off", {}, STEP_LIMIT_S)
    for _ in range(600):
        if await bench.host.power() is Power.OFF:
            break
        await asyncio.sleep(1)
    else:
        raise Failed("the machine does not go off")
    await bench.agents.dismiss(NODE)
    expect(await bench.agents.present(NODE) is None, "a dismissed agent is not there")
    good(await bench.host.eject_media())
    bench.times.done("powered off, media ejected")


async def _boot_disk(bench: Bench) -> None:
    good(await bench.host.boot_override("Hdd", once=False))
    good(await bench.host.reset_system("On"))
    for _ in range(int(DISK_BOOT_LIMIT_S)):
        if MARKER in bench.lab.said():
            break
        await asyncio.sleep(1)
    else:
        raise Failed(f"the written system did not speak:\n{bench.lab.said()[-800:]}")
    bench.times.done("booted from disk", MARKER)
    good(await bench.host.reset_system("ForceOff"))


def _node() -> dict[str, Any]:
    return {
        "uuid": "00000000-0000-0000-0000-000000000001",
        "properties": {},
        "instance_info": {},
        "driver_internal_info": {},
    }


async def step(bench: Bench, agent: AgentAddress, name: str, **arguments: Any) -> Any:
    """A clean step's answer."""
    asked = {"step": name, "interface": "deploy", "priority": 0, "args": arguments}
    parameters = {"step": asked, "node": _node(), "ports": []}
    answer = await ask(bench, agent, "clean.execute_clean_step", parameters)
    return answer["clean_result"]


async def ask(bench: Bench, agent: AgentAddress, name: str, parameters: Mapping[str, Any]) -> Any:
    """An agent command's answer. Raises Failed if it did not succeed."""
    answer = await bench.agents.command(agent, name, parameters, STEP_LIMIT_S)
    if answer.status != "SUCCEEDED":
        raise Failed(f"{name} {parameters.get('step', '')}: {answer.status}: {answer.error}")
    return answer.result


def expect(so: bool, what: str) -> None:  # noqa: FBT001  a sentence reads best last
    """Raises Failed unless it is so."""
    if not so:
        raise Failed(f"not so: {what}")


def good(outcome: object) -> None:
    """Raises Failed for a blocker."""
    if isinstance(outcome, Blocker):
        raise Failed(f"{outcome.reason}: {outcome.subject}: {outcome.detail}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
