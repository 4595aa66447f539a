"""The served API over TLS, as clients from outside reach it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.test_utils import TestClient, TestServer
from served import Served, serving

from provisioner.api import table
from provisioner.api.app import build_application
from provisioner.control.fabric.tenant_keeper import TenantKeeper
from provisioner.integrations.sim.hardware.clock import make_certificate
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.tenancy.vrf_plan import FabricPlan
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault


@dataclass(frozen=True)
class Address:
    """The API's address, its certificate, and a file with an operator's token."""

    url: str
    ca: Path
    token: Path


async def read_plan() -> FabricPlan:
    """A fabric that is isolated by partitions: it has no leaf to be configured."""
    return FabricPlan(plan=AddressPlan(), leaves=(), partitions=True)


@asynccontextmanager
async def serving_tls(folder: Path, **settings: Any) -> AsyncIterator[tuple[Served, Address]]:
    """The API with tenants that can be created, and with a vault; its client goes over TLS too."""
    certificate, key = make_certificate("api", "127.0.0.1")
    ca = folder / "ca.pem"
    ca.write_bytes(certificate)
    (folder / "both.pem").write_bytes(key + certificate)
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.load_cert_chain(folder / "both.pem")
    async with serving(**settings) as served:
        keeper = TenantKeeper(served.store, served.parts.clock, [], read_plan)
        vault = Vault(served.store, MasterKey.generate())
        parts = replace(served.parts, keeper=keeper, vault=vault)
        ours = TestServer(build_application(parts, table.ALL))
        await ours.start_server(ssl=trust)
        token = folder / "token"
        token.write_text(served.tokens["operator"] + "\n")
        trusting = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=ca))
        async with TestClient(ours, connector=trusting) as people:
            address = Address(f"https://127.0.0.1:{ours.port}", ca, token)
            yield Served(parts, people, served.tokens), address
