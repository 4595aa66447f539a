"""What proves that a BlueField's storage was wiped, and where it is left alone."""

from __future__ import annotations

import pytest

from provisioner.model.erasure import Result
from provisioner.planning.erasure.bmc_defaults import explain_no_wipe, judge_wipe
from provisioner.settings import Settings

BOTH = ("EmmcWipe", "NvmeWipe")


@pytest.mark.parametrize(
    ("waiting", "states", "result", "sentence"),
    [
        ((), ("BL2", None, "UEFI"), Result.DONE, "for 600 s the card came to UEFI"),
        ((), ("BL2", "UEFI", None), Result.NOT_DONE, "no progress of its boot"),
        ((), ("UEFI", "OsIsRunning"), Result.NOT_DONE, "former system still starts"),
        ((), ("OsIsRunning", "UEFI"), Result.NOT_DONE, "former system still starts"),
        (("NvmeWipe",), ("UEFI",), Result.NOT_DONE, "NvmeWipe still waits"),
        ((), (None, None), Result.NOT_DONE, "no progress of its boot"),
        ((), (), Result.NOT_DONE, "no progress of its boot"),
    ],
)
def test_a_wipe_is_done_when_the_former_system_does_not_start(
    waiting: tuple[str, ...], states: tuple[str | None, ...], result: Result, sentence: str
) -> None:
    judged = judge_wipe(BOTH, waiting, states, 600.0)

    assert judged[0] is result
    assert sentence in judged[1]


@pytest.mark.parametrize(
    ("offered", "followed", "sentence"),
    [
        (BOTH, {"DPU_0"}, ""),
        (BOTH, {"DPU_1"}, "would have no system"),
        ((), {"DPU_0"}, "shows no order"),
    ],
)
def test_a_card_is_wiped_only_where_a_system_is_written_afterwards(
    offered: tuple[str, ...], followed: set[str], sentence: str
) -> None:
    why = explain_no_wipe("DPU_0", offered, followed)

    assert sentence in why
    assert bool(why) is bool(sentence)


def test_a_site_that_writes_no_cards_is_refused() -> None:
    with pytest.raises(ValueError, match="without a system"):
        Settings(site="test", erase_card_storage=True)
    assert Settings(site="test", erase_card_storage=True, erase_rewrites="card").erase_card_storage
