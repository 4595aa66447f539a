"""The two fabrics behind the port `Isolation`, each with a hand on the truth behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fabrics import tenant
from leaf_rig import Rig
from ufm_standin import Ufm

from provisioner.execution.tenancy.vrf_fabric import VrfIsolation
from provisioner.integrations.ufm.isolation import UfmIsolation, UfmTransport
from provisioner.model.tenant import MAINTENANCE_VRF
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports import Isolation, Member

RED, BLUE = tenant("red", 0), tenant("blue", 1)


def vrf_isolation(rig: Rig, ports: Any = None) -> VrfIsolation:
    effects = rig.effects
    return VrfIsolation(
        rig.store, AddressPlan(), effects.reach, effects.clock, effects.settings, ports
    )


class Bench:
    """One fabric behind the port, with a hand on the truth behind it."""

    isolation: Isolation
    members: tuple[Member, ...]
    changes: Callable[[], int]  # requests so far that may change something
    truth: Callable[[Member], set[str]]
    silence: Callable[[], Awaitable[None]]
    lose: Callable[[int], None]  # the answer to the n-th change from now on gets lost
    deafen: Callable[[], None]  # changes are taken, and nothing comes of them


@asynccontextmanager
async def ethernet() -> AsyncIterator[Bench]:
    rig = await Rig(nodes=2, switch_apply_limit_s=60.0).open()
    bench = Bench()
    bench.isolation = vrf_isolation(rig, rig.tenancy)
    bench.members = tuple(
        Member(p.switch, p.interface, p.address) for p in rig.nodes["su0-n00"].ports[:2]
    )
    await rig.tenancy.move(rig.nodes["su0-n00"].ports, MAINTENANCE_VRF)
    writes = [0, 0]

    def changes() -> int:
        return sum(1 for _, method, _ in rig.switches.calls if method != "GET")

    def truth(member: Member) -> set[str]:
        rig.site.advance()
        return {rig.site.switches[member.device].get_vrf(member.name)}

    async def silence() -> None:
        rig.site.nvue[bench.members[0].device].reachable = lambda: False

    def lose(nth: int) -> None:
        writes[:] = [0, nth]

        def lost(_n: int, method: str, _path: str) -> bool:
            writes[0] += method != "GET"
            return method != "GET" and writes[0] == writes[1]

        rig.switches.lose = lost

    def deafen() -> None:
        for switch in rig.site.switches.values():
            switch.faults.add("moves_ignored")

    bench.changes, bench.truth, bench.silence = changes, truth, silence
    bench.lose, bench.deafen = lose, deafen
    try:
        yield bench
    finally:
        await bench.isolation.close()
        await rig.store.close()


@asynccontextmanager
async def infiniband() -> AsyncIterator[Bench]:
    async with Ufm() as ufm:
        bench = Bench()
        bench.isolation = UfmIsolation(UfmTransport(ufm.address()), default_limited=True)
        bench.members = (Member("", "506b4b0300a1b200"), Member("", "0x506B4B0300A1B201"))
        names = {0xFF: MAINTENANCE_VRF, RED.pkey: "RED", BLUE.pkey: "BLUE"}
        await bench.isolation.place(bench.members, MAINTENANCE_VRF, ())

        def changes() -> int:
            return sum(1 for method, _ in ufm.requests if method != "GET")

        def truth(member: Member) -> set[str]:
            guid = member.name.lower().removeprefix("0x")
            return {name for pkey, name in names.items() if guid in ufm.members(pkey)}

        def lose(nth: int) -> None:
            writes = [0]

            def lost(_n: int, method: str) -> bool:
                writes[0] += method != "GET"
                return method != "GET" and writes[0] == nth

            ufm.lose = lost

        def deafen() -> None:
            ufm.deaf = True

        bench.changes, bench.truth, bench.silence = changes, truth, ufm.stop
        bench.lose, bench.deafen = lose, deafen
        try:
            yield bench
        finally:
            await bench.isolation.close()
