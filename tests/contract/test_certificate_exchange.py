"""A BMC gets a certificate of the site's authority, and is never locked out: on simulated BMCs.

A death is put at every moment of an exchange in turn: at each request, at the authority, and at
each write of the node's row. Then a daemon starts again with what was stored.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from crashes import FATES, Fuse, FusedBmcs, Killed
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from exchange_bench import FACTORY, ExchangeBench
from virtual_time import run

from provisioner.control.context import Context
from provisioner.control.node.credential_rotator import CertificateExchanger
from provisioner.control.watch.credential_keeper import CertificateKeeper
from provisioner.integrations.twin.wires import MemoryBmcs
from provisioner.model.machine.settings import PINS_MAX, add_pin, split_pins
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import BmcAddress, Call, CertificateChanged, Reply

DAY_S = 86400.0


class FusedAuthority:
    """An authority that may die with the daemon."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
        self._inner, self._fuse = inner, fuse

    async def sign(self, *asked_for: str) -> str | Blocker:
        answer: str = await self._fuse.moment(lambda: self._inner.sign(*asked_for), wire=False)
        return answer


class FusedHold:
    """A hold whose writes are moments."""

    def __init__(self, inner: Any, fuse: Fuse) -> None:
        self._inner, self._fuse = inner, fuse
        self.operation = inner.operation

    async def record(self, **values: Any) -> Any:
        return await self._fuse.moment(lambda: self._inner.record(**values), wire=False)


async def exchange_fused(bench: ExchangeBench, fuse: Fuse) -> Blocker | None:
    bmcs = FusedBmcs(bench.transport, fuse)
    authority = FusedAuthority(bench.authority, fuse)
    return await bench.exchange(bmcs, authority, FusedHold(await bench.hold(), fuse))


@pytest.mark.parametrize(
    ("vendor", "slot"), [("dell", "host"), ("ami_dgx", "host"), ("dell", "DPU_0")]
)
def test_a_bmc_presents_the_authoritys_certificate_and_only_that_is_accepted(
    vendor: str, slot: str
) -> None:
    async def scenario() -> None:
        bench = await ExchangeBench(vendor, slot).begin()
        assert await bench.exchange() is None
        pin = await bench.settled()
        ref = await bench.read_ref()
        days = (ref.certificate_ends_at - bench.clock.now()) / DAY_S
        assert 364 < days < 366
        ((name, host, request),) = bench.authority.requests
        assert (name, host) == ("n1/host", "bmc.test")
        subject = x509.load_pem_x509_csr(request.encode()).subject.rfc4514_string()
        for part in ("CN=bmc.test", "C=DE", "ST=Hessen", "L=Frankfurt", "O=Example", "OU=Compute"):
            assert part in subject
        events = [e for e in await bench.store.journal.list(0, 100) if "certificate" in str(e)]
        assert pin in str(events)
        old = BmcAddress("https://bmc.test", pin=FACTORY)
        with pytest.raises(CertificateChanged):
            await bench.transport.request(old, Call("GET", "/redfish/v1"))

    run(scenario())


@pytest.mark.parametrize(
    ("trouble", "fate"), [*(("", fate) for fate in FATES), ("late_certificate", "killed after it")]
)
def test_a_death_at_any_moment_of_an_exchange_locks_nobody_out(trouble: str, fate: str) -> None:
    async def scenario() -> None:
        bench = await ExchangeBench().begin()
        bench.bmc.troubles |= {trouble}
        fuse = Fuse()
        assert await exchange_fused(bench, fuse) is None
        for at in range(1, fuse.seen + 1):
            await bench.begin()
            with suppress(Killed):
                await exchange_fused(bench, Fuse(at, fate))
            assert await bench.opens(), (at, fate)
            await bench.clock.sleep(2 * DAY_S)
            assert await bench.opens(), (at, fate)
            assert await bench.exchange() is None, (at, fate)
            await bench.settled()

    run(scenario())


def test_a_bmc_that_wants_a_restart_for_its_certificate_gets_one() -> None:
    async def scenario() -> None:
        bench = await ExchangeBench().begin()
        bench.bmc.troubles.add("late_certificate")
        boots = bench.bmc.boots
        assert await bench.exchange() is None
        assert bench.bmc.boots == boots + 1
        await bench.settled()

    run(scenario())


