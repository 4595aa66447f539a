"""A certificate that ends or is revoked while its node serves: an alert, or a drain with notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import virtual_time
from serving import HOST, Serving, world

from provisioner.model.case import Case, Origin, Service
from provisioner.model.node import Node, State

HOUR_S, NOTICE_S = 3600.0, 7200.0


def lived(folder: Path, policy: str, *, revoked: bool) -> list[tuple[Node, tuple[Case, ...], set]]:
    """The node, its cases and its alerts: before, within the notice, and after it."""

    async def main() -> list[tuple[Node, tuple[Case, ...], set]]:
        settings: dict[str, Any] = {"certificate_lapsed": policy, "repair_notice_s": NOTICE_S}
        site = world(folder, **settings)
        site.cases = cases = site.store.cases
        serving = Serving(site)
        await serving.release(valid_s=int(24 * HOUR_S if revoked else HOUR_S))
        looks = []
        try:
            await serving.start()
            pauses = (0.5 * HOUR_S, HOUR_S, NOTICE_S)
            for number, pause in enumerate(pauses):
                if number == 1 and revoked:
                    await site.store.evidence.revoke("c1", "by hand", site.clock.now())
                await site.clock.sleep(pause)
                standing = {name for name, _ in await serving.standing()}
                looks.append((await serving.node(), tuple(await cases.list(HOST)), standing))
            return looks
        finally:
            await serving.stop()

    return virtual_time.run(main())


AGAIN = pytest.mark.long  # each way out of validity and each policy stay in every run once


@pytest.mark.slow
@pytest.mark.parametrize(
    "revoked", [pytest.param(False, marks=AGAIN), True], ids=["expired", "revoked"]
)
def test_by_policy_it_is_drained_once_the_notice_has_run_out(tmp_path: Path, revoked: bool) -> None:
    before, noticed, after = lived(tmp_path, "drain", revoked=revoked)

    assert (before[0].state, before[1]) == (State.RELEASED, ())
    node, (case,), standing = noticed
    assert (node.state, "CertificateAge" in standing) == (State.RELEASED, True)
    assert (case.origin, case.service, case.tenant) == (Origin.WORK, Service.DRAIN, "red")
    assert case.drain_at == pytest.approx(case.opened_at + NOTICE_S)
    assert "it is proved anew" in case.reason
    assert after[0].state is not State.RELEASED
    assert after[0].served == "red"


@pytest.mark.slow
@pytest.mark.parametrize(
    "revoked", [False, pytest.param(True, marks=AGAIN)], ids=["expired", "revoked"]
)
def test_by_default_it_serves_on_under_an_alert(tmp_path: Path, revoked: bool) -> None:
    *_, (node, cases, standing) = lived(tmp_path, "alert", revoked=revoked)

    assert (node.state, cases) == (State.RELEASED, ())
    assert "CertificateAge" in standing
