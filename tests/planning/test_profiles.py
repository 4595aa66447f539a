"""Which profile a node is for: by whole tokens of GPU models, and by how many GPUs it shows."""

from __future__ import annotations

import pytest

from provisioner.model.inventory import Device, Inventory
from provisioner.model.matrix import Match, Profile, Release
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.matrix.matrix_rules import may_overlap
from provisioner.planning.path.model_names import matches_token
from provisioner.planning.path.profiles import choose_profile


def inventory(model: str, count: int) -> Inventory:
    gpus = tuple(
        Device(kind="gpu", slot=f"GPU_{n}", model=model, serial=str(n)) for n in range(count)
    )
    return Inventory(node="n1", vendor="x", devices=gpus)


def release(**globs: tuple[str, int]) -> Release:
    matches = {
        name: Match(gpu_models=(glob,), devices={"gpu": count} if count else {})
        for name, (glob, count) in globs.items()
    }
    return Release(profiles={name: Profile(match=m, pins={}) for name, m in matches.items()})


@pytest.mark.parametrize(
    ("glob", "model", "fits"),
    [
        ("*H200*", "NVIDIA H200", True),
        ("*H200*", "NVIDIA GH200 96GB HBM3", False),  # NVIDIA/libredfish, mockups/nvidia_gh200
        ("*GH200*", "NVIDIA GH200 96GB HBM3", True),
        ("*B200*", "NVIDIA GB200", False),
        ("*H100*", "NVIDIA H100 80GB HBM3", True),
        ("*h100*", "GH100 [H100 SXM5 80GB]", True),
        ("*H20*", "NVIDIA H200", False),
        ("*MI300*", "AMD MI300X OAM", True),
        ("H100", "H100", True),
        ("H100", "NVIDIA H100", False),
        ("*[H]200*", "GH200", True),
        ("*", "anything", True),
    ],
)
def test_a_model_is_matched_by_whole_tokens(glob: str, model: str, fits: bool) -> None:
    assert matches_token(glob, model) is fits


@pytest.mark.parametrize(
    ("model", "count", "profile"),
    [
        ("NVIDIA H200", 8, "h200"),
        ("NVIDIA H200", 7, "h200"),  # the bill of materials names the dead one
        ("NVIDIA H200", 5, "h200"),
        ("NVIDIA H200", 4, None),  # a board of four is another machine
        ("NVIDIA H200", 2, None),
        ("NVIDIA H200", 16, None),
        ("NVIDIA GH200 96GB HBM3", 2, "gh200"),
        ("NVIDIA GH200 96GB HBM3", 8, None),
    ],
)
def test_a_node_with_another_number_of_gpus_is_another_machine(
    model: str, count: int, profile: str | None
) -> None:
    wanted = release(h200=("*H200*", 8), gh200=("*GH200*", 2))

    chosen = choose_profile(inventory(model, count), wanted)

    if profile is None:
        assert isinstance(chosen, Blocker)
        assert chosen.reason is Reason.NO_PROFILE
        assert f"{count} of {model}" in chosen.detail
    else:
        assert chosen == profile


def test_a_service_that_shows_no_gpu_is_not_counted() -> None:
    only = Release(profiles={"x": Profile(match=Match(devices={"gpu": 8}), pins={})})

    assert choose_profile(inventory("", 0), only) == "x"


def test_globs_of_different_gpus_are_told_apart_without_counts() -> None:
    h200, gh200 = Match(gpu_models=("*H200*",)), Match(gpu_models=("*GH200*",))

    assert not may_overlap(h200, gh200)
    assert may_overlap(h200, Match(gpu_models=("*h200*",)))
