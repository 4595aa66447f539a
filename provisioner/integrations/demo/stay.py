"""The demonstration that stays: a sound simulated site that serves until it is stopped.

The tutorial uses it. Nothing is broken on purpose: the reader breaks a part with `provisioner sim
break`. Its nodes start at the older release, so that there is one to roll out. Customers are added
once every host is certified: the choice of hosts then depends on their places, not on which was
certified first.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from provisioner.adapters.consoles.console_files import ConsoleFiles
from provisioner.adapters.consoles.ssh_consoles import open_consoles
from provisioner.checks.attestation.event_log import digest_entries
from provisioner.checks.attestation.trust_anchors import digest_spki
from provisioner.control.fabric.fabric_standing import Fabrics
from provisioner.daemon.data import Data, held_data, open_data, read_expected
from provisioner.daemon.events import open_watch
from provisioner.daemon.hosts import kept_clock
from provisioner.daemon.tenants import FabricAccess, open_fabrics
from provisioner.integrations.demo.running import (
    Asked,
    Show,
    drive,
    find_storage,
    read_pin,
    run_simulator,
)
from provisioner.integrations.demo.site import (
    BASE,
    DRIVER,
    RELEASE,
    TRAY_CONTENTS,
    choose_settings,
    prepare_files,
)
from provisioner.integrations.sim.hardware.build import HGX_TRAY, PACKAGES
from provisioner.integrations.sim.hardware.clock import make_certificate
from provisioner.integrations.sim.hardware.device_authority import find_authority
from provisioner.integrations.sim.hardware.report_devices import sign_manifest
from provisioner.integrations.sim.redfish.redfish_integrity import measure_firmware
from provisioner.integrations.sim.redfish.shapes_bios import DATABASES, list_makers_entries
from provisioner.integrations.sim.switches.ufm import NAME as UFM
from provisioner.integrations.sim.switches.ufm import UfmService
from provisioner.integrations.simulated_site.simulated_agents import SimulatedRunner
from provisioner.model.campaign import Policy
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.tenant import Tenant
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports import Clock, Secret
from provisioner.ports.isolation import UfmAddress
from provisioner.runtime.integrations import open_log_intake
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# Golden values of the demonstration: its devices must prove their simulated firmware.
#
# A site's person admits manifests of the makers, and digests from a witness. Here the simulator is
# the maker, and its root is trusted because this file adds it; no other matrix does.


PROFILE = "hgx-h100-bf3"
ADMITTED = "2025-01-01"
WITNESS = "the simulator"
INDICES = (1, 2, 3, 4)
# root of trust -> how many there are, and the firmware that it measures
ROOTS: Mapping[str, tuple[int, str]] = {
    "HGX_ERoT_BMC_0": (1, "HGX_FW_BMC"),
    "HGX_ERoT_FPGA_0": (1, "HGX_FW_FPGA"),
    "HGX_ERoT_PCIeSwitch_0": (1, "HGX_FW_PCIeSwitch"),
    "HGX_ERoT_GPU_SXM_*": (8, "HGX_FW_GPU_SXM"),
    "HGX_ERoT_NVSwitch_*": (4, "HGX_FW_NVSwitch"),
}
# release -> firmware of the baseboard, and the driver
RUNS: Mapping[str, Mapping[str, str]] = {
    BASE: {
        "HGX_FW_BMC": HGX_TRAY["bmc"],
        "HGX_FW_FPGA": HGX_TRAY["fpga"],
        "HGX_FW_PCIeSwitch": HGX_TRAY["pcieswitch"],
        "HGX_FW_GPU_SXM": HGX_TRAY["gpu"],
        "HGX_FW_NVSwitch": HGX_TRAY["nvswitch"],
        "driver": PACKAGES["host.driver"],
    },
    RELEASE: {
        **{re.sub(r"_[0*]$", "", name): version for name, version in TRAY_CONTENTS.items()},
        "driver": DRIVER,
    },
}


def require_attestation(overlay: Path, references: Path) -> None:
    """Add the rules to the site's own matrix file, and write the manifests that they name."""
    references.mkdir(exist_ok=True)
    tree = json.loads(overlay.read_text(encoding="utf-8"))
    for release, runs in RUNS.items():
        profile = tree["releases"][release]["profiles"][PROFILE]
        profile["attestation"] = _build_rule(runs, references)
    overlay.write_text(json.dumps(tree, indent=1), encoding="utf-8")