def test_a_bmc_that_silently_keeps_its_certificate_is_named_and_stays_reachable() -> None:
    async def scenario() -> None:
        bench = await ExchangeBench().begin()
        bench.bmc.troubles.add("same_certificate")
        for attempt in range(1, PINS_MAX + 3):
            problem = await bench.exchange()
            assert problem is not None
            assert problem.reason is Reason.NOT_ACTIVATED
            ref = await bench.read_ref()
            assert split_pins(ref.pin)[0] == FACTORY, "the one in force is never given up"
            assert len(split_pins(ref.pin)) == min(attempt + 1, PINS_MAX)
            assert await bench.opens()
            assert ref.certificate_retry_at == bench.clock.now() + DAY_S
            await bench.clock.sleep(2 * DAY_S)
        bench.bmc.troubles.clear()
        assert await bench.exchange() is None
        await bench.settled()

    run(scenario())


class Late(MemoryBmcs):
    """The certificate is accepted, and comes into force only when a person restarts the BMC."""

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        if call.path.endswith("Manager.Reset"):
            return Reply(204, {}, b"")
        return await super().request(bmc, call)


def test_a_certificate_that_comes_into_force_late_is_recognized() -> None:
    async def scenario() -> None:
        bench = await ExchangeBench().begin()
        bench.bmc.troubles.add("late_certificate")
        late = Late(bench.transport._services, bench.transport._wire)
        assert isinstance(await bench.exchange(late), Blocker)
        bench.machine.bmc_reset("host", bench.clock.now())
        await bench.clock.sleep(600.0)
        assert await bench.opens()
        requests = len(bench.authority.requests)
        assert await bench.exchange() is None
        assert len(bench.authority.requests) == requests, "nothing is signed again"
        await bench.settled()

    run(scenario())


@pytest.mark.parametrize("fault", ["another key", "short", "nonsense"])
def test_a_certificate_that_does_not_fit_is_refused_before_the_bmc_hears_of_it(fault: str) -> None:
    async def scenario() -> None:
        bench = await ExchangeBench().begin()
        if fault == "another key":
            bench.authority.for_key = ec.generate_private_key(ec.SECP256R1()).public_key()
        elif fault == "short":
            bench.authority.days = 20.0
        else:

            class Nonsense:
                async def sign(self, *_: str) -> str:
                    return "no certificate"

            bench.authority = Nonsense()
        problem = await bench.exchange()
        assert problem is not None
        assert problem.reason is Reason.REFUSED
        wording = {"another key": "another key", "short": "ends in 19 days", "nonsense": "printed"}
        assert wording[fault] in problem.detail
        assert (await bench.read_ref()).pin == FACTORY
        assert bench.bmc.certificate == b""

    run(scenario())


def test_a_bmc_without_such_a_service_is_named() -> None:
    async def scenario() -> None:
        bench = await ExchangeBench("lenovo").begin()
        problem = await bench.exchange()
        assert problem is not None
        assert problem.reason is Reason.NOT_OFFERED
        assert (await bench.read_ref()).pin == FACTORY

    run(scenario())


def test_certificates_are_exchanged_once_and_renewed_before_their_end() -> None:
    async def scenario() -> None:
        bench = await ExchangeBench().begin()
        bench.authority.days = 60.0  # the virtual clock stands still after some 97 days
        context = Context(bench.store, bench.clock, bench.settings)
        exchanger = CertificateExchanger(context, bench.build_site(), bench.authority)
        opened: list[str] = []

        async def submit(operation: str) -> None:
            opened.append(operation)
            await exchanger.drive(await bench.hold())

        keeper = CertificateKeeper(context, submit, signs=True)
        assert await keeper.tick()
        first = await bench.settled()
        assert not await keeper.tick()
        await bench.clock.sleep(29 * DAY_S)
        assert not await keeper.tick()
        await bench.clock.sleep(2 * DAY_S)
        assert await keeper.tick()
        assert await bench.settled() != first
        assert len(opened) == 2
        # the setting is gone: only what began is brought to its end
        keeper = CertificateKeeper(context, submit, signs=False)
        await bench.clock.sleep(40 * DAY_S)
        assert not await keeper.tick()

    run(scenario())


def test_pins_are_one_text() -> None:
    assert split_pins("AA:BB, cc") == ("aabb", "cc")
    assert add_pin("aa", "bb") == "aa,bb"
    assert add_pin("aa,bb", "bb") == "aa,bb"
