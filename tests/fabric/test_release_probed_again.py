"""Addresses that answer late are probed again; a packet where none may arrive ends it."""

from __future__ import annotations

from typing import Any

from release_rig import SERVER, Bench, bad, play

from provisioner.model.recovery import GateCheck

TWO = frozenset({3, 7})


def storage_late(bench: Bench) -> None:
    """The storage server answers from the second round of probes on."""
    for switch in bench.switches.values():
        switch.servers.pop(SERVER, None)
    bench.when_reached(
        lambda: [s.servers.update({SERVER: "STORE"}) for s in bench.switches.values()]
    )


def test_storage_that_answers_late_is_probed_again_as_long_as_the_site_says() -> None:
    async def scenario(bench: Bench) -> Any:
        storage_late(bench)
        return await bench.release()

    short, long = (play(scenario, TWO, release_settle_s=s) for s in (0.05, 20.0))

    assert GateCheck.REACHES in {r.check for r in bad(short)}
    assert bad(long) == ()


def test_a_packet_that_arrives_where_it_must_not_is_not_probed_again() -> None:
    async def scenario(bench: Bench) -> Any:
        storage_late(bench)
        for switch in bench.switches.values():
            switch.servers["10.250.0.1"] = "RED"
        began = bench.rig.clock.now()
        outcome = await bench.release()
        return outcome, bench.rig.clock.now() - began

    outcome, took = play(scenario, TWO, release_settle_s=300.0)

    assert {GateCheck.REACHES, GateCheck.SHUT_OUT} <= {r.check for r in bad(outcome)}
    assert took < 100.0
