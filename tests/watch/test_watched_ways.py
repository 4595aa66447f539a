"""Each way by which a serving node's fault comes to us, from the simulated device to its alert."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import virtual_time
from serving import HOST, Serving, world

from provisioner.model.node import Node, State
from provisioner.model.outcome import Reason

Result = TypeVar("Result")
LEAF_PORT = ("leaf-su0-r0", "swp1s0")
Standing = dict[tuple[str, str], str]


def lived(
    folder: Path, story: Callable[[Serving], Awaitable[Result]], valid_s: int = 30 * 86400
) -> Result:
    """Tell a story about a released node that is watched, but not by streams."""

    async def main() -> Result:
        serving = Serving(world(folder, watch_s=300.0, watch_parts_s=600.0))
        await serving.release(valid_s)
        try:
            await serving.start(streams=False)
            return await story(serving)
        finally:
            await serving.stop()
            await serving.world.store.close()

    return virtual_time.run(main())


def fault(
    folder: Path, breaks: Callable[[Serving], None], ident: str
) -> tuple[Standing, bool, State]:
    """What stands after a fault of a well node, whether its certificate is revoked, its state."""

    async def story(serving: Serving) -> tuple[Standing, bool, State]:
        await serving.world.clock.sleep(700)  # counters and ports were seen once
        assert await serving.standing() == {}
        breaks(serving)
        assert await serving.until(lambda s: any(i == ident for i, _ in s), 2000)
        await serving.world.clock.sleep(30)
        revoked = await serving.world.store.evidence.is_revoked("c1")
        return await serving.standing(), revoked, (await serving.node()).state

    return lived(folder, story)


def test_a_fatal_counter_of_a_report_that_nobody_streams_is_polled_and_revokes(
    tmp_path: Path,
) -> None:
    def breaks(serving: Serving) -> None:
        serving.world.site.machines[HOST].devices["GPU_SXM_3"].traits["pcie_fatal"] = 1

    standing, revoked, state = fault(tmp_path, breaks, "FatalErrorCount")

    (((ident, target), source),) = standing.items()
    assert (ident, source) == ("FatalErrorCount", "telemetry/host")
    assert "GPU_SXM_3" in target
    assert (revoked, state) == (True, State.RELEASED)


def test_another_version_of_a_pinned_firmware_revokes(tmp_path: Path) -> None:
    def breaks(serving: Serving) -> None:
        serving.world.site.machines[HOST].firmware["host", "HGX_FW_BMC_0"].running = "9.9"

    standing, revoked, state = fault(tmp_path, breaks, "Drift")

    assert {ident for ident, _ in standing} == {"Drift"}
    assert (revoked, state) == (True, State.RELEASED)


def test_another_part_in_a_slot_revokes(tmp_path: Path) -> None:
    def breaks(serving: Serving) -> None:
        serving.world.site.machines[HOST].devices["GPU_SXM_5"].serial = "ANOTHER1"

    standing, revoked, state = fault(tmp_path, breaks, "PartSwap")

    assert list(standing) == [("PartSwap", "gpu/GPU_SXM_5")]
    assert (revoked, state) == (True, State.RELEASED)


def test_a_port_that_flaps_is_seen_at_its_leaf_and_revokes_nothing(tmp_path: Path) -> None:
    leaf, port = LEAF_PORT

    def breaks(serving: Serving) -> None:
        serving.world.site.switches[leaf].planted.flaps[port] = 4

    standing, revoked, _ = fault(tmp_path, breaks, "LinkFlap")

    assert list(standing) == [("LinkFlap", f"{leaf}/{port}")]
    assert not revoked


def test_a_cable_that_is_out_is_seen_at_its_leaf(tmp_path: Path) -> None:
    def breaks(serving: Serving) -> None:
        serving.world.site.machines[HOST].devices["NIC_0"].traits["link_down"] = 1

    standing, revoked, _ = fault(tmp_path, breaks, "LinkDown")

    assert list(standing) == [("LinkDown", "/".join(LEAF_PORT))]
    assert not revoked


def test_a_certificate_that_ends_is_told_and_not_revoked_while_the_node_serves(
    tmp_path: Path,
) -> None:
    async def story(serving: Serving) -> tuple[bool, bool, Node]:
        assert await serving.until(lambda s: ("CertificateAge", "") in s, 600)
        early = await serving.world.store.evidence.is_revoked("c1")
        await serving.world.clock.sleep(1800)
        return early, await serving.world.store.evidence.is_revoked("c1"), await serving.node()

    early, late, node = lived(tmp_path, story, valid_s=1500)

    assert (early, late, node.state) == (False, False, State.RELEASED)
    assert [b.reason for b in node.blockers] == [Reason.CERTIFICATE_EXPIRED]


def test_a_note_that_a_certificate_expired_ends_once_the_clock_is_right_again(
    tmp_path: Path,
) -> None:
    """A clock that is a year ahead for some minutes, as after a dead battery."""
    ahead = [0.0]

    async def noted(serving: Serving, wanted: bool) -> Node:
        for _ in range(120):  # an hour
            node = await serving.node()
            if wanted is (Reason.CERTIFICATE_EXPIRED in {b.reason for b in node.blockers}):
                return node
            await serving.world.clock.sleep(30.0)
        raise AssertionError((wanted, node.blockers))

    async def story(serving: Serving) -> tuple[Node, Node, bool]:
        clock = serving.world.clock
        right = clock.now
        clock.now = lambda: right() + ahead[0]
        await clock.sleep(700)
        ahead[0] = 365 * 86_400.0
        wrong = await noted(serving, wanted=True)
        ahead[0] = 0.0
        well = await noted(serving, wanted=False)
        return wrong, well, await serving.world.store.evidence.is_revoked("c1")

    wrong, well, revoked = lived(tmp_path, story)

    assert [b.reason for b in wrong.blockers] == [Reason.CERTIFICATE_EXPIRED]
    assert (wrong.state, well.state, well.blockers) == (State.RELEASED, State.RELEASED, ())
    assert (well.certificate, revoked) == ("c1", False)