def _build_rule(runs: Mapping[str, str], references: Path) -> dict[str, Any]:
    """Return the rule of a profile whose hosts run these versions."""
    root = find_authority().root.certificate
    maker = {
        "name": find_authority().root_name,
        "spki_sha256": digest_spki(root),
        "source": WITNESS,
    }
    return {
        "policy": "require",
        "makers": [maker],
        "components": {
            name: _admit_root(count, f"{firmware}={runs[firmware]}")
            for name, (count, firmware) in ROOTS.items()
        },
        "secure_boot": {
            "policy": "require",
            "state": "on",
            "databases": {
                name: [digest_entries(list_makers_entries(name)).sha256] for name in DATABASES
            },
        },
        "gpu_reports": {
            "policy": "require",
            "references": [
                _admit_manifest(references, "vbios", runs["HGX_FW_GPU_SXM"]),
                _admit_manifest(references, "driver", runs["driver"]),
            ],
        },
        "nvswitch_reports": {
            "policy": "require",
            "references": [_admit_manifest(references, "switch", runs["HGX_FW_NVSwitch"])],
        },
    }


def _admit_root(count: int, running: str) -> dict[str, Any]:
    values = measure_firmware([running])
    digests = {str(index): [values[index].hex()] for index in INDICES}
    return {"count": count, "digests": digests, "learned_from": WITNESS}


def _admit_manifest(references: Path, kind: str, version: str) -> dict[str, str]:
    rim_id, raw = sign_manifest(kind, version)
    (references / f"{rim_id}.xml").write_bytes(raw)
    return {"rim": rim_id, "sha256": hashlib.sha256(raw).hexdigest(), "admitted": ADMITTED}


DATA = "data"
SETTINGS = "settings.yaml"
POLICY = "policy.yaml"
CONSOLE_KEYS = "console-keys"
LOG_SENDERS = "log-senders"  # certificates of the hosts and switches for their syslog
REFERENCES = "references"  # the makers' manifests
RACKS = "racks.yaml"  # the expected-hardware list before there are customers
# a reset of the BIOS to its defaults is proved by attributes that it changes
SETS = {
    "host.bios_settings": {"iommu": "on", "relaxed_ordering": "on", "secure_boot": "on"},
    "host.bmc_settings": {"ipmi": "off"},
}
# the watch's intervals of a site, as far as one machine that is site and daemon keeps up with them
WATCH_S = 900.0
WATCH_REAL_S = 30.0
WATCH_NODE_S = 300.0
GLANCE_REAL_S = 6.0
LOOK_S = 0.25  # of real time: how often the states of the hosts are read


async def serve_until_stopped(
    asked: Asked,
    directory: Path,
    matrix: Path,
    show: Show,
    served: Callable[[], None],
    stop: asyncio.Event,
    beside: Callable[..., AbstractAsyncContextManager[str]] | None = None,
) -> None:
    """Serve until `stop` is set; call `served` once every node serves or is spare.

    `beside` is opened beside the daemon as `Beside` is, and with the address `ufm`.
    """
    async with run_simulator(asked, directory) as site:
        hosts = asked.nodes - asked.spare
        storage = await find_storage(site, directory)
        with_storage = storage is not None
        expected = await site.get("/expected")
        files = prepare_files(directory, expected, hosts, SETS, with_storage=with_storage)
        require_attestation(files.overlay, directory / REFERENCES)
        listed = json.loads(files.expected.read_text(encoding="utf-8")) | {"release": BASE}
        racks = directory / RACKS
        racks.touch(mode=0o600)
        for file, content in ((files.expected, listed), (racks, listed | {"tenants": []})):
            file.write_text(json.dumps(content), encoding="utf-8")
        settings = build_settings(asked, directory / REFERENCES)
        settings = settings.model_copy(update={"storage": storage})
        _write(directory, settings)
        announced = False

        def is_over(nodes: Sequence[Node], running: int) -> bool:
            nonlocal announced
            if not announced and running == 0 and is_served(nodes, asked.spare):
                announced = True
                served()
            return stop.is_set()

        with held_data(directory / DATA):
            clock = await kept_clock(site, directory / DATA)
            async with open_data(directory / DATA, clock.now()) as data:
                began = time.monotonic()
                forever = float("inf")
                taken_in = replace(files, expected=racks)
                access = FabricAccess(AddressPlan(), settings, ufm=await find_ufm(site))
                if beside is not None:
                    beside = partial(beside, ufm=access.ufm)
                async with (
                    open_fabrics(access) as fabrics,
                    receive_logs(directory, listed["nodes"], data, clock, settings),
                    open_watch(
                        *("", (), directory / DATA, data.store, clock, None, data.master),
                        site=access,
                    ) as watch,
                    asyncio.TaskGroup() as tasks,
                ):
                    more = _more(data, directory / DATA, settings, fabrics) | {"watch": watch}
                    customers = read_expected(files.expected).tenants
                    coming = tasks.create_task(add_customers(data.store, customers))
                    await drive(
                        *(settings, taken_in, matrix, site, clock, data, show, is_over),
                        *(began, forever, more, beside),
                    )
                    coming.cancel()


