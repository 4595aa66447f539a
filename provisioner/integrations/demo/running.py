"""The demonstration: a simulated site in a process of its own, and the daemon that drives it.

The daemon is built from the same parts as `provisioner serve` and speaks real HTTPS on loopback.
Only in-band work goes to the simulator's socket, and time runs fast on both sides. The summary is
computed from the store and from the simulator's own ground truth.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from provisioner.adapters.redfish.discovery import Probe, probe_all
from provisioner.adapters.redfish.eventing.event_stream import RedfishStreams
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.switch_https import SwitchHttps
from provisioner.control.watch.watcher import WatchParts
from provisioner.daemon.agents import build_simulated_agents
from provisioner.daemon.artifacts import serve_artifacts
from provisioner.daemon.daemon import Daemon, Parts
from provisioner.daemon.data import (
    Data,
    held_data,
    open_data,
    read_expected,
    read_matrix,
    read_secrets,
)
from provisioner.daemon.hosts import kept_clock
from provisioner.daemon.tenants import FabricAccess, open_fabrics
from provisioner.execution.actions.work import HostLogin
from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.execution.artifacts.os_images import OsImages
from provisioner.execution.observe.intake import find_nodes, take_in
from provisioner.integrations.demo.site import DemoFiles, choose_settings, prepare_files
from provisioner.integrations.sim.storage.vms import NAME as VMS
from provisioner.integrations.sim.storage.vms import SimulatedVms
from provisioner.integrations.simulated_site.simulated_agents import SimulatedRunner, SimulatedShell
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Reason
from provisioner.model.recovery import GateCheck, RowVerdict
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.tenancy.storage import list_addresses
from provisioner.runtime.switch_systems import make_switches
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.settings.fabric import StorageSystem

# Hosts that are broken on purpose: (which node, preset of the simulator)
BROKEN = ((3, "dead_gpu"), (11, "pcie_gen4"), (20, "bfb_never_completes"))
SIMULATOR_START_S = 240.0  # on a machine that others use; its end is seen at once. For each host:
SIMULATOR_START_HOST_S = 1.0
STORAGE_ROWS = (GateCheck.STORAGE_OPEN, GateCheck.STORAGE_SHUT)
DEMO_KEY = "ssh-ed25519 AAAA demo"  # no login uses it: the simulator answers for its hosts


@dataclass(frozen=True)
class Asked:
    """The size and the speed of the demonstration."""

    nodes: int = 32
    seed: int = 0
    speed: float = 300.0
    spare: int = 0  # hosts that no tenant asks for, in a demonstration that stays
    consoles: bool = False  # serial consoles of the hosts are served
    secure_boot: bool = False  # the hosts run with Secure Boot
    ufm: bool = False  # a UFM is served, for InfiniBand partitions of tenants
    storage: bool = False  # a VMS is served, and both tenants have exports on it
    one_listener: bool = False  # one socket of the simulator, for sites of a thousand hosts
    # of real time: a loaded machine takes long, and a run that hangs must end
    limit_s: float = 1800.0


@dataclass(frozen=True)
class Progress:
    """The standing of the site at one moment, for display."""

    nodes: Sequence[Node]
    simulated_s: float
    wall_s: float
    doing: str


@dataclass(frozen=True)
class Summary:
    """The result, each figure from the store or from the simulator's truth."""

    nodes: int
    switches: int
    released: int
    quarantined: tuple[dict[str, str], ...]
    uncertified_in_customer_vrf: int
    violations: tuple[str, ...]
    storage_own: int  # hosts that may mount their own tenant's export, with rows in their proof
    storage_foreign: int  # hosts that may mount anything else
    redfish_requests: int
    wall_s: float
    ran_out_of_time: bool
    as_planned: bool


Show = Callable[[Progress], None]
# opens the API on the data, for as long as the daemon runs
Beside = Callable[[Data, WallClock, Settings, Matrix, Artifacts], AbstractAsyncContextManager[str]]
Over = Callable[[Sequence[Node], int], bool]  # nodes, operations under way


async def run(
    asked: Asked, directory: Path, matrix: Path, show: Show, beside: Beside | None = None
) -> Summary:
    """Start the site, take it in, bring it to release and summarise the result.

    `beside` is open beside the daemon.
    """
    began = time.monotonic()
    async with run_simulator(asked, directory) as site:
        hosts = asked.nodes
        broken = [(f"su0-n{i:02d}", fault) for i, fault in BROKEN if i < hosts]
        for name, fault in broken:
            await site.post("/faults", {"node": name, "preset": fault})
        storage = await find_storage(site, directory)
        chosen = choose_settings(asked.nodes, asked.speed).model_copy(update={"storage": storage})
        with_storage = storage is not None
        expected = await site.get("/expected")
        files = prepare_files(directory, expected, hosts, with_storage=with_storage)
        data_directory = directory / "data"
        with held_data(data_directory):
            clock = await kept_clock(site, data_directory)
            async with (
                open_data(data_directory, clock.now()) as data,
                open_fabrics(FabricAccess(AddressPlan(), chosen)) as fabrics,
            ):
                await drive(
                    chosen,
                    files,
                    matrix,
                    site,
                    clock,
                    data,
                    show,
                    _over,
                    began,
                    asked.limit_s,
                    more={"fabrics": fabrics} if with_storage else None,
                    beside=beside,
                )
                return await _summary(data, site, {n for n, _ in broken}, began, asked.limit_s)


