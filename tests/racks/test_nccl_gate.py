"""NCCL over NVLink between trays, by logs in the published form of NCCL v2.21 to v2.30.

Lines retyped from their format strings: NVIDIA/nccl src/init.cc ("comm %p rank %d nRanks %d nNodes
%d localRanks %d localRank %d MNNVL %d"), src/transport/p2p.cc ("Channel %02d/%01d : %d[%d] ->
%d[%d] via P2P/%s%s%s") and src/transport/net.cc.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from proved_domain import see, serials
from test_fabric_gate import printed, tray
from test_handed_over_partitions import Rig, make_node
from typer.testing import CliRunner

from provisioner.integrations.racks import rack_commands
from provisioner.integrations.racks.fabric.fabric_proof import find_lack
from provisioner.integrations.racks.fabric.nccl_gate import judge_nccl, read_nccl
from provisioner.integrations.racks.plan import read_plan
from provisioner.model.inventory import Inventory
from provisioner.model.node import State

GPUS = 4
TRAYS = ("t0", "t1", "t2")
PLANNED = dict.fromkeys(TRAYS, GPUS)


def log_of(number: int, *, trays: int = len(TRAYS), mnnvl: int = 1, way: str = "") -> str:
    """One tray's log. `way`: "" for NVLink, or how its last rank reaches the next tray."""
    size = trays * GPUS
    place = f"nRanks {size} nNodes {trays} localRanks {GPUS}"
    lines = []
    for local in range(GPUS):
        rank = number * GPUS + local
        after = (rank + 1) % size
        head = f"host{number}:51{local}:52{local} [{local}] NCCL INFO"
        comm = f"comm 0x55d{local} rank {rank}"
        link = f"{rank}[{local}] -> {after}[{after % GPUS}]"
        tail = f"nranks {size} cudaDev {local} nvmlDev {local} busId 1b000 commId 0xa1b2"
        over = way and local == GPUS - 1
        lines += [
            f"{head} NCCL version 2.28.3+cuda13.0",
            f"{head} ncclCommInitRank {comm} {tail} - Init START",
            f"{head} {comm} {place} localRank {local} MNNVL {mnnvl}",
            *(
                f"{head} Channel {channel:02}/0 : {link} "
                + (f"[send] via {way}" if over else "via P2P/MNNVL")
                for channel in range(2)
            ),
            f"{head} ncclCommInitRank {comm} {tail} - Init COMPLETE",
            f"{head} {comm} nranks {size} cudaDev {local} busId 1b000 - Destroy COMPLETE",
        ]
    return "\n".join(lines) + "\n"


def told(**changed: str | None) -> dict[str, list[str]]:
    logs = {name: log_of(number) for number, name in enumerate(TRAYS)} | changed
    read = {name: None if text is None else read_nccl(text.encode()) for name, text in logs.items()}
    faults: dict[str, list[str]] = {}
    for one in judge_nccl(PLANNED, read):
        assert "NCCL_DEBUG=INFO" in one.unblock
        faults.setdefault(one.subject, []).append(one.detail)
    return faults


def test_logs_whose_ranks_all_used_nvlink_pass() -> None:
    assert told() == {}


@pytest.mark.parametrize("way", ["NET/IB/0/GDRDMA", "NET/Socket/0", "NET/IB/3(7)/GDRDMA/Shared"])
def test_nccl_over_the_network_within_one_nvlink_domain_fails_and_its_tray_is_named(
    way: str,
) -> None:
    faults = told(t1=log_of(1, way=way))
    network = way.split("/")[1]
    assert faults == {
        "t1": [
            f"rank 7 has a way over the network: NET/{network}, and not NVLink",
            "no line shows a way to another tray by NVLink (via P2P/MNNVL)",
        ]
    }


def test_multi_node_nvlink_that_is_off_fails_with_its_variable() -> None:
    said = "host0:510:520 [0] NCCL INFO NCCL_MNNVL_ENABLE set by environment to 0.\n"
    faults = told(t0=said + log_of(0, mnnvl=0))
    assert faults == {"t0": ["multi-node NVLink is off at rank 0: NCCL_MNNVL_ENABLE is 0"]}


