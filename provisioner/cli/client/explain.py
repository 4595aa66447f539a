"""`provisioner explain`: one node in plain words; what it is, why, what next, what unblocks it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from provisioner import components
from provisioner.cli.client.campaign_options import LabOption, MatrixOption
from provisioner.cli.options.data_options import (
    DataOption,
    JsonOption,
    console,
    node_of,
    with_data,
)
from provisioner.cli.options.matrix_files import read_matrix
from provisioner.control.node.explaining import situation
from provisioner.daemon.data import Data
from provisioner.planning.lifecycle.explain import Explanation
from provisioner.planning.lifecycle.explain import explain as explained
from provisioner.planning.path.planner import PlanCache


def explain(
    node: Annotated[str, typer.Argument(metavar="NODE", help="As `provisioner node list` has it.")],
    data: DataOption = Path("var"),
    matrix: MatrixOption = None,
    lab: LabOption = False,
    as_json: JsonOption = False,
) -> None:
    """Tell in plain words what a node is, why it is there, what comes next, what unblocks it.

    Exit code 0, also for a node that is blocked; 2: there is no such node. It changes nothing.
    """
    plans = PlanCache(read_matrix(matrix or []), components.ALL, production=not lab)

    async def read(opened: Data) -> Explanation:
        found = await node_of(opened, node)
        return explained(await situation(opened.store, found, plans, opened.clock.now()))

    told = with_data(data, read)
    if as_json:
        typer.echo(told.model_dump_json())
        return
    out = console()
    for line in told.lines():
        out.print(Text(line, style="" if line.startswith(" ") else "bold"), soft_wrap=True)
