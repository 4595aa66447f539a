"""A machine for image writes: a simulated BMC over HTTPS that starts and ends the real agent.

Power, virtual media and boot order are the simulator's Redfish service. What its host then boots is
not simulated: from virtual media the real ironic-python-agent, always on the same scratch disks;
from disk whatever is on the disk that was to be written, and only that.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import hashlib
import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "agent_lab"))

from authority_rig import open_own_authority
from image_driver import MAC, NODE
from lab import Link, ip, lay, link, real_agent

from provisioner.integrations.sim.hardware.clock import FastClock
from provisioner.integrations.sim.hardware.parts import Durations
from provisioner.integrations.sim.site.serve_site import serve_site
from provisioner.integrations.sim.site.site import Site
from provisioner.model.node import BmcRef, Node, NodeKind, Placement
from provisioner.model.operation import LedgerEntry
from provisioner.ports import Secret
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import open_store

LOOK_S = 0.03
# larger than what lies in the buffers of a connection: a killed daemon cuts its download off
IMAGE_BYTES, DISK_BYTES = 8 << 20, 12 << 20
DISKS, RIGHT = 3, 1  # one that would be guessed, the right one, one of somebody else
SIM_NODE = "su0-n00"


class Machine:
    """The machine; `runs` is "off", "agent" or "disk". Its thread ends with `close`."""

    def __init__(
        self, folder: Path, cable: Link, port: int, chunk_s: float, key: MasterKey
    ) -> None:
        self.folder, self.cable, self.port = folder, cable, port
        self.key = key
        self.more = ("--chunk-s", str(chunk_s))
        self.state = folder / "agent"
        self.runs, self.boots, self.failed = "off", 0, ""
        self.site = Site(1, 7, clock=FastClock(), durations=Durations().scale(0.002))
        self.killed = threading.Event()
        self._ready, self._stop = threading.Event(), threading.Event()
        self._agent: contextlib.ExitStack = contextlib.ExitStack()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._say("off")
        self._thread.start()
        assert self._ready.wait(60)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    @property
    def url(self) -> str:
        return self.site.urls[f"{SIM_NODE}/host"]

    def pin(self) -> str:
        host, _, port = self.url.removeprefix("https://").partition(":")
        pem = ssl.get_server_certificate((host, int(port)))
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()

    def acts(self, *names: str) -> list[dict[str, Any]]:
        """What the agents did, oldest first."""
        file = self.state / "acts"
        lines = file.read_text().splitlines() if file.exists() else []
        return [a for a in map(json.loads, lines) if not names or a["act"] in names]

    def disk(self, number: int) -> bytes:
        return (self.state / f"disk{number}").read_bytes()

    # --- the thread: whoever starts the agent must live as long as it

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self.failed = repr(error)
            raise
        finally:
            self._agent.close()

    async def _serve(self) -> None:
        server = await serve_site(self.site)
        self._ready.set()
        hardware, turn = self.site.machines[SIM_NODE], -1
        hardware.power_off(self.site.clock.now())
        while not self._stop.is_set():
            self.site.advance()
            if self.killed.is_set():
                self.killed.clear()
                self._end_sessions()
            if hardware.power_turns != turn and self.runs != "off":
                await self._off()
            turn = hardware.power_turns
            if self.runs == "off" and hardware.host.phase in ("booting", "up"):
                await (self._boot_agent if hardware.host.os_next == "cd" else self._boot_disk)()
            await asyncio.sleep(LOOK_S)
        await self._off()
        await server.close()

    def _end_sessions(self) -> None:
        """What a killed daemon leaves at a BMC times out there; this test is faster than that."""
        for told in self.site.machines[SIM_NODE].bmcs["host"].on_reset:
            told(self.site.clock.now())

    def _say(self, runs: str, stamp: str = "") -> None:
        self.runs = runs
        unfinished = self.folder / "system.part"
        unfinished.write_text(json.dumps({"runs": runs, "stamp": stamp}))
        unfinished.rename(self.folder / "system")

    async def _off(self) -> None:
        self._say("off")
        await asyncio.to_thread(self._agent.close)

    async def _boot_agent(self) -> None:
        self.boots += 1
        if self.boots > 1:
            lay(self.cable)
        ca_pem, url = (
            open_own_authority(self.folder, self.key).ca_pem(),
            f"https://{self.cable.gateway}",
        )
        self._agent.enter_context(
            real_agent(
                self.folder, self.cable, f"{url}:{self.port}", ca_pem, MAC, DISKS, self.state,
                self.more,
            )
        )  # fmt: skip
        self._say("agent")

    async def _boot_disk(self) -> None:
        """The system says of itself what its drive told it, if the image is what was meant."""
        drive = self.state / f"drive{RIGHT}"
        volume = gzip.decompress(base64.b64decode(drive.read_text())) if drive.exists() else b""
        _, _, told = volume.decode(errors="replace").partition("#cloud-config\n")
        stamp = json.JSONDecoder().raw_decode(told)[0]["write_files"][0]["content"] if told else ""
        digest = hashlib.sha256(self.disk(RIGHT)[:IMAGE_BYTES]).hexdigest()
        self._say("disk", stamp if digest in stamp else f"another system: {digest}\n")


@contextlib.contextmanager
def machine(folder: Path, chunk_s: float) -> Iterator[tuple[Machine, dict[str, Any]]]:
    """A machine that is switched off, its node in a store, and what a driver has to be asked."""
    (folder / "images").mkdir()
    (folder / "images" / "ramdisk.iso").write_bytes(b"no ramdisk: the agent is a process")
    with link() as cable:
        # ours also while no agent holds the other end of the cable
        ip("address", "add", f"{cable.gateway}/32", "dev", "lo")
        secret = MasterKey.generate()
        built = Machine(folder, cable, free_port(), chunk_s, secret)
        try:
            built.state.mkdir()
            for number in range(DISKS):
                content = hashlib.shake_256(f"disk {number}".encode()).digest(DISK_BYTES)
                (built.state / f"disk{number}").write_bytes(content)
            built.start()
            asyncio.run(register(folder, secret, built))
            yield (
                built,
                {
                    "folder": str(folder),
                    "key": secret.text(),
                    "gateway": cable.gateway,
                    "port": built.port,
                },
            )
        finally:
            built.close()
            ip("address", "delete", f"{cable.gateway}/32", "dev", "lo")


async def register(folder: Path, key: MasterKey, built: Machine) -> None:
    """The node as intake leaves it: fenced, its BMC's credential in the vault."""
    store = open_store(folder / "store.db")
    hardware = built.site.machines[SIM_NODE].bmcs["host"]
    node = Node(
        id=NODE,
        kind=NodeKind.HOST,
        placement=Placement.MAINTENANCE,
        fenced_at=time.time(),
        os_disk=f"SCRATCH{RIGHT}",
        address="192.0.2.1",
        bmcs=(BmcRef(name="host", url=built.url, pin=built.pin()),),
    )
    await store.nodes.add(node)
    login = Secret(hardware.password)
    await Vault(store, key).put(f"{NODE}/host", hardware.username, login)
    await store.close()


def ledger(folder: Path) -> list[LedgerEntry]:
    """Every row of the node, oldest first."""

    async def read() -> list[LedgerEntry]:
        store = open_store(folder / "store.db")
        try:
            return sorted(
                await store.operations.list_entries(NODE), key=lambda row: row.intended_at
            )
        finally:
            await store.close()

    return asyncio.run(read())


async def stored(folder: Path) -> Node:
    """The node as it is stored."""
    store = open_store(folder / "store.db")
    try:
        node = await store.nodes.get(NODE)
        assert node is not None
        return node
    finally:
        await store.close()


def free_port() -> int:
    """A port that nobody has now; drivers that follow one another share it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
