"""A simulated BMC whose certificate is pinned, an authority, and daemons that come and go."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import Site as Effects
from provisioner.execution.observe.certificate_exchange import CertificateExchange
from provisioner.integrations.sim.hardware.build import build_machine
from provisioner.integrations.sim.hardware.clock import Schedule
from provisioner.integrations.sim.redfish.bmc import make_service
from provisioner.integrations.twin.loop import VirtualClock
from provisioner.integrations.twin.wires import MemoryBmcs, Wire, present_certificate
from provisioner.model.machine.settings import split_pins
from provisioner.model.node import BmcRef, Node, NodeKind, State
from provisioner.model.outcome import Blocker
from provisioner.planning.lifecycle.credential_rotation import BMC_CERTIFICATES_WANT as WANT
from provisioner.ports import Secret
from provisioner.settings import Settings
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import open_store

URL = "https://bmc.test"
FACTORY = "00" * 32
SUBJECT = "C=DE,ST=Hessen,L=Frankfurt,O=Example,OU=Compute"
SETTINGS = {
    "site": "test",
    "bmc_ca_command": ("/usr/bin/false",),  # the tests' authority is in the process
    "bmc_certificate_subject": SUBJECT,
}


class Authority:
    """Signs each request with a key of its own."""

    def __init__(self, clock: VirtualClock, days: float = 365.0) -> None:
        self.clock = clock
        self.days = days
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.requests: list[tuple[str, str, str]] = []
        self.for_key: Any = None  # a certificate for another key than the request's

    async def sign(self, bmc: str, host: str, request: str) -> str | Blocker:
        self.requests.append((bmc, host, request))
        csr = x509.load_pem_x509_csr(request.encode())
        begins = datetime.fromtimestamp(self.clock.now(), UTC) - timedelta(hours=1)
        issued = (
            x509.CertificateBuilder()
            .subject_name(csr.subject)
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Site CA")]))
            .public_key(self.for_key or csr.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(begins + timedelta(days=self.days))
            .sign(self.key, hashes.SHA256())
        )
        return issued.public_bytes(Encoding.PEM).decode()


class ExchangeBench:
    """One host with one BMC; `exchange` is what a new daemon does. `slot`: a card's instead."""

    def __init__(self, vendor: str = "dell", slot: str = "host", **more: Any) -> None:
        self.clock = VirtualClock()
        self.machine = build_machine("n", Schedule(), 7, vendor=vendor)
        self.bmc = self.machine.bmcs[slot]
        self.service = make_service(self.machine, slot, self.clock)
        for account in self.service.accounts.accounts.values():
            account.change_required = False
        self.transport: Any = MemoryBmcs({URL: self.service}, Wire(random.Random(7), lost=0.0))
        self.store: Any = open_store(":memory:", inline=True)
        self.vault = Vault(self.store, MasterKey.generate())
        self.authority: Any = Authority(self.clock)
        self.settings = Settings.model_validate({**SETTINGS, **more})
        self.count = 0
        self.node = ""

    async def begin(self) -> ExchangeBench:
        """Store a node with its login, as intake leaves them; its BMC is as the factory left it."""
        self.count += 1
        self.node = f"n{self.count}"
        self.bmc.certificate = b""
        self.bmc.certificate_next = None
        await self.vault.put(f"{self.node}/host", self.bmc.username, Secret(self.bmc.password))
        ref = BmcRef(name="host", url=URL, pin=FACTORY, rotated=True)
        await self.store.nodes.add(
            Node(id=self.node, kind=NodeKind.HOST, state=State.CERTIFIED, bmcs=(ref,))
        )
        return self

    def build_site(self, transport: Any = None) -> Effects:
        """Return what effects need of a daemon."""
        nothing: Any = None
        bmcs = transport or self.transport
        reach = Reach(bmcs, nothing, self.vault, pause=self.clock.sleep)
        return Effects(self.clock, self.settings, reach, nothing, nothing, nothing, nothing)

    async def hold(self) -> Hold:
        """Return the hold of a new driver of the operation."""
        active = [o for o in await self.store.operations.list_active() if o.node == self.node]
        operation = active[0] if active else await self.store.operations.open(self.node, WANT, 0.0)
        return Hold(self.store, self.clock, await self.store.operations.take(operation.id))

    async def exchange(
        self, transport: Any = None, authority: Any = None, hold: Any = None
    ) -> Blocker | None:
        """A new daemon exchanges the certificate, or goes on with it."""
        return await CertificateExchange(
            self.build_site(transport),
            self.store,
            authority or self.authority,
            hold or await self.hold(),
            "host",
        ).run()

    async def read_ref(self) -> BmcRef:
        """Return the BMC as it is stored."""
        node = await self.store.nodes.get(self.node)
        return node.bmcs[0]

    async def opens(self) -> bool:
        """Return whether the stored pins accept the certificate that the BMC presents."""
        presented = present_certificate(self.service) or FACTORY
        return presented in split_pins((await self.read_ref()).pin)

    async def settled(self) -> str:
        """Return the only pin, which is the presented certificate of the authority."""
        ref = await self.read_ref()
        assert ref.pin == present_certificate(self.service) != ""
        return ref.pin
