"""Reference pages made from tables in the code, in data files and in the tests' recordings."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Mapping
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import yaml

from provisioner import checks, quirks, settings
from provisioner.checks import commands
from provisioner.cli.offline.pages import draw, render_rows
from provisioner.model.access import ChangeKind
from provisioner.planning.lifecycle.destruction import MEANINGS, TABLE, Need
from provisioner.planning.lifecycle.journey import JOURNEY
from provisioner.planning.machine_settings.resolution import VOCABULARY

ROOT = Path(__file__).parents[1]
# beyond the vendors' rows of BIOS attributes: who takes a setting, and by what
DECLARED_BY = {
    "syslog": "Dell iDRAC (three servers), HPE iLO (one), Supermicro (one, three with newer "
    "firmware), by their own attributes; Cumulus Linux, SONiC",
    "ntp": "all BMCs, by standard properties; Cumulus Linux, SONiC",
    "host_rshim": "NVIDIA OpenBMC of a BlueField (`HostRshim.Set`)",
    "card_mode": "NVIDIA OpenBMC of a BlueField (`Mode.Set`; of a BlueField-2 its `NicMode`)",
    "host_privilege": "NVIDIA OpenBMC of a BlueField (`HostPrivilegeLevel`)",
}
BY_GROUP = {"switch": "Cumulus Linux, SONiC"}


FLOORS = (
    "model",
    "planning",
    "ports",
    "store",
    "adapters",
    "execution",
    "control",
    "daemon",
    "api",
)
CONCEPTS = {
    "node": ("node", "nodes"),
    "tenant": ("tenant", "tenants", "tenancy"),
    "case": ("case", "cases", "repair", "repairs"),
    "campaign": ("campaign", "campaigns", "rollout"),
    "certificate": ("certificate", "certificates", "certification"),
    "credential": ("credential", "credentials", "rotation", "vault"),
    "switch": ("switch", "switches"),
    "erasure": ("erasure",),
    "power": ("power",),
    "recovery": ("recovery",),
    "adoption": ("adoption",),
    "attestation": ("attestation",),
    "alert": ("alert", "alerts"),
    "matrix": ("matrix",),
    "intake": ("intake", "discovery"),
}


def concepts() -> str:
    """Return the table concept by floor: the modules and folders that are named for it."""
    lines = [f"| concept | {' | '.join(f'`{f}/`' for f in FLOORS)} |", "|---" * 10 + "|"]
    for concept, words in CONCEPTS.items():
        cells = [", ".join(f"`{m}`" for m in _named(floor, set(words))) for floor in FLOORS]
        lines.append(f"| {concept} | {' | '.join(cell or '–' for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _named(floor: str, words: set[str]) -> list[str]:
    """Return what of a floor is named so: a folder for all that is in it."""
    place, found = ROOT / "provisioner" / floor, list[str]()
    for path in sorted(place.rglob("*")):
        name = path.relative_to(place).as_posix()
        if not set(path.stem.split("_")) & words or any(name.startswith(f) for f in found):
            continue
        if path.is_dir() and (path / "__init__.py").is_file():
            found.append(f"{name}/")
        elif path.suffix == ".py":
            found.append(name.removesuffix(".py"))
    return found


def load(folder: str, module: str) -> Any:
    """Return a module that stands in no package: of the tests, or of an example."""
    place = ROOT / folder
    if str(place) not in sys.path:
        sys.path.append(str(place))  # for what stands beside it
    spec = spec_from_file_location(f"_of_pages_{module}", place / f"{module}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def page(title: str, about: str, *parts: list[str]) -> str:
    """Return a page: its title, what it is made from, and its tables."""
    lines = [f"# {title}", "", about]
    for part in parts:
        lines += ["", *part]
    return "\n".join(lines) + "\n"


def list_settings() -> str:
    """Return the page of all settings of the daemon."""
    about = "Made from the code. How settings are given is in [settings](../settings.md)."
    return page("All settings", about) + settings.render_markdown()


def list_checks() -> str:
    """Return the page of all health checks."""
    rows = [
        (
            f"`{check.name}`",
            check.gate.value + (", asked for" if check.on_request else ""),
            checks.read_passes_when()[check.name],
            "yes" if check.after_load else "",
            ", ".join(f"`{name}`" for name in check.thresholds),
        )
        for check in checks.ALL
    ]
    about = (
        "Made from the code. Gates and verdicts are explained in [health checks](../checks.md), "
        "thresholds with their sources are in [thresholds](../thresholds.md). `again`: judged "
        "again after every load test."
    )
    return page("All health checks", about, draw(("check", "gate", "passes when", "again",
                                                  "thresholds"), rows))  # fmt: skip


def list_commands() -> str:
    """Return the page of the commands that inventory and checks run inside a host."""
    users: dict[str, list[str]] = {}
    found = (each for each in vars(commands).values() if isinstance(each, commands.Command))
    lines = {command.name: command.line for command in found}
    for check in checks.ALL:
        for command in check.commands:
            if not command.bmc:
                lines[command.name] = command.line
                users.setdefault(command.name, []).append(check.name)
    parts = []
    for name, line in lines.items():
        judged = ", ".join(f"`{user}`" for user in users.get(name, ()))
        judged = f"Judged by {judged}." if judged else "Read for the inventory."
        parts.append([f"## {name}", "", judged, "", "```text", line, "```"])
    about = (
        "Made from the code: each line as it is run, in the order of the inventory and of the "
        "checks. Where an output could be cut short unnoticed, the line ends with an `echo`, and "
        "an output without its words is not judged."
    )
    return page("Commands that run inside a host or a switch", about, *parts)


def list_tool_proofs() -> str:
    """Return the page of the tools that change something, and what proves their success."""
    about = (
        "Made from `ansible/tool_proofs.yaml`. An exit code of 0 is necessary and proves nothing "
        "by itself. A test finds each tool that roles, modules and the agent of the maintenance "
        "image run, and fails without a row."
    )
    columns = {"tools": "tool", "proof": "proof of its success", "where": "where"}
    return _draw_file(
        "What proves that a tool succeeded", about, "ansible/tool_proofs.yaml", columns
    )


def list_plays() -> str:
    """Return the page of the plays, with what goes in and what comes out."""
    about = (
        "Made from `ansible/plays.yaml`; a test finds a row for each playbook. How they run: "
        "[in-band work](../in-band.md#plays)."
    )
    columns = {"play": "play", "variables": "variables", "facts": "facts"}
    return _draw_file("Plays that change a host or a switch", about, "ansible/plays.yaml", columns)


def list_remainders() -> str:
    """Return the page of what a tenant may leave behind, with the test of each row."""
    about = (
        "Made from `tests/remainders.yaml`; each test is resolved by a test. *Overwritten*: the "
        "content is replaced whatever it was; *found*: a reading names it. The settings are "
        "explained in [nothing remains](../sanitizing.md)."
    )
    columns = {"remainder": "what is left behind", "fate": "so it is", "proof": "proved by"}
    return _draw_file("What a tenant may leave behind", about, "tests/remainders.yaml", columns)


def list_misbehaviours() -> str:
    """Return the page of what machines do wrong with settings, with the test of each row."""
    about = (
        "Made from `tests/misbehaviours.yaml`; each test is resolved by a test. How settings are "
        "pinned and written: [settings of machines](../settings-of-machines.md)."
    )
    columns = {"machine": "the machine", "daemon": "the daemon", "proof": "proved by"}
    title = "Misbehaviours of BMCs and BIOSes with settings"
    return _draw_file(title, about, "tests/misbehaviours.yaml", columns)


def list_promises() -> str:
    """Return the page of what the planner promises, with the test of each promise."""
    about = (
        "What a plan, a campaign or a placement promises, made from `tests/promises.yaml`; each "
        "test is resolved by a test. The decisions are pure functions in `provisioner/planning`; "
        "`tests/planning/test_planner_properties.py` states what every plan must keep."
    )
    columns = {"promise": "promise", "code": "code", "proof": "test"}
    return _draw_file("What planning promises", about, "tests/promises.yaml", columns)


def list_bmcweb_rows() -> str:
    """Return the page of how the simulator and the client follow NVIDIA's own server."""
    about = (
        "Made from `tests/recorded/bmcweb_rows.yaml`. NVIDIA/bmcweb was built and run; each row is "
        "a behaviour of it ([sources](../sources/redfish.md#events)), and the tests that hold the "
        "client to it."
    )
    columns = {"row": "row", "behaviour": "behaviour", "tests": "tests"}
    return _draw_file(
        "NVIDIA's bmcweb, row by row", about, "tests/recorded/bmcweb_rows.yaml", columns
    )