@asynccontextmanager
async def run_simulator(asked: Asked, directory: Path) -> AsyncIterator[SimulatedRunner]:
    """Run `provisioner sim serve` as a process, yield its control socket, and end it at the end."""
    directory.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 (once, before anything runs)
    socket = directory / "control.sock"
    log = (directory / "simulator.log").open("wb")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "provisioner",
        "sim",
        "serve",
        *("--nodes", str(asked.nodes)),
        *("--seed", str(asked.seed)),
        *("--speed", str(asked.speed)),
        *("--control", str(socket)),
        *(("--consoles",) if asked.consoles else ()),
        *(("--secure-boot",) if asked.secure_boot else ()),
        *(("--ufm",) if asked.ufm else ()),
        *(("--storage",) if asked.storage else ()),
        *(("--one-listener",) if asked.one_listener else ()),
        "--json",
        stdout=log,
        stderr=log,
    )
    runner = SimulatedRunner(socket)
    try:
        limit_s = SIMULATOR_START_S + SIMULATOR_START_HOST_S * asked.nodes
        await _answering(runner, process, directory, limit_s)
        yield runner
    finally:
        await runner.close()
        if process.returncode is None:
            process.terminate()
        await process.wait()
        log.close()


async def _answering(
    runner: SimulatedRunner, process: asyncio.subprocess.Process, directory: Path, limit_s: float
) -> None:
    until = time.monotonic() + limit_s
    while time.monotonic() < until and process.returncode is None:
        try:
            await runner.get("/clock")
            return
        except OSError:
            await asyncio.sleep(0.1)
    text = (directory / "simulator.log").read_text(encoding="utf-8", errors="replace")
    raise RuntimeError(f"the simulator did not start:\n{text[-2000:]}")


async def drive(
    settings: Settings,
    files: DemoFiles,
    matrix: Path,
    site: SimulatedRunner,
    clock: WallClock,
    data: Data,
    show: Show,
    over: Over,
    began: float,
    limit_s: float = Asked.limit_s,
    more: Mapping[str, Any] | None = None,
    beside: Beside | None = None,
) -> None:
    """Take in the devices that answer and run the daemon until `over`, or for `limit_s` seconds.

    `limit_s` is real time; `more` has further parts of the daemon; `beside` is open beside it.
    """
    transport = RedfishTransport()
    streams = RedfishStreams(transport)
    switches = SwitchHttps()
    pinned = await asyncio.to_thread(read_matrix, [matrix, files.overlay])
    async with (
        serve_artifacts(files.artifacts, "127.0.0.1", 0, settings) as artifacts,
        nullcontext() if beside is None else beside(data, clock, settings, pinned, artifacts),
    ):
        daemon = Daemon(
            Parts(
                store=data.store,
                credentials=data.vault,
                clock=clock,
                settings=settings,
                transport=transport,
                switches=make_switches(switches),
                runner=site,
                shell=SimulatedShell(site),
                agents=build_simulated_agents(site, data.store, data.vault, clock, settings),
                artifacts=artifacts,
                matrix=pinned,
                signer=data.signer,
                os_images=OsImages(artifacts, files.artifacts / "raw", artifacts.url),
                login=HostLogin("provisioner", DEMO_KEY),
                **_add_parts(more or {}, data, streams),
            )
        )
        expected = await asyncio.to_thread(read_expected, files.expected)
        secrets = read_secrets(expected, {})

        async def read_progress(doing: str) -> Sequence[Node]:
            nodes = await data.store.nodes.list()
            show(Progress(nodes, clock.now() - clock.epoch, time.monotonic() - began, doing))
            return nodes

        await read_progress("discovering")
        probes = await _probe_twice(transport, await _list_bmcs(site))
        assembly, identities, silent = await find_nodes(
            transport, data.store, data.vault, expected, secrets, probes, clock.now()
        )
        assert not silent, silent[0]
        await take_in(data.store, data.vault, expected, secrets, assembly, identities, clock.now())
        await daemon.start()
        try:
            while time.monotonic() - began < limit_s:
                if over(await read_progress("driving"), daemon.engine.running):
                    break
                await asyncio.sleep(0.25)
        finally:
            await daemon.stop()
            for close in (streams.close, switches.close, transport.close):
                await close()


def _add_parts(more: Mapping[str, Any], data: Data, streams: RedfishStreams) -> dict[str, Any]:
    """Return the further parts, with the ledger; the watch follows events by streams, too."""
    watch: WatchParts | None = more.get("watch")
    parts = {**more, "folds": data.store.list_folds()}
    return parts if watch is None else {**parts, "watch": replace(watch, streams=streams)}


