"""No destructive effect is reachable around the gate: read from the code, call by call.

Every way to change a device is listed here, as harmless or as what it destroys; one that is new is
in neither list and fails. Each call of a destructive one has the gate of its act before it in the
same function, or is what an `Act` sends that names its act, so that `once` asks the gate.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from provisioner.execution.steps.methods_inband import DESTROYS
from provisioner.planning.lifecycle.destruction import TABLE, Destruction

ROOT = Path(__file__).parents[2]
CODE = ROOT / "provisioner"
# what acts on devices; adapters carry a request out, and the others reach simulated ones alone
ACTING = ("execution", "control", "daemon", "api", "access", "telemetry", "runtime", "cli/serve")
# they record requests, and send none (docs/hardware-writes.md)
RECORDING = frozenset({"execution/plan_requests.py"})
D = Destruction

# a call's last name -> the acts that it may be a part of
DESTRUCTIVE: dict[str, frozenset[Destruction]] = {
    "reset_bios": frozenset({D.BIOS_DEFAULTS}),
    "reset_secure_boot_keys": frozenset({D.SECURE_BOOT_KEYS}),
    "reset_bmc_defaults": frozenset({D.BMC_DEFAULTS}),
    "order_wipe": frozenset({D.CARD_STORAGE}),
    "push": frozenset({D.FIRMWARE}),
    "simple_update": frozenset({D.CARD_SYSTEM}),
    "pull": frozenset({D.CARD_SYSTEM}),
    "install_image": frozenset({D.SWITCH_IMAGE}),
    "set_password": frozenset({D.LOGIN, D.FACTORY_LOGIN}),
    "change_setup_password": frozenset({D.LOGIN}),
}
# of the clients of BMCs and switches: what changes nothing, or what a later request takes back
HARMLESS = frozenset(
    re.findall(
        r"\w+",
        """
        admit_act admits ac_cycle apply_change apply_networks apply_services boot_disk
        boot_override boot_progress boot_virtual_cd build_change change check_login
        choose_other_image claim_service close collect collect_measurements collect_tree
        drive_serials eject_image eject_media enable_media enable_on_bmc enable_rshim
        end_claim end_push end_subscription fetch_dumps fetch_registry find find_ac_cycle
        find_administrator find_console find_door find_obstacle find_places find_power_fault
        find_target find_targets find_wrong_firmware host_macs identify insert_image
        insert_media install_certificate is_drained is_inserted is_locked is_saved is_silent
        is_standing list_licences list_reports list_resets log_services make_request
        make_subscription media_inserted open override_disk override_virtual_cd power reboot
        remove_standby reset_bmc reset_system save_configuration serves_tree set_bios
        set_bmc set_card set_clock set_drain set_for_host set_lockdown set_override
        submit_test subscribe task_paths
        """,
    )
)
AGENT_STEPS: dict[str, Destruction | None] = {
    "provisioner_inventory": None,
    "provisioner_checks": None,
    "provisioner_disks": None,
    "provisioner_erase_device": D.DISKS,
    "provisioner_read_disk": None,
    "provisioner_clear_tpm": D.TPM,
    "provisioner_quote_tpm": None,
    "provisioner_read_tpm_identity": None,
    "provisioner_activate_credential": None,
    "provisioner_clear_boot_entries": D.BOOT_ENTRIES,
    "provisioner_read_owner_keys": None,
    "provisioner_choose_boot_disk": None,
}
PLAYS: dict[str, Destruction | None] = {
    **DESTROYS,
    "switch_sonic": D.SWITCH_IMAGE,
    "switch_cumulus": None,  # people run these three
    "bluefield_bundle": D.CARD_SYSTEM,
    "bluefield_runtime": None,
    "nic_reset": None,
}
# logins that are deleted from the vault, each with why no device is lost by it
REMOVED_LOGINS = {
    "adapters/agent/sessions.py": "the token of one boot",
    "execution/steps/erasure.py": "the SSH key of a system that is erased",
    "execution/steps/bmc_defaults.py": "of an intake before the reset, which ends it",
}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def acting() -> tuple[tuple[str, ast.AST], ...]:
    """Every outermost function of the code that acts, with its file."""
    return tuple(_acting())


def _acting() -> Iterator[tuple[str, ast.AST]]:
    for folder in ACTING:
        for path in sorted((CODE / folder).rglob("*.py")):
            name = path.relative_to(CODE).as_posix()
            if name in RECORDING:
                continue
            for node in parsed(path).body:
                bodies = node.body if isinstance(node, ast.ClassDef) else [node]
                for each in bodies:
                    if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                        yield name, each


@cache
def calls(function: ast.AST) -> tuple[tuple[str, ast.Call], ...]:
    """Every call in a function, by the last part of its name."""
    return tuple(_calls(function))


def _calls(function: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Attribute(attr=name) | ast.Name(id=name):
                    yield name, node


def acts_named(node: ast.AST) -> set[Destruction]:
    return {
        D[each.attr]
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.value, ast.Name)
        and each.value.id == "Destruction"
    }


def gated(function: ast.AST, before: int) -> set[Destruction]:
    """The acts whose gate a function passes before a line, or has `once` pass."""
    found: set[Destruction] = set()
    for name, call in calls(function):
        if name == "pass_gate" and call.lineno < before:
            found |= acts_named(call)
        if name == "pass_login_gate" and call.lineno < before:
            found.add(D.LOGIN)
        if name in ("Act", "_work"):
            found |= acts_named(call)
    return found


@cache
def awaited(function: ast.AST) -> set[int]:
    """The calls whose result a function waits for; a closure's or a name's own do not count."""
    return {id(n.value) for n in ast.walk(function) if isinstance(n, ast.Await)}


def test_every_call_of_a_destructive_request_is_behind_the_gate_of_its_act() -> None:
    found: set[str] = set()
    for file, function in acting():
        waits = awaited(function)
        for name, call in calls(function):
            if name not in DESTRUCTIVE or id(call) not in waits:
                continue
            if file == "execution/executor.py" or _builds(file, name):
                continue  # it builds the work, and sends nothing
            assert gated(function, call.lineno) & DESTRUCTIVE[name], f"{file}:{call.lineno} {name}"
            found.add(name)
    assert found == set(DESTRUCTIVE) - {"pull"}, "a request that nobody sends any more"


def _builds(file: str, name: str) -> bool:
    """Whether this name is, in this file, the daemon's own function of the same name."""
    own = {("control/node/retiring.py", "change_setup_password")}
    return (file, name) in own