def list_left_out() -> str:
    """Return the page of what each protection of the handover prevents, by the model."""
    about = (
        "Made from `tests/model/left_out.yaml`: each protection is left out of "
        "[the model](../proof.md) in turn, and the search finds what follows. "
        "`make soak NAME=model` prints it anew."
    )
    columns = {"protection": "left out", "steps": "steps of the shortest way", "result": "result"}
    return _draw_file("Protections of the handover", about, "tests/model/left_out.yaml", columns)


def list_verdict_fields() -> str:
    """Return the page of fields in which a tool judges itself, and of who reads each."""
    rows = load("tests/checks", "test_verdict_fields").FIELDS
    about = (
        "Made from `tests/checks/test_verdict_fields.py`, which runs each reader on a bad value "
        "and on a good one. Of Redfish, a part is as bad as the worst of its Health and its "
        "Conditions, and a Condition that points at a related resource leads to that one's own. "
        "Three more have tests of their own: the exit codes 8, 10, 14 and 15 of nvidia-smi "
        '(`checks/readers/smi_sentences.py`), "Reset required" in the kernel log '
        "(`checks/readers/kernel_faults.csv`), and the levels of bfb-install and rshim "
        "(`rshim.py` of the collection)."
    )
    cells = [(row.source, row.field, f"`{row.reader}`") for row in rows]
    title = "Verdicts of the vendors' own tools"
    return page(title, about, draw(("source", "field", "judged by"), cells))