async def _probe_twice(transport: RedfishTransport, urls: Sequence[str]) -> list[Probe]:
    """Probe each address, and once more where a loaded machine did not answer in time."""
    probes = await probe_all(transport, urls)
    answered = {probe.url for probe in probes}
    return probes + await probe_all(transport, [u for u in urls if u not in answered])


async def _list_bmcs(site: SimulatedRunner) -> list[str]:
    """Return the addresses of the simulated BMCs."""
    endpoints: dict[str, str] = await site.get("/endpoints")
    return sorted(url for name, url in endpoints.items() if "/" in name)


def _over(nodes: Sequence[Node], running: int) -> bool:
    """Return whether every host is released or quarantined and every switch is in service."""
    settled = (State.RELEASED, State.QUARANTINED)
    parked = [n for n in nodes if any(b.reason is Reason.OUR_BUG for b in n.blockers)]
    return bool(nodes) and running == 0 and all(n.state in settled or n in parked for n in nodes)


async def find_storage(site: SimulatedRunner, directory: Path) -> StorageSystem | None:
    """Return the simulated VMS with its login, in a file; None: none is served."""
    url = (await site.get("/endpoints")).get(VMS)
    if url is None:
        return None
    simulated = SimulatedVms()
    file = directory / "storage-password"
    file.touch(mode=0o600)
    file.write_text(simulated.password, encoding="utf-8")
    return StorageSystem(
        provider="vast",
        address=url,
        username=simulated.user,
        secret_file=str(file.absolute()),
        pin=await read_pin(url),
    )


async def read_pin(url: str) -> str:
    """Return the SHA-256 of the certificate that an address of the simulator has."""
    host, _, port = url.removeprefix("https://").partition(":")
    own = await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(own)).hexdigest()


async def _judge_storage(
    data: Data, site: SimulatedRunner, hosts: Sequence[Node], *, stored: bool
) -> tuple[int, int]:
    """Return how many hosts may mount what is their tenant's, as their proofs say; and how many
    anything else, by the storage's own rules.
    """
    if not stored:
        return 0, 0
    of = {n.id: list_addresses(n) for n in hosts}
    asked = {"addresses": [a for listed in of.values() for a in listed]}
    answer = await site.post("/readable", asked)
    own = foreign = 0
    for node in hosts:
        seen = {tenant for a in of[node.id] for tenant, _ in answer[a]}
        foreign += bool(seen - {node.tenant}) or (bool(seen) and node.state is not State.RELEASED)
        proof = await data.store.evidence.get_proof(node.id)
        rows = {} if proof is None else {r.check: r.verdict for r in proof.gate}
        proved = all(rows.get(check) is RowVerdict.PASS for check in STORAGE_ROWS)
        own += proved and all(answer[a] for a in of[node.id]) and seen == {node.tenant}
    return own, foreign


async def _summary(
    data: Data, site: SimulatedRunner, broken: set[str], began: float, limit_s: float
) -> Summary:
    nodes = await data.store.nodes.list()
    truth = await site.get("/truth")
    hosts = [n for n in nodes if n.kind is NodeKind.HOST]
    held = [n for n in hosts if n.state is State.QUARANTINED]
    certificates = []
    for node in hosts:
        held_by = (
            await data.store.evidence.get_certificate(node.certificate)
            if node.certificate
            else None
        )
        if held_by is not None and not await data.store.evidence.is_revoked(held_by.id):
            certificates.append(held_by.model_dump(mode="json"))
    # the simulator compares each certificate with the parts installed in the node
    answer = await site.post("/uncertified", {"certificates": certificates})
    uncertified = len(answer["nodes"])
    inside: list[str] = truth["in_customer_vrf"]
    released = [n.id for n in hosts if n.state is State.RELEASED and n.id in inside]
    violations = tuple(str(v) for v in truth["violations"])
    switches = [n for n in nodes if n.kind is NodeKind.SWITCH]
    stored = VMS in await site.get("/endpoints")
    own, foreign = await _judge_storage(data, site, hosts, stored=stored)
    as_planned = (
        {n.id for n in held} == broken
        and len(released) == len(hosts) - len(broken)
        and uncertified == 0
        and not violations
        and own == (len(released) if stored else 0)
        and foreign == 0
        and all(s.state is State.RELEASED for s in switches)
    )
    return Summary(
        nodes=len(hosts),
        switches=len(switches),
        released=len(released),
        quarantined=tuple({"node": n.id, "blocker": str(n.blockers[0])} for n in held),
        uncertified_in_customer_vrf=uncertified,
        violations=violations,
        storage_own=own,
        storage_foreign=foreign,
        redfish_requests=(await site.get("/requests"))["redfish"],
        wall_s=round(time.monotonic() - began, 1),
        ran_out_of_time=time.monotonic() - began >= limit_s,
        as_planned=as_planned,
    )


def as_json(summary: Summary) -> str:
    """Return the summary as one line of JSON."""
    fields: dict[str, Any] = dict(vars(summary))
    return json.dumps(fields)
