"""Machine owner keys are compared with the image's own and the site's."""

from __future__ import annotations

import pytest

from provisioner.model.erasure import Result
from provisioner.planning.erasure.bmc_defaults import OF_THE_IMAGE, judge_owner_keys

SITE, PLANTED = "AB" * 32, "5f" * 32
PROGRAM = f"program {'01' * 32}"


def answered(*keys: str, verifies: object = True) -> dict[str, object]:
    return {"result": "done", "detail": "", "keys": list(keys), "verifies": verifies}


@pytest.mark.parametrize(
    ("answer", "result", "sentence"),
    [
        (answered(OF_THE_IMAGE), Result.DONE, "1 keys, all of the image's shim"),
        (answered(OF_THE_IMAGE, SITE.lower()), Result.DONE, "2 keys"),
        (answered(OF_THE_IMAGE, PLANTED), Result.NOT_DONE, f"{PLANTED[:32]}; reset them at the"),
        (answered(OF_THE_IMAGE, PROGRAM), Result.NOT_DONE, "program 01"),
        (answered(OF_THE_IMAGE, verifies=False), Result.NOT_DONE, "mokutil --enable-validation"),
        (answered(*(f"{n:064x}" for n in range(9))), Result.NOT_DONE, "and 5 more"),
        (answered(*["x"] * 600), Result.NOT_DONE, "cannot be read"),
        (answered(OF_THE_IMAGE, verifies="yes"), Result.NOT_DONE, "cannot be read"),
        ({"result": "done", "keys": "all"}, Result.NOT_DONE, "cannot be read"),
        ({"result": "unsupported", "detail": "no shim"}, Result.UNSUPPORTED, "no shim"),
        ("nonsense", Result.NOT_DONE, "the agent's answer"),
    ],
)
def test_keys_that_neither_the_image_nor_the_site_has_are_named(
    answer: object, result: Result, sentence: str
) -> None:
    judged = judge_owner_keys(answer, [SITE])

    assert judged[0] is result
    assert sentence in judged[1]