def list_threats() -> str:
    """Return the page of threats by their origin, with the tests of each protection."""
    about = (
        "Made from `tests/threats.yaml`; each test is found by a test. Who is trusted, and what "
        "to do after a theft: [threat model](../threat-model.md)."
    )
    parts = list[list[str]]()
    for origin in yaml.safe_load((ROOT / "tests/threats.yaml").read_text(encoding="utf-8")):
        cells = [
            (row["threat"], row["protection"], row["risk"],
             ", ".join(f"`{test}`" for test in row["tests"]) or "–")
            for row in origin["rows"]
        ]  # fmt: skip
        head = ("threat", "protection", "remaining risk", "tests")
        parts.append([f"## {origin['from']}", "", *draw(head, cells)])
    return page("Threats and protections", about, *parts)


def list_gate_rows() -> str:
    """Return the page of the rows of a release's gate."""
    about = (
        "Made from `docs/release_gate.yaml`; a test holds the rows equal to the code's. When the "
        "gate is judged: [release](../release.md#the-order-of-the-steps)."
    )
    rows = yaml.safe_load((ROOT / "docs/release_gate.yaml").read_text(encoding="utf-8"))
    cells = [(", ".join(f"`{name}`" for name in row["rows"]), row["passes"]) for row in rows]
    return page("The gate of a release", about, draw(("row", "passes if"), cells))


def list_simulator_interface() -> str:
    """Return the page of the simulator's control socket and of the actions of fault rules."""
    about = (
        "Made from `docs/simulator_interface.yaml`. How rules choose requests: "
        "[the simulated site](../simulator.md#a-fault-rule)."
    )
    text = (ROOT / "docs/simulator_interface.yaml").read_text(encoding="utf-8")
    listed = yaml.safe_load(text)
    requests = [(row["request"], row["answer"]) for row in listed["requests"]]
    actions = [(row["action"], row["value"], row["effect"]) for row in listed["actions"]]
    return page(
        "The simulator's interface", about,
        ["## Requests of the control socket", "", *draw(("request", "answer or effect"), requests)],
        ["## Actions of fault rules", "", *draw(("action", "value", "effect"), actions)],
    )  # fmt: skip


def list_states() -> str:
    """Return the page of the states of a node."""
    about = (
        "Made from `provisioner/planning/lifecycle/journey.py`. Beyond its limit a state raises an "
        "alert; it does not change. The drawing: [a node's journey](../lifecycle.md)."
    )
    cells = [
        (
            f"`{state.value}`",
            stage.work,
            ", ".join(place.value for place in stage.placements),
            f"{stage.limit_s / 3600:g} h",
            ", ".join(f"`{to.value}`" for to in stage.leaves_to) or "–",
        )
        for state, stage in JOURNEY.items()
    ]
    head = ("state", "work", "where its ports are when it enters", "limit", "leaves to")
    return page("States of a node", about, draw(head, cells))


def _draw_file(title: str, about: str, file: str, columns: Mapping[str, str]) -> str:
    """Return the page of a YAML file's rows. `columns`: key of a row -> its heading."""
    rows = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))
    cells = [tuple(row[key] for key in columns) for row in rows]
    return page(title, about, draw(tuple(columns.values()), cells))


