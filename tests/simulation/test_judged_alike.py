"""The same context everywhere: on the node, among nodes, and when evidence is judged again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from leaf_rig import Rig
from test_fabric_sessions import lived
from test_validator import NODE, matrix

from provisioner import checks
from provisioner.checks.readers.tool_output import END_WORDS
from provisioner.checks.threshold_data import Limits
from provisioner.execution.validate.validator import GRAMMARS, Validator, judging_context
from provisioner.model.cohort import Baseline, CheckResult, Gate, HealthReport, Verdict
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker
from provisioner.ports import ShellCommand, ShellOutput
from provisioner.settings import Settings
from provisioner.store import open_store

CHATTER = "2025-06-15T15:06:40,000000+00:00 acme_probe: port 7 is asleep"


class Chatting:
    """Hosts whose kernels say one more line of level err after the first look."""

    def __init__(self, hosts: Any) -> None:
        self.hosts = hosts
        self.looks = 0

    async def run(
        self, host: str, address: str, commands: Sequence[ShellCommand]
    ) -> Sequence[ShellOutput]:
        said = list(await self.hosts.run(host, address, commands))
        for n, command in enumerate(commands):
            if command.name == "kernel_errors":
                self.looks += 1
                if self.looks > 1:
                    text = said[n].stdout.replace(END_WORDS, f"{CHATTER}\n{END_WORDS}")
                    said[n] = ShellOutput(said[n].exit_code, text, said[n].stderr)
        return said

    async def close(self) -> None:
        await self.hosts.close()


def looked_after_a_session(**settings: Any) -> dict[str, Verdict]:
    """What the error checks said after tests among nodes."""

    async def main() -> dict[str, Verdict]:
        rig = await Rig(**settings).open()
        effects = replace(rig.effects, shell=Chatting(rig.effects.shell))
        node = await rig.store.nodes.get(NODE)
        assert node is not None
        inventory = Inventory(node=NODE, vendor="x")
        validator = Validator(effects, rig.store, checks.ALL, matrix(""))
        report = await validator.validate(node, inventory, ("kernel_errors",))
        assert isinstance(report, HealthReport)
        load = CheckResult(check="rdma_pair", gate=Gate.C, verdict=Verdict.PASS)
        found = await validator.after_fabric(node, inventory, report, load)
        assert not isinstance(found, Blocker)
        await rig.close()
        return {r.check: r.verdict for r in found}

    return asyncio.run(main())


def test_a_kernel_line_that_the_site_calls_harmless_is_so_after_tests_among_nodes_too() -> None:
    name = "kernel_errors after rdma_pair"

    assert looked_after_a_session()[name] is Verdict.FAIL
    assert looked_after_a_session(kernel_lines_harmless=("acme_probe: ",))[name] is Verdict.PASS


def taught(floor: float) -> Baseline:
    return Baseline(
        metric="nccl_rail_gb_s",
        profile="hgx-h100-bf3",
        versions="v",
        level=floor,
        floor=floor,
        anchor=floor,
        nodes=20,
        racks=4,
        below=0,
        learned_at=1.0,
    )


def test_tests_among_nodes_are_held_against_what_the_fleet_taught(tmp_path: Path) -> None:
    async def teach(place: Any) -> None:
        await place.store.cohorts.put_baseline(taught(100.0))

    _, outcomes, _ = lived(tmp_path, 4, meanwhile=teach, fabric_nccl=True)

    assert outcomes
    assert not any(o.passed for o in outcomes.values())


def test_the_context_has_all_that_any_judge_may_ask_for() -> None:
    own: dict[str, Limits] = {"rdma_latency_us": {}}
    settings = Settings(kernel_lines_harmless=("acme",))

    async def made(kind: NodeKind) -> Any:
        store = open_store(":memory:", inline=True)
        await store.cohorts.put_baseline(taught(46.0))
        node = Node(id="n1", kind=kind, profile="hgx-h100-bf3")
        inventory = Inventory(node="n1", vendor="x")
        found = await judging_context(store, matrix(""), settings, own, node, inventory)
        await store.close()
        return found

    host, switch = asyncio.run(made(NodeKind.HOST)), asyncio.run(made(NodeKind.SWITCH))

    assert host.harmless_lines == ("acme",)
    assert host.learned == {"nccl_rail_gb_s": (46.0, "20 nodes in 4 racks share 46")}
    assert host.grammars == GRAMMARS
    assert host.overrides == own
    assert switch.learned == {}