UNPROVED = {
    "no log": None,
    "empty": "",
    "fewer ranks": log_of(1).replace("rank 7 nranks 12 cudaDev 3 busId 1b000 - Destroy", "x"),
    "another communicator": log_of(1, trays=2),
    "another tray's log": log_of(0),
    "silent of it": "\n".join(line for line in log_of(1).splitlines() if "nRanks" not in line),
    "no way": log_of(1).replace("P2P/MNNVL", "P2P/CUMEM"),
    "mixed": log_of(1).replace("\nhost1:512:522 [2]", "host1:512:522 [2]", 1),
}


@pytest.mark.parametrize("log", UNPROVED)
def test_what_a_log_does_not_show_is_no_proof(log: str) -> None:
    assert "t1" in told(t1=UNPROVED[log])


def write(folder: Path, *, way: str = "") -> Path:
    units = [
        f"      - {{name: {name}, kind: compute-tray, u: {11 + n}, slot: {11 + n}, "
        f'tray_index: {n}, bmc: "https://b{n}.test"}}\n'
        for n, name in enumerate(TRAYS)
    ]
    head = "racks:\n  - name: r01\n    chassis_serial: C1\n    domain: d01\n    units:\n"
    (folder / "racks.yaml").write_text(head + "".join(units))
    for n, name in enumerate(TRAYS):
        gpus = [replace(gpu, serial=s) for gpu, s in zip(tray(name), serials(name), strict=True)]
        (folder / f"{name}.txt").write_text(printed(*gpus))
        (folder / f"{name}.nccl.txt").write_text(log_of(n, way=way if n == 1 else ""))
    return folder / "racks.yaml"


@pytest.mark.parametrize(("way", "code"), [("", 0), ("NET/IB/0/GDRDMA", 1)])
def test_the_command_judges_the_logs_beside_the_gpus(tmp_path: Path, way: str, code: int) -> None:
    plan = write(tmp_path, way=way)
    asked = ["fabric", str(plan), "r01", str(tmp_path), "--nccl", "--json"]
    ended = CliRunner().invoke(rack_commands.app, asked)
    assert ended.exit_code == code, ended.output
    assert {one["subject"] for one in json.loads(ended.output)["faults"]} == (
        {"t1"} if way else set()
    )
    (tmp_path / "t2.nccl.txt").unlink()
    ended = CliRunner().invoke(rack_commands.app, asked)
    assert ended.exit_code == 1
    assert "its log of NCCL was not read" in ended.output


# --- the proof, and the handover that demands it


def judge(folder: Path, *more: str) -> tuple[int, str]:
    asked = ["fabric", str(folder / "racks.yaml"), "r01", str(folder), "--keep", str(folder), *more]
    ended = CliRunner().invoke(rack_commands.app, asked)
    return ended.exit_code, ended.output + str(ended.exception or "")


def write_imex(folder: Path) -> None:
    hosts = {str(n): {"host": f"10.0.0.{n}", "status": "READY"} for n in range(len(TRAYS))}
    links = {n: {"host": one["host"], "status": "CONNECTED"} for n, one in hosts.items()}
    nodes = {n: {**one, "connections": links} for n, one in hosts.items()}
    for name in TRAYS:
        (folder / f"{name}.imex.json").write_text(json.dumps({"status": "UP", "nodes": nodes}))


def lack(folder: Path, later_s: float = 0.0, seen: Inventory | None = None) -> str:
    plan = read_plan(folder / "racks.yaml")
    return find_lack(folder, plan, "d01", time.time() + later_s, "t1", seen or see("t1"))


def test_only_a_domain_that_passes_gpus_imex_and_nccl_is_proved(tmp_path: Path) -> None:
    write(tmp_path)
    assert lack(tmp_path) == "nobody proved its fabric"
    code, said = judge(tmp_path)
    assert code
    assert "a proof needs FOLDER, --imex, --nccl" in said
    assert judge(tmp_path, "--imex", "--nccl")[0] == 1  # no host's view of IMEX
    assert lack(tmp_path) == "nobody proved its fabric"
    write_imex(tmp_path)
    assert judge(tmp_path, "--imex", "--nccl")[0] == 0
    assert lack(tmp_path) == ""
    assert lack(tmp_path, 91 * 86400.0) == "its proof is 91 days old"
    write(tmp_path, way="NET/IB/0/GDRDMA")  # the next run went over the network
    assert judge(tmp_path, "--imex", "--nccl")[0] == 1
    assert lack(tmp_path) == "nobody proved its fabric"