def list_machine_settings() -> str:
    """Return the page of the settings of machines by meaning."""
    rows = []
    for name, meaning in VOCABULARY.items():
        between = "; " if any("," in value for value in meaning.values) else ", "
        rows.append(
            (
                f"`{name}`",
                meaning.title,
                between.join(meaning.values) or "as described",
                meaning.group,
                _declared(name, meaning.group),
            )
        )
    about = (
        "Made from the code. How they are pinned is in "
        "[settings of machines](../settings-of-machines.md)."
    )
    return page("Settings of machines by meaning", about,
                draw(("setting", "meaning", "values", "group", "declared for"), rows))  # fmt: skip


def _declared(name: str, group: str) -> str:
    titles = [q.title for q in quirks.ALL.values() if any(r.meaning == name for r in q.meanings)]
    vendors = ", ".join(dict.fromkeys(titles)) if group == "bios" else ""
    return vendors or DECLARED_BY.get(name) or BY_GROUP.get(group) or "all, by standard properties"


def list_fault_outcomes() -> str:
    """Return the page of BMC faults: what the daemon did in each test of one."""
    sys.path.append(str(ROOT / "tests/simulation"))  # its clock
    catalogue = load("tests/faults", "test_catalogue")
    rows = [catalogue.tell_outcome(name) for name in (*catalogue.CASES, *catalogue.WIRE)]
    rows.sort(key=lambda row: ("STEUVP".index(row[0][0]), int(row[0][1:])))
    about = (
        "Made from the tests. The number is that of the [catalogue](../sources/bmc-faults.md). The "
        "act is what is attempted during the fault; the outcome is that of its turns, two minutes "
        "apart: `done`, or the reason of the blocker. [Faults](../faults.md) explains them."
    )
    return page("BMC faults and their outcomes", about,
                draw(("#", "preset", "fault", "act", "outcome"), rows))  # fmt: skip


def list_recorded_requests() -> str:
    """Return the page of the requests that the dry run makes on each recorded tree."""
    about = (
        "Made from the recordings in `tests/recorded`. R: the requests are right by the sources "
        "in [hardware writes](../hardware-writes.md); X: refused, with the remedy. "
        "`boot-maintenance` alone is the vendor's own way. All trees are from NVIDIA/libredfish, "
        "reduced to what the client reads."
    )
    verdicts = load("tests/recorded", "verdicts").build_verdicts()
    return page("Recorded requests by vendor", about, verdicts.splitlines())


def list_gates_by_distribution() -> str:
    """Return the page of what each check's tools were tried by."""
    about = (
        "Made from `tests/golden/distributions.toml` and the recorded runs. *Run*: the check's own "
        "line in a root directory of a Debian suite (11, 12, 13) with that version of the tool, "
        "judged as a pass beside the check's good example; where Ubuntu's version lies between "
        "two suites' versions, both were run. *Run over files*: the line's shell, `grep` and `awk` "
        "over files in the form of the kernel's documents. *Published*: the tool needs a device, "
        "and the form of its output is that of the named source."
    )
    table = load("tests/checks", "distribution_table").write_table()
    return page("Gates A to D by distribution", about, table.splitlines())


def list_acceptance_results() -> str:
    """Return the page of the last run of NVIDIA's acceptance suite."""
    drawer = load("docs/examples/acceptance", "page")
    result: Mapping[str, Any] = json.loads(
        (ROOT / "docs/examples/acceptance/result.json").read_text(encoding="utf-8")
    )
    return str(drawer.draw_page(result))


def list_ironic_acceptance() -> str:
    """Return the page of NVIDIA's acceptance suite as it was put to Ironic."""
    folder = "docs/examples/acceptance/ironic"
    text = (ROOT / folder / "result.json").read_text(encoding="utf-8")
    return str(load(folder, "table").draw_page(json.loads(text)))


def render_table() -> str:
    heads = ("act", "allowed by", "conditions", "confirmed by", "at once", "told", "undone")
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for act, row in TABLE.items():
        needs = ", ".join(need.value for need in row.needs)
        cells = (act, row.allowed_by, needs, row.confirmed_by, row.at_once, row.told, row.undone)
        lines.append(f"| {' | '.join(str(cell) for cell in cells)} |")
    return "\n".join(lines) + "\n"


def render_needs() -> str:
    return "".join(f"- `{need.value}`: {MEANINGS[need]}.\n" for need in Need)


def list_destructive_acts() -> str:
    """Return the page of acts that nothing undoes."""
    about = (
        "Made from `provisioner/planning/lifecycle/destruction.py`. What the one gate does with "
        "it is in [Acts that nothing undoes](../destructive-acts.md)."
    )
    conditions = ["## The conditions", "", *render_needs().splitlines()]
    return page("The table of destructive acts", about, render_table().splitlines(), conditions)