def test_every_way_to_change_a_bmc_or_a_switch_is_known() -> None:
    files = [
        *sorted((CODE / "adapters/redfish").rglob("*.py")),
        CODE / "ports/switch.py",
    ]
    apart = (
        "discovery",
        "dry_run",
        "glance",
        "service",
        "exchange",
        "sessions",
        "transport",
        "tasks",
    )
    for path in files:
        if path.stem in apart or "collect" in path.parts:
            continue
        for node in ast.walk(parsed(path)):
            name = getattr(node, "name", "_")
            if not isinstance(node, ast.AsyncFunctionDef) or name.startswith("_"):
                continue
            known = name in HARMLESS or name in DESTRUCTIVE or name.startswith("read")
            assert known or not _writes(node), f"{path.name}:{node.lineno}: what does {name} do?"


def _writes(function: ast.AST) -> bool:
    """Whether it may send a change: by a verb of HTTP, a call of another function, or a port."""
    verbs = {"post", "patch", "put", "delete", "send", "upload", "change"}
    called = {name for name, _ in calls(function)}
    return bool(called & (verbs | set(DESTRUCTIVE)))


def test_every_step_of_the_maintenance_image_is_known_and_asked_behind_its_gate() -> None:
    plugin = ROOT / "images/hardware_manager/provisioner_hardware_manager/plugin.py"
    offered = {
        n.name
        for n in ast.walk(parsed(plugin))
        if isinstance(n, ast.FunctionDef) and n.name.startswith("provisioner_")
    }
    assert offered == set(AGENT_STEPS)

    where = {}
    for path in sorted((CODE / "execution").rglob("*.py")):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Constant) and AGENT_STEPS.get(str(node.value)):
                where[node.value] = path
    assert set(where) == {name for name, act in AGENT_STEPS.items() if act is not None}
    for step, path in where.items():
        acts = {
            act
            for node in ast.walk(parsed(path))
            if isinstance(node, ast.AsyncFunctionDef)
            for act in gated(node, 10**9)
        }
        # the machine's own steps stand in a table with their acts, whose loop passes the gate
        table = acts_named(parsed(path))
        assert AGENT_STEPS[step] in acts | table, step
    eraser = parsed(CODE / "execution/steps/erasure.py")
    asked = [n for n in ast.walk(eraser) if isinstance(n, ast.AsyncFunctionDef)]
    rest = next(n for n in asked if n.name == "_rest")
    gates = [c.lineno for name, c in calls(rest) if name == "pass_gate"]
    asks = [c.lineno for name, c in calls(rest) if name == "_machine"]
    assert len(gates) == len(asks) == 1
    assert gates[0] < asks[0]


