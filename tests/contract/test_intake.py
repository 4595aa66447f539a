"""A BMC's password is ours, unique and known, wherever a crash falls: on simulated BMCs.

A crash is put at every moment of a rotation in turn: at each request and at each write of the
vault. Then the daemon starts again, with nothing but what the vault kept.
"""

from __future__ import annotations

import random
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from crashes import BMCS, FACTORY, FATES, NAME, URL, Bench, Fuse, Killed
from rig import MemoryBmcs, Wire
from virtual_time import run

from provisioner.execution.observe.rotation import PASSWORD_LENGTH, new_password
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import BmcAddress, Call, Reply, Unreachable


async def struck(work: Coroutine[Any, Any, BmcAddress | Blocker]) -> None:
    """It ends by the crash, by the lost request, or well; a passing loss is no verdict."""
    try:
        result = await work
    except (Killed, Unreachable):
        return
    assert isinstance(result, BmcAddress), result


async def moments(vendor: str) -> int:
    """How many moments an undisturbed rotation has; at the end of it all is well."""
    bench, fuse = Bench(vendor), Fuse()
    await bench.deliver()
    assert isinstance(await bench.rotate(fuse), BmcAddress)
    await bench.settled()
    return fuse.seen


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("vendor", BMCS)
def test_a_crash_at_any_moment_leaves_one_unique_password_that_works(
    vendor: str, fate: str
) -> None:
    async def scenario() -> None:
        passwords = []
        for at in range(1, await moments(vendor) + 1):
            bench = Bench(vendor)
            await bench.deliver()
            await struck(bench.rotate(Fuse(at, fate)))
            assert isinstance(await bench.rotate(Fuse()), BmcAddress), (at, fate)
            passwords.append(await bench.settled())
        assert len(set(passwords)) == len(passwords) > 2

    run(scenario())


def test_two_crashes_at_any_two_moments_do_no_more_harm_than_one() -> None:
    async def scenario() -> None:
        rng = random.Random(7)
        count = await moments("nvidia_openbmc")
        for first in range(1, count + 1):
            for second in range(1, count + 1):
                bench = Bench("nvidia_openbmc")
                await bench.deliver()
                await struck(bench.rotate(Fuse(first, rng.choice(list(FATES)))))
                await struck(bench.rotate(Fuse(second, rng.choice(list(FATES)))))
                assert isinstance(await bench.rotate(Fuse()), BmcAddress), (first, second)
                await bench.settled()

    run(scenario())


def test_a_pending_password_in_force_is_recognised_and_not_changed_again() -> None:
    async def scenario() -> None:
        bench = Bench("supermicro")
        await bench.deliver()
        new = new_password()
        await bench.vault.begin(NAME, bench.account.username, new)
        bench.account.password = new.reveal()  # the BMC had said yes when the daemon died

        ours = await bench.rotate(Fuse())
        assert isinstance(ours, BmcAddress)
        assert ours.secret == new
        assert await bench.settled() == new.reveal()

    run(scenario())


@pytest.mark.parametrize("fate", FATES)
def test_discovery_takes_up_a_change_that_it_did_not_finish(fate: str) -> None:
    """A BlueField gets its password at discovery, before any node has it."""

    async def scenario() -> None:
        fuse, whole = Fuse(), Bench("nvidia_openbmc")
        found, _ = await whole.introduce(fuse)
        assert [f.endpoint.rotated for f in found] == [True]
        for at in range(1, fuse.seen + 1):
            bench = Bench("nvidia_openbmc")
            with suppress(Killed):  # a lost request is named, and nothing is raised
                await bench.introduce(Fuse(at, fate))
            found, silent = await bench.introduce(Fuse())
            assert silent == (), (at, silent)
            assert [f.endpoint.rotated for f in found] == [True]
            assert found[0].secret.reveal() == await bench.settled(f"endpoint/{URL}")

    run(scenario())


