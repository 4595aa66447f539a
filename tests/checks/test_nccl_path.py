"""What NCCL did, read from its own logs: published excerpts (retyped, with their sources), whole
logs with planted faults, and logs that are cut or mixed, which must never pass.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from bench_nccl_logs import print_rank, read_plainly

from provisioner import checks
from provisioner.checks.fabric import nccl_path
from provisioner.checks.fabric.nccl_path import Wanted, find_faults, judge_pxn, list_unknown
from provisioner.checks.readers.nccl_log import NcclLog, read_log
from provisioner.checks.readers.nccl_output import NcclRun, Row
from provisioner.execution.validate import fabric_outputs
from provisioner.execution.validate.fabric_outputs import read_logs
from provisioner.model.cohort import Evidence

GOOD = (Path(__file__).parent.parent / "golden/checks/nccl_path/good/nccl_log.txt").read_text()
RAILS = Wanted(rails_apart=True)

PUBLISHED = tuple(
    (row["source"], row["log"], set(row["faults"]))
    for row in yaml.safe_load(
        (Path(__file__).parent.parent / "corpus/fabric/nccl.yaml").read_text(encoding="utf-8")
    )
)


def words_of(text: str, wanted: Wanted = RAILS) -> list[str]:
    return [f.detail for f in find_faults(read_log([text.encode()]), wanted)]


@pytest.mark.parametrize(("source", "text", "named"), PUBLISHED, ids=lambda v: str(v)[:50])
def test_published_logs_show_what_their_threads_say(
    source: str, text: str, named: set[str]
) -> None:
    found = words_of(text)

    assert len(found) == len(named), (source, found)
    assert all(any(name in words for words in found) for name in named)
    # an excerpt is no whole log: what it does not show is unknown
    assert list_unknown(read_log([text.encode()]), RAILS)


def test_a_whole_log_in_pieces_of_any_length_is_read_the_same() -> None:
    raw = GOOD.encode()
    whole = read_log([raw])
    pieces = read_log([raw[n : n + 37] for n in range(0, len(raw), 37)])

    assert whole.paths == pieces.paths
    assert not list_unknown(pieces, Wanted(ranks=16, rails=8))
    words = nccl_path.describe(pieces)
    assert words.startswith("NCCL 2.21.5, network IB, plugin built in; 16 rings, trees;")


@pytest.mark.parametrize(
    "tag", ["[1,3]<stdout>:", "2026-05-01 10:00:00 ", "(Worker pid=660) ", "worker-0: "]
)
def test_lines_may_have_a_tag_before_them(tag: str) -> None:
    tagged = "".join(f"{tag}{line}\n" for line in GOOD.splitlines())

    assert not list_unknown(read_log([tagged.encode()]), Wanted(ranks=16))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (" - Destroy COMPLETE", " - Abort COMPLETE"),
        ("Init COMPLETE", "Initialisierung VOLLSTÄNDIG"),
        ("nranks 16", "nranks 17"),
        ("Using network IB", "Netzwerk IB wird verwendet"),
        ("[send] via NET/IB/3/GDRDMA", "[send] via NET/IB/3/GDRD"),
        ("NCCL INFO Channel 06/0", "NCCL INFO Channel 06/0 : 0[0]node1:1:1 [0] NCCL INFO x"),
    ],
)
def test_a_log_that_lacks_or_mixes_lines_is_unknown_and_no_pass(old: str, new: str) -> None:
    assert old in GOOD
    log = read_log([GOOD.replace(old, new).encode()])

    assert list_unknown(log, Wanted(ranks=16))


def test_the_device_list_of_the_host_names_the_missing_rail() -> None:
    devices = {f"node{n}": frozenset(f"mlx5_{d}" for d in range(8)) for n in range(2)}
    lost = GOOD.replace("NET/IB/5", "NET/IB/4")

    assert not words_of(GOOD, Wanted(devices=devices, rails_apart=True))
    assert (
        words_of(lost, Wanted(devices=devices))
        == ["NCCL does not use the rail of mlx5_5 (seen, but no channel uses it)"] * 2
    )
    unseen = lost.replace("[5]mlx5_5:1/RoCE ", "")
    assert "not seen by NCCL" in words_of(unseen, Wanted(devices=devices))[0]


def test_virtual_devices_count_as_the_cards_they_are_made_of() -> None:
    text = (
        "a:1:1 [0] NCCL INFO NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=800000"
        " ndevs=2\n"
        "a:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/2/GDRDMA\n"
    )

    assert not words_of(text, Wanted(devices={"a": frozenset({"mlx5_0", "mlx5_1"})}))


def run_of(level: float, other: float | None = None) -> NcclRun:
    rows = tuple(
        Row(size=2**n, bus_gb_s=(level, other or level * 1.01), wrong=0) for n in range(16, 23)
    )
    return NcclRun(
        ranks=16, hosts=("a", "b"), rows=rows, out_of_bounds=0, bounds_ok=True,
        average_gb_s=level, average_failed=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("off", "on", "proxied", "named"),
    [
        (9.0, 12.0, True, None),
        (9.0, 6.0, True, "NVSwitch path between the GPUs is slow"),
        (9.0, 9.0, True, "wired to one leaf"),
        (9.0, 9.0, False, "NVSwitch path to the other GPUs' cards is not there"),
    ],
)
def test_a_small_all_to_all_that_does_not_gain_by_pxn_names_why(
    off: float, on: float, named: str | None, proxied: bool
) -> None:
    log = read_log([GOOD.encode()]) if proxied else NcclLog()

    found = judge_pxn(run_of(off), run_of(on), log, "a b")

    assert (found is None) == (named is None)
    assert found is None or (named is not None and named in found.detail)


def test_a_gain_within_its_own_spread_is_none() -> None:
    assert judge_pxn(run_of(9.0, 8.0), run_of(9.2, 8.2), None, "a b") is not None


def gathered(texts: dict[str, str], end: str = "gathered\n") -> dict[str, Evidence]:
    return {
        node: Evidence(
            source="x",
            exit_code=0,
            text=f"== log /run/provisioner-fabric.nccl.nccl_pair.h.1\n{text}\n{end}",
        )
        for node, text in texts.items()
    }


def split_good() -> dict[str, str]:
    lines = GOOD.splitlines(keepends=True)
    return {n: "".join(x for x in lines if x.startswith(n)) for n in ("node0", "node1")}


def test_hosts_with_one_name_are_told_apart_by_where_their_logs_come_from() -> None:
    same = {n: t.replace("node1:", "node0:") for n, t in split_good().items()}

    log = read_logs(gathered(same))["nccl_pair"]

    assert {p.host for p in log.processes.values()} == {"node0", "node1"}
    assert not list_unknown(log, Wanted(ranks=16, rails=8))


def test_an_answer_that_is_cut_makes_the_whole_unknown() -> None:
    parts = split_good()
    at = parts["node1"].rindex("/GDRDMA")
    cut = {**parts, "node1": parts["node1"][:at]}

    log = read_logs(gathered(cut))["nccl_pair"]

    assert not list(find_faults(log, RAILS))  # a way without its end is no way without GDRDMA
    assert list_unknown(log, RAILS)
    assert list_unknown(read_logs(gathered(parts, end=""))["nccl_pair"], RAILS)


def test_precision_and_recall_over_all_labelled_logs() -> None:
    """Every fault by name in all published and planted logs, and no other."""
    root = Path(__file__).parent.parent / "golden/checks/nccl_path"
    found = wanted = right = 0
    for _, text, named in PUBLISHED:
        words = words_of(text)
        found, wanted = found + len(words), wanted + len(named)
        right += sum(any(n in w for w in words) for n in named)
    for case in root.glob("*/expected.json"):
        hosts = {p for p, _ in json.loads(case.read_text())["findings"] if p != "host"}
        text = (case.parent / "nccl_log.txt").read_text()
        seen = {f.part for f in find_faults(read_log([text.encode()]), RAILS)}
        found, wanted, right = found + len(seen), wanted + len(hosts), right + len(seen & hosts)

    assert (right / found, right / wanted) == (1.0, 1.0)


def test_an_all_to_all_of_many_nodes_is_whole_after_its_logs_were_gathered(tmp_path: Path) -> None:
    """The shell line that runs on hosts, here: what it leaves out changes no verdict."""
    full = NcclLog()
    outputs = {}
    for node in ("node0", "node1", "node15"):
        for gpu in range(8):
            text = print_rank(int(node[4:]) * 8 + gpu, 128, 8, 0)
            (tmp_path / f"nccl_pair.{node}.{gpu}").write_bytes(text)
            full.feed(text)
        line = fabric_outputs.GATHER.replace("/run/provisioner-fabric.nccl.", f"{tmp_path}/")
        said = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
        told = said.stdout.replace(f"{tmp_path}/", "/run/provisioner-fabric.nccl.")
        outputs[node] = Evidence(source="x", exit_code=0, text=told)
        for file in tmp_path.iterdir():
            file.unlink()

    log = read_logs(outputs)["nccl_pair"]

    assert sum(len(o.text) for o in outputs.values()) < 200_000 < 24 * len(text)
    assert log.paths == full.end().paths
    # out by each of the cards; in from the own rail and from others
    assert len(log.paths) == 24 * (8 + 2)
    assert not log.damaged


def test_logs_of_any_order_cost_no_more_than_a_few_plain_reads() -> None:
    tidy = print_rank(3, 512, 8, 2_000_000)
    lines = tidy.splitlines(keepends=True)
    random.Random(1).shuffle(lines)

    def measure(text: bytes) -> tuple[float, float]:
        begun = time.process_time()
        read_plainly(text)
        plain = time.process_time() - begun
        begun = time.process_time()
        read_log([text])
        return time.process_time() - begun, plain

    # in any other order than NCCL's each line is read on its own
    for text, ratio in ((tidy, 1.2), (b"".join(lines), 10.0)):
        runs = [measure(text) for _ in range(3)]
        assert min(spent for spent, _ in runs) < ratio * min(plain for _, plain in runs)


def test_the_check_is_listed_for_gate_c() -> None:
    assert nccl_path.CHECK.name in {check.name for check in checks.ALL}


@pytest.mark.parametrize("size", [1, 37, 4096, 1_000_000])
def test_a_mixed_line_among_one_ranks_own_is_damage_in_pieces_of_any_size(size: int) -> None:
    head = "node0:1:2 [0] NCCL INFO Channel "
    way = "0[0] -> 8[0] [send] via NET/IB/0/GDRDMA"
    good = "".join(f"{head}{n:02d}/0 : {way}\n" for n in range(64))
    mixed = f"{good}{head}05/0 : 0[0] -> {head}06/0 : {way}\n{good}"

    def read(text: str) -> NcclLog:
        raw = text.encode()
        return read_log([raw[n : n + size] for n in range(0, len(raw), size)])

    assert (read(good).damaged, len(read(good).paths)) == (0, 1)
    assert read(mixed).damaged >= 1
    for other in ("x5/0 : ", "05/0 : 1node1:3:4 "):  # what is cut is like no other line
        assert read(f"{good}{head}{other}0[0] -> 8[0] [receive] via NET/IB/0\n").damaged == 1
    far = way.replace(" 8[0]", " 8node1:3:4 [0]")
    assert read(f"{good}{head}05/0 : {far}\n").damaged == 1
    warned = read(good + "node0:1:2 [0] NCCL WARN cut\n" + good + "NCCL version 2.21.5\n")
    assert (warned.warnings, warned.version, warned.damaged) == (["cut"], "2.21.5", 0)
