"""`provisioner cohort`: what the fleet measures, what it taught, and what a change did to it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from provisioner.cli.options.data_options import DataOption, JsonOption, console, with_data
from provisioner.daemon.data import Data
from provisioner.model.cohort import Baseline, Sample
from provisioner.model.input_error import InputError
from provisioner.planning.certification.cohort import Policy, outliers
from provisioner.planning.certification.regression import Effect, RegressionPolicy, compare

app = typer.Typer(
    help="The fleet's comparison: outliers, learned floors, before and after.",
    no_args_is_help=True,
)
ProfileOption = Annotated[str, typer.Option("--profile", help="Only nodes of this profile.")]
SAMPLES_MAX = 200_000
SHORT = 12  # digits of a version set's digest that a person types


@app.command()
def show(
    profile: ProfileOption = "", data: DataOption = Path("var"), as_json: JsonOption = False
) -> None:
    """Cohorts, floors that were learned, and nodes that are unlike their own."""
    samples, learned = with_data(data, lambda opened: _read(opened, profile))
    found = outliers([s for s in samples if s.sound], Policy())
    cohorts = Counter((s.profile, s.versions[:SHORT], s.sound) for s in samples)
    if as_json:
        document: dict[str, Any] = {
            "cohorts": [
                {"profile": p, "versions": v, "sound": sound, "nodes": n}
                for (p, v, sound), n in sorted(cohorts.items())
            ],
            "baselines": [b.model_dump(mode="json") for b in learned],
            "outliers": [o.model_dump(mode="json") for o in found],
        }
        typer.echo(json.dumps(document))
        return
    out = console()
    table = Table("profile", "versions", "nodes", "sound", title="Cohorts")
    for p, v in sorted({(p, v) for p, v, _ in cohorts}):
        sound = cohorts[p, v, True]
        table.add_row(p, v, str(sound + cohorts[p, v, False]), str(sound))
    out.print(table)
    floors = Table("profile", "metric", "floor", "level", "learned from", title="Learned floors")
    for b in learned:
        from_whom = f"{b.nodes} nodes, {b.racks} racks"
        floors.add_row(b.profile, Text(b.metric), f"{b.floor:.6g}", f"{b.level:.6g}", from_whom)
    out.print(floors)
    worst = Table("node", "metric", "measured", "typical", "among", title="Outliers")
    for o in found:
        worst.add_row(o.node, Text(o.metric), f"{o.value:.6g}", f"{o.typical:.6g}", o.among)
    out.print(worst)


@app.command("compare")
def compare_versions(
    before: Annotated[str, typer.Option("--before", help="Version set, as `show` prints it.")],
    after: Annotated[str, typer.Option("--after", help="Version set, as `show` prints it.")],
    profile: ProfileOption = "",
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Did a change of versions make nodes worse? Exit code 1 if it did, node by node."""
    samples, _ = with_data(data, lambda opened: _read(opened, profile))
    sides = [_measured(samples, side) for side in (before, after)]
    found = compare(sides[0], sides[1], RegressionPolicy())
    if as_json:
        typer.echo(json.dumps([c.model_dump(mode="json") for c in found]))
    else:
        table = Table("metric", "nodes", "change", "p", "says")
        for c in found:
            says = c.effect.value.replace("_", " ")
            table.add_row(Text(c.metric), str(c.nodes), f"{c.change:+.2%}", f"{c.p:.2g}", says)
        console().print(table)
        if not found:
            console().print("No node was measured with both.")
    raise typer.Exit(1 if any(c.effect is Effect.WORSE for c in found) else 0)


def _measured(samples: Sequence[Sample], versions: str) -> dict[str, dict[str, float]]:
    mine = [s for s in samples if s.versions.startswith(versions)]
    if not mine or len({s.versions for s in mine}) > 1:
        problem = "no version set begins so" if not mine else "several version sets begin so"
        raise InputError(versions, "", problem, "See `provisioner cohort show`.")
    return {s.node: dict(s.measured) for s in mine}


async def _read(opened: Data, profile: str) -> tuple[list[Sample], list[Baseline]]:
    profiles = {n.profile for n in await opened.store.nodes() if n.profile}
    if profile and profile not in profiles:
        remedy = f"It is one of: {', '.join(sorted(profiles)) or 'none yet'}."
        raise InputError(profile, "", "no node has this profile", remedy)
    samples: list[Sample] = []
    for name in [profile] if profile else sorted(profiles):
        samples += await opened.store.samples(name, None, SAMPLES_MAX)
    return samples, list(await opened.store.baselines(profile))