def test_a_bmc_that_refuses_the_new_password_keeps_the_old_one_and_is_named() -> None:
    async def scenario() -> tuple[Blocker | BmcAddress, str]:
        bench = Bench("supermicro")
        await bench.deliver()
        accounts = bench.service.accounts
        accounts.shape = replace(accounts.shape, password_min=PASSWORD_LENGTH + 1)
        result = await bench.rotate(Fuse())
        known = await bench.vault.current(NAME)
        assert known is not None
        assert known[1].reveal() == bench.account.password == FACTORY
        accounts.shape = replace(accounts.shape, password_min=8)  # a person changed its policy
        assert isinstance(await bench.rotate(Fuse()), BmcAddress)
        return result, await bench.settled()

    result, _ = run(scenario())

    assert isinstance(result, Blocker)
    assert (result.reason, bool(result.unblock)) == (Reason.REFUSED, True)


@pytest.mark.parametrize("status", [200, 404, 503])
def test_nonsense_after_the_change_is_never_taken_for_a_yes(status: int) -> None:
    """A BMC that restarts in the middle of it, or lies: the answer's shape proves nothing."""

    class Nonsense(MemoryBmcs):
        changed = False

        async def request(self, bmc: BmcAddress, call: Call) -> Reply:
            if self.changed and call.path.rstrip("/") != "/redfish/v1":
                return Reply(status, {}, b"{}")
            reply = await super().request(bmc, call)
            self.changed = self.changed or call.method == "PATCH"
            return reply

    async def scenario() -> None:
        bench = Bench("supermicro")
        await bench.deliver()
        good = bench.bmcs
        bench.bmcs = Nonsense({URL: bench.service}, Wire(random.Random(7), lost=0.0))
        with pytest.raises(Unreachable):
            await bench.rotate(Fuse())
        assert await bench.vault.pending(NAME) is not None
        bench.bmcs = good
        assert isinstance(await bench.rotate(Fuse()), BmcAddress)
        await bench.settled()

    run(scenario())


def test_a_bmc_that_says_yes_and_does_nothing_is_not_believed() -> None:
    class Liar(MemoryBmcs):
        async def request(self, bmc: BmcAddress, call: Call) -> Reply:
            return (
                Reply(200, {}, b"{}")
                if call.method == "PATCH"
                else await super().request(bmc, call)
            )

    async def scenario() -> Blocker | BmcAddress:
        bench = Bench("supermicro")
        await bench.deliver()
        bench.bmcs = Liar({URL: bench.service}, Wire(random.Random(7), lost=0.0))
        result = await bench.rotate(Fuse())
        known = await bench.vault.current(NAME)
        assert known is not None
        assert known[1].reveal() == FACTORY, "the one that works is still the current one"
        return result

    result = run(scenario())

    assert isinstance(result, Blocker)
    assert result.reason is Reason.LOGIN_REFUSED


def test_new_passwords_fit_every_vendor_and_never_repeat() -> None:
    made = [new_password().reveal() for _ in range(1000)]

    assert len(set(made)) == 1000
    for password in made:
        assert len(password) == PASSWORD_LENGTH
        kinds = [str.isupper, str.islower, str.isdigit, lambda c: c in "-_.+"]
        assert all(any(kind(c) for c in password) for kind in kinds)


def test_a_bmc_whose_root_is_empty_has_no_accounts_and_keeps_its_password() -> None:
    class Empty(MemoryBmcs):
        async def request(self, bmc: BmcAddress, call: Call) -> Reply:
            return Reply(200, {}, b"{}")

    async def scenario() -> Blocker | BmcAddress:
        bench = Bench("supermicro")
        await bench.deliver()
        bench.bmcs = Empty({URL: bench.service}, Wire(random.Random(7), lost=0.0))
        return await bench.rotate(Fuse())

    result = run(scenario())

    assert isinstance(result, Blocker)
    assert result.reason is Reason.NOT_OFFERED
