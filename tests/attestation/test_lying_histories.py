"""No validation passes while one root of trust has other firmware, whatever its BMC does."""

from __future__ import annotations

import json

import pytest
from lying_histories import main, run


def test_no_history_of_a_lying_bmc_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(150) == 0

    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert answer["wrongly_passed"] == 0
    assert answer["validations_passed"] > 20


@pytest.mark.long
def test_no_history_of_a_lying_bmc_passes_in_10_000() -> None:
    passed, wrong = run(range(10_000))

    assert wrong == 0
    assert passed > 2_000