def list_recorded_hardware() -> str:
    """Return the page of recorded BMCs: what is read of each, how its writes are known."""
    about = (
        "Made from the recordings in `tests/recorded/writes`, as `provisioner compatibility` does "
        "it for any. The words are explained in [hardware](../hardware.md)."
    )
    tables = load("tests/recorded", "hardware_page").make_tables()
    return page("Recorded BMCs", about, tables.splitlines())


def list_daily_jobs() -> str:
    """Return the page of the console's jobs: their clicks, and the API's operations."""
    about = (
        "Written by the tests that do them (`tests/console`, `tests/generated_client`). What a "
        "click is, and how a job is judged, is in [daily jobs](../console-jobs.md)."
    )
    kept = (ROOT / "tests/console/console_jobs.md").read_text(encoding="utf-8")
    return page("Daily jobs of the console", about, kept.splitlines())


def list_attestation_tampers() -> str:
    """Return the page of tampered evidence, from the test's own table."""
    about = (
        "Made from `tests/attestation/test_attestation_tampers.py`: each is refused, with a "
        "finding that begins so. [Findings](../attestation.md#findings) explains the words."
    )
    path = ROOT / "tests/attestation/test_attestation_tampers.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (table,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and node.target.id == "TAMPERS"
    )
    assert isinstance(table, ast.List)
    rows = []
    for row in table.elts:
        assert isinstance(row, ast.Tuple)
        name, says = ast.literal_eval(row.elts[0]), ast.literal_eval(row.elts[2])
        number, _, tamper = name.partition(" ")
        rows.append((number, tamper, f"`{says}`"))
    return page("Tampering that was tried", about, draw(("", "tamper", "finding"), rows))


def list_change_kinds() -> str:
    """Return the page of the kinds of changes, by the noun that they are of."""
    about = (
        "Made from the code: the words of `api_four_eyes`, of the journal and of requests. What "
        "a second person's approval does is in [access](../access.md#four-eyes)."
    )
    verbs: dict[str, list[str]] = {}
    for kind in ChangeKind:
        verbs.setdefault(kind.value.partition(".")[0], []).append(f"`{kind.value}`")
    rows = [(noun, ", ".join(kinds)) for noun, kinds in verbs.items()]
    return page("Kinds of changes", about, draw(("of", "kinds"), rows))


def list_metrics() -> str:
    """Return the page of all metrics, from the file that a scrape is compared with."""
    about = (
        "Made from `docs/monitoring/metrics.yaml`, which a test compares with a scrape. How they "
        "are served, and the rules over them, is in [metrics](../metrics.md)."
    )
    text = (ROOT / "docs/monitoring/metrics.yaml").read_text(encoding="utf-8")
    rows = [
        (f"`{name}`", said.get("labels", ""), said["meaning"])
        for name, said in yaml.safe_load(text).items()
    ]
    return page("All metrics", about, draw(("metric", "labels", "meaning"), rows))


OF_ROWS = yaml.safe_load((ROOT / "docs/tables.yaml").read_text(encoding="utf-8"))


def list_rows(name: str) -> str:
    """Return a page of one table, which is a file of comma-separated values."""
    return render_rows(OF_ROWS[name], ROOT, anchored=True)


PAGES = {
    "settings.md": list_settings,
    "health-checks.md": list_checks,
    "in-band-commands.md": list_commands,
    "tool-proofs.md": list_tool_proofs,
    "plays.md": list_plays,
    "remainders.md": list_remainders,
    "misbehaviours.md": list_misbehaviours,
    "promises.md": list_promises,
    "bmcweb-rows.md": list_bmcweb_rows,
    "handover-protections.md": list_left_out,
    "verdict-fields.md": list_verdict_fields,
    "threats.md": list_threats,
    "release-gate.md": list_gate_rows,
    "simulator-interface.md": list_simulator_interface,
    "states.md": list_states,
    "machine-settings.md": list_machine_settings,
    "fault-outcomes.md": list_fault_outcomes,
    "recorded-requests.md": list_recorded_requests,
    "gates-by-distribution.md": list_gates_by_distribution,
    "acceptance-results.md": list_acceptance_results,
    "acceptance-ironic.md": list_ironic_acceptance,
    "destructive-acts.md": list_destructive_acts,
    "recorded-hardware.md": list_recorded_hardware,
    "daily-jobs.md": list_daily_jobs,
    "attestation-tampers.md": list_attestation_tampers,
    "change-kinds.md": list_change_kinds,
    "metrics.md": list_metrics,
    **{name: partial(list_rows, name) for name in OF_ROWS},
}