def is_served(nodes: Sequence[Node], spare: int) -> bool:
    """Return whether every node serves, but for so many hosts that wait for a tenant."""
    free = [n for n in nodes if n.state is State.CERTIFIED and not n.tenant]
    return (
        bool(nodes)
        and len(free) == spare
        and all(n.state is State.RELEASED for n in nodes if n not in free)
    )


async def add_customers(store: SqlStore, customers: Sequence[Tenant]) -> None:
    """Add the list's tenants, without nodes until every host is certified or quarantined.

    Their storage is made meanwhile.
    """
    for customer in customers:
        await store.tenants.put(customer.model_copy(update={"nodes_wanted": 0}))
    settled = (State.CERTIFIED, State.QUARANTINED)
    while True:
        hosts = [n for n in await store.nodes.list() if n.kind is NodeKind.HOST]
        if hosts and all(n.state in settled for n in hosts):
            break
        await asyncio.sleep(LOOK_S)
    for customer in customers:
        await store.tenants.put(customer)


def build_settings(asked: Asked, references: Path) -> Settings:
    """Return the demonstration's settings without tests among nodes, which need three partners.

    The site is a laboratory: not every pin of the older release is published.
    """
    return choose_settings(asked.nodes, asked.speed).model_copy(
        update={
            "certify_gates": "ab",
            "production": False,
            "erase_same_tenant_may_skip": True,
            "repair_pause_s": 60.0,
            "attestation_references": str(references.absolute()),
            "erase_required": "disk host_memory gpu_memory bios",
            "host_metadata": "link_local",
            "watch_s": max(WATCH_S, WATCH_REAL_S * asked.speed),
            "watch_node_s": max(WATCH_NODE_S, GLANCE_REAL_S * asked.speed),
            "consoles": "ssh",
            "console_days": 45,  # more than a month of whole days
        }
    )


async def find_ufm(site: SimulatedRunner) -> UfmAddress | None:
    """Return the address of the simulated UFM with its login; None: none is served."""
    url = (await site.get("/endpoints")).get(UFM)
    if url is None:
        return None
    simulated = UfmService()
    secret = Secret(simulated.password)
    return UfmAddress(url, simulated.username, secret, await read_pin(url))


@asynccontextmanager
async def receive_logs(
    directory: Path,
    nodes: Sequence[Mapping[str, Any]],
    data: Data,
    clock: Clock,
    settings: Settings,
) -> AsyncIterator[None]:
    """Receive syslog on a free port, which a file names, from senders with a certificate each."""
    folder = directory / LOG_SENDERS
    folder.mkdir(mode=0o700, exist_ok=True)
    trusted = b""
    for node in nodes:
        certificate, key = make_certificate(node["name"], "127.0.0.1")
        for ending, content in ((".pem", certificate), (".key", key)):
            file = folder / f"{node['name']}{ending}"
            file.touch(mode=0o600)
            file.write_bytes(content)
        trusted += certificate
    senders = folder / "senders.pem"
    senders.write_bytes(trusted)
    update = {"log_intake_port": 0, "log_intake_ca_file": str(senders)}
    chosen = settings.model_copy(update=update)
    async with open_log_intake(
        directory / DATA, data.store, clock, chosen, data.master, {}
    ) as ports:
        (folder / "port").write_text(str(ports["tls"]), encoding="utf-8")
        yield


def _more(data: Data, directory: Path, settings: Settings, fabrics: Fabrics) -> dict[str, Any]:
    """Return the parts beyond the demonstration's: campaigns, repairs, fabrics and consoles."""
    consoles = open_consoles(directory / CONSOLE_KEYS, settings)
    return {
        "consoles": (consoles, ConsoleFiles(directory, settings.console_bytes_max)),
        "campaigns": data.store.campaigns,
        "cases": data.store.cases,
        "fabrics": fabrics,
    }


def _write(directory: Path, settings: Settings) -> None:
    """Write the files for other commands: the daemon's settings, and a policy with short waits."""
    changed = settings.model_dump(mode="json", exclude_defaults=True)
    policy = {
        "canary": {"size": 1, "soak_s": 600},
        "waves": [{}],
        "tenants": {"notice_s": 3600},
        "allow_irreversible": True,
    }
    Policy.model_validate(policy)
    # JSON is valid YAML
    for name, content in ((SETTINGS, changed), (POLICY, policy)):
        (directory / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
