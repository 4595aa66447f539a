"""Which maintenance image a node may boot: one that is pinned, in production by its bytes."""

from __future__ import annotations

import pytest

from provisioner.execution.steps.maintenance_boot import find_image_fault
from provisioner.model.matrix import UNKNOWN, Pin

BUILT = Pin(version="ab" * 32, artifact="maintenance.iso", sha256="cd" * 32)


def test_a_built_image_is_booted():
    assert find_image_fault(BUILT, production=True) == ""


@pytest.mark.parametrize(
    "image", [None, Pin(version=UNKNOWN), Pin(version=UNKNOWN, artifact="x"), Pin(version="1")]
)
@pytest.mark.parametrize("production", [True, False])
def test_an_image_that_nobody_built_is_not(image, production):
    assert "no maintenance image" in find_image_fault(image, production=production)


def test_an_image_without_a_digest_is_for_laboratories_only():
    image = BUILT.model_copy(update={"sha256": ""})

    assert find_image_fault(image, production=False) == ""
    assert "SHA-256" in find_image_fault(image, production=True)