def test_the_age_of_a_proof_is_that_of_its_oldest_file(tmp_path: Path) -> None:
    write(tmp_path)
    write_imex(tmp_path)
    old = time.time() - 100 * 86400.0
    os.utime(tmp_path / "t1.nccl.txt", (old, old))
    assert judge(tmp_path, "--imex", "--nccl")[0] == 0
    assert lack(tmp_path) == "its proof is 100 days old"


def test_a_proof_is_of_the_gpus_that_it_was_made_with(tmp_path: Path) -> None:
    write(tmp_path)
    write_imex(tmp_path)
    assert judge(tmp_path, "--imex", "--nccl")[0] == 0
    assert lack(tmp_path) == ""
    ours = see("t1")
    other = ours.devices[0].model_copy(update={"serial": "1650099999"})
    swapped = ours.model_copy(update={"devices": (other, *ours.devices[1:])})
    assert lack(tmp_path, seen=swapped).startswith("its proof was made with other GPUs in t1")
    missing = ours.model_copy(update={"devices": ours.devices[1:]})
    assert lack(tmp_path, seen=missing).startswith("its proof was made with other GPUs in t1")
    silent = ours.model_copy(update={"devices": ()})
    assert lack(tmp_path, seen=silent) == (
        "the inventory of t1 has no serials of GPUs, to be held against its proof"
    )


@pytest.mark.parametrize("said", ["", "16500t00"])
def test_gpus_without_a_serial_of_their_own_prove_no_domain(tmp_path: Path, said: str) -> None:
    write(tmp_path)
    write_imex(tmp_path)
    gpus = [replace(gpu, serial=said) for gpu in tray("t1")]
    (tmp_path / "t1.txt").write_text(printed(*gpus))
    code, told = judge(tmp_path, "--imex", "--nccl")
    assert code == 1
    assert "it says no serial that is its alone" in told
    assert lack(tmp_path) == "nobody proved its fabric"


SPOILT = {
    "another plan": lambda t: json.dumps({**t, "trays": {"t0": t["trays"]["t0"]}}),
    "no record": lambda _: "{",
    "of tomorrow": lambda t: json.dumps({**t, "judged_at": t["judged_at"] + 86400.0}),
    "another domain": lambda t: json.dumps({**t, "domain": "d02"}),
}


@pytest.mark.parametrize("spoil", SPOILT)
def test_no_tray_is_handed_over_in_a_domain_that_nobody_proved(tmp_path: Path, spoil: str) -> None:
    rig = Rig(tmp_path)
    file = tmp_path / "fabric" / "d01.json"
    whole = file.read_text()
    node = make_node("t0", "acme")
    file.unlink()
    assert rig.do("admit", node) == ["d01: nobody proved its fabric"]
    file.write_text(SPOILT[spoil](json.loads(whole)))
    (refused,) = rig.do("admit", node)
    assert refused.startswith("d01: its proof")
    assert rig.judge(node)[0][0] == "unknown"
    assert rig.manager.log == []
    file.write_text(whole)
    assert rig.do("admit", node) == []
    file.unlink()
    assert rig.do("expel", make_node("t0", "acme", State.DRAINING)) == []  # back it comes always


def test_switches_that_are_not_as_wanted_make_no_proof_and_take_none_away(tmp_path: Path) -> None:
    write(tmp_path)
    write_imex(tmp_path)
    switches = ("--imex", "--nccl", "--nvos-user", "admin")  # the plan has none
    code, said = judge(tmp_path, *switches)
    assert (code, "the plan has no NVLink switch of the domain" in said) == (1, True)
    assert lack(tmp_path) == "nobody proved its fabric"
    assert judge(tmp_path, "--imex", "--nccl")[0] == 0
    assert judge(tmp_path, *switches)[0] == 1
    assert lack(tmp_path) == ""
