"""Which profile a node is for: by whole tokens of GPU models, number of GPUs, and cards."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.model.inventory import Component, Device, DeviceKind, Inventory
from provisioner.model.matrix import Match, Profile, Release
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.matrix.matrix_rules import may_overlap
from provisioner.planning.matrix.matrix_text import parse
from provisioner.planning.path.conditions import matches_token
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


SHIPPED = Path(__file__).parents[2] / "firmware_matrix.yaml"
PUBLISHED = parse([(SHIPPED.name, SHIPPED.read_text())]).releases
SPECTRUM_X = {
    name: r
    for name, r in PUBLISHED.items()
    if name.startswith("spectrum-x") and "hgx-h100-bf3" in r.profiles
}
H100_RELEASES = [pytest.param(release, id=name) for name, release in SPECTRUM_X.items()]


def host(*cards: Device, components: tuple[Component, ...] = ()) -> Inventory:
    bare = inventory("NVIDIA H100 80GB HBM3", 8)
    return bare.model_copy(update={"devices": (*bare.devices, *cards), "components": components})


def firmware(kind: str, slot: str) -> tuple[Component, ...]:
    return (Component(kind=kind, slot=slot, version=None, source="x"),)


def connectx(count: int) -> tuple[Device, ...]:
    return tuple(Device(kind="nic", slot=f"CX7_{n}", model="ConnectX-7") for n in range(count))


@pytest.mark.parametrize(
    ("release", "gpus", "count", "card", "profile"),
    [
        ("doca-3.3.0-cx7", "NVIDIA H100 80GB HBM3", 8, "nic", "hgx-h100-cx7"),
        ("doca-3.3.0-cx7", "NVIDIA H200", 8, "nic", "hgx-h200-cx7"),
        ("doca-3.3.0-cx7", "NVIDIA B200", 8, "nic", "hgx-b200-cx7"),
        ("doca-2.9.3-lts", "NVIDIA H200", 8, "nic", "hgx-h200-cx7"),
        ("doca-2.9.3-lts", "NVIDIA H200", 8, "dpu", "hgx-h200-bf3"),
        ("doca-3.2.2-lts", "NVIDIA B200", 8, "nic", "hgx-b200-cx7"),
        ("doca-3.2.2-lts", "NVIDIA B200", 8, "dpu", "hgx-b200-bf3"),
        ("dgx-gb200-1.3", "NVIDIA GB200", 4, "dpu", "gb200-tray"),
        ("dgx-gb300-1.0.6", "NVIDIA GB300", 4, "dpu", "gb300-tray"),
    ],
)
def test_hosts_and_trays_get_the_published_profile_of_their_cards(
    release: str, gpus: str, count: int, card: str, profile: str
) -> None:
    seen = inventory(gpus, count)
    cards = (Device(kind=DeviceKind(card), slot="CX7_0", model="ConnectX-7"),)

    chosen = choose_profile(
        seen.model_copy(update={"devices": (*seen.devices, *cards)}), PUBLISHED[release]
    )

    assert chosen == profile


@pytest.mark.parametrize(
    ("model", "gpus", "release", "profile"),
    [
        ("DGXH100", "NVIDIA H100 80GB HBM3", "dgx-h100-250724.1.0", "dgx-h100"),
        ("DGXH200", "NVIDIA H200", "dgx-h100-250724.1.0", "dgx-h200"),
        ("DGXB200", "NVIDIA B200", "dgx-b200-25.06.3", "dgx-b200"),
    ],
)
def test_the_profiles_of_a_dgx_are_for_no_other_makers_host(
    model: str, gpus: str, release: str, profile: str
) -> None:
    seen = inventory(gpus, 8)

    assert choose_profile(seen.model_copy(update={"model": model}), PUBLISHED[release]) == profile
    other = choose_profile(seen.model_copy(update={"model": "XE9680"}), PUBLISHED[release])
    assert isinstance(other, Blocker)


@pytest.mark.parametrize("pinned", H100_RELEASES)
def test_a_host_with_connectx_alone_gets_no_pins_of_bluefield(pinned: Release) -> None:
    chosen = choose_profile(host(*connectx(8)), pinned)

    assert isinstance(chosen, Blocker)
    assert chosen.reason is Reason.NO_PROFILE
    assert "8 of ConnectX-7" in chosen.detail
    assert "hgx-h100-bf3 would fit, but it is for hosts with BlueField cards" in chosen.detail
    assert "cards: connectx" in chosen.unblock


def test_connectx_that_only_its_firmware_shows_is_a_card_too() -> None:
    seen = host(components=firmware("nic.cx7", "CX7_0"))

    chosen = choose_profile(seen, SPECTRUM_X["spectrum-x-1.3.0"])

    assert isinstance(chosen, Blocker)
    assert "1 of nic.cx7" in chosen.detail


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(host(*connectx(8), Device(kind="dpu", slot="DPU_0")), id="dpu"),
        pytest.param(
            host(
                *connectx(1),
                components=(
                    Component(kind="supernic.nic", slot="NIC_0", version=None, source="x"),
                ),
            ),
            id="nic mode, as the host lists it",
        ),
        pytest.param(
            host(
                Device(kind="nic", slot="NIC_0"),
                components=(
                    Component(kind="bluefield.bmc", slot="NIC_0", version="1", source="x"),
                ),
            ),
            id="nic mode, by its own BMC",
        ),
        pytest.param(host(), id="a service that lists no card"),
    ],
)
def test_a_host_with_a_bluefield_keeps_its_profile(seen: Inventory) -> None:
    assert choose_profile(seen, SPECTRUM_X["spectrum-x-1.3.0"]) == "hgx-h100-bf3"


def test_profiles_of_both_families_of_cards_stand_side_by_side() -> None:
    matches = {
        "bf3": Match(gpu_models=("*H100*",), cards="bluefield"),
        "cx7": Match(gpu_models=("*H100*",), cards="connectx"),
    }
    both = Release(profiles={name: Profile(match=m, pins={}) for name, m in matches.items()})

    assert not may_overlap(matches["bf3"], matches["cx7"])
    assert may_overlap(matches["bf3"], Match(gpu_models=("*H100*",)))
    assert choose_profile(host(*connectx(8)), both) == "cx7"
    assert choose_profile(host(*connectx(8), Device(kind="dpu", slot="DPU_0")), both) == "bf3"