def test_an_image_is_written_to_a_disk_by_an_act_that_names_what_it_destroys() -> None:
    for file, function in acting():
        for name, call in calls(function):
            if name == "run_command" and any(
                isinstance(a, ast.Name) and a.id == "DEPLOY" for a in call.args
            ):
                assert D.IMAGE in gated(function, call.lineno), f"{file}:{call.lineno}"
                return
    raise AssertionError("no image is written any more")


def test_every_play_is_known_and_every_run_of_one_names_what_it_destroys() -> None:
    playbooks = {p.stem for p in (ROOT / "ansible/playbooks").glob("*.yml")}
    assert playbooks <= set(PLAYS)

    for file, function in acting():
        for name, call in calls(function):
            runs = name == "run_play" or (
                name == "run" and ast.unparse(call.func) == "site.runner.run"
            )
            if not runs or getattr(function, "name", "") == "run_play":
                continue
            named = {str(c.value) for c in ast.walk(function) if isinstance(c, ast.Constant)}
            if any(isinstance(a, ast.Name) and a.id == "PLAY" for a in call.args):
                named |= {_constant(file, "PLAY")}
            if {PLAYS[play] for play in named & set(PLAYS)} == {None}:
                continue
            said = any(
                k.arg == "destroys" and ast.unparse(k.value) != "None"
                for n, made in calls(function)
                if n == "Act"
                for k in made.keywords
            )
            assert said, f"{file}:{call.lineno}"


def _constant(file: str, name: str) -> str:
    """The text of a constant of a module."""
    for node in parsed(CODE / file).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=found)], value=ast.Constant(value=text)):
                if found == name:
                    return str(text)
    raise AssertionError(f"{file}: {name} is no text")


def test_every_physical_act_says_what_it_destroys() -> None:
    stated = set[Destruction]()
    for file, function in acting():
        for name, call in calls(function):
            if name != "Act" or not file.startswith("execution"):
                continue
            assert "destroys" in {k.arg for k in call.keywords}, f"{file}:{call.lineno}"
            stated |= acts_named(call)
    assert stated >= {D.IMAGE, D.SWITCH_IMAGE, D.BIOS_DEFAULTS, D.SECURE_BOOT_KEYS, D.BMC_DEFAULTS}


def test_once_asks_the_gate_between_the_intent_and_the_request() -> None:
    module = parsed(CODE / "execution/actions/once.py")
    send = next(
        n for n in ast.walk(module) if isinstance(n, ast.AsyncFunctionDef) and n.name == "_send"
    )
    lines = {name: call.lineno for name, call in calls(send)}

    assert lines["record_intent"] < lines["pass_gate"] < lines["send"]
    others = [n for n in ast.walk(module) if isinstance(n, ast.Attribute) and n.attr == "send"]
    assert len(others) == 1, "a second place that sends"


def test_a_stored_login_is_deleted_behind_the_gate_or_for_a_reason_that_is_listed() -> None:
    behind = 0
    for file, function in acting():
        for name, call in calls(function):
            text = ast.unparse(call.func)
            if name != "remove" or "credentials" not in text:
                continue
            if file in REMOVED_LOGINS:
                continue
            assert D.FORGOTTEN_LOGIN in gated(function, call.lineno), f"{file}:{call.lineno}"
            behind += 1
    assert behind == 2


@pytest.mark.parametrize(
    ("file", "act"),
    [
        ("execution/tenancy/login_removal.py", D.HOST_LOGIN),
        ("control/node/retiring.py", D.RETIREMENT),
        ("control/node/retiring.py", D.DISKS),
    ],
)
def test_acts_without_a_request_of_their_own_pass_the_gate_too(file: str, act: D) -> None:
    passed = {
        each
        for where, function in acting()
        if where == file
        for name, call in calls(function)
        if name == "pass_gate"
        for each in acts_named(call)
    }

    assert act in passed


def test_each_act_of_the_table_has_a_site() -> None:
    named: set[Destruction] = set()
    for _, function in acting():
        named |= gated(function, 10**9)
    named |= {act for act in DESTROYS.values() if act is not None}
    named |= acts_named(parsed(CODE / "execution/steps/erasure.py"))

    assert named == set(TABLE)
