"""Sets of BIOS and BMC settings in the matrix: their rules, and the sets that run on a machine."""

from __future__ import annotations

import pytest
from test_planner import edge, matrix

from provisioner import quirks
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Activation, Component, Inventory, WriteObstacle
from provisioner.model.machine.settings import (
    AttributeRegistry,
    AttributeRule,
    BiosSettings,
    BmcSettings,
    Dependency,
    DependencyTerm,
    MachineSettings,
    SecureBootState,
    Value,
)
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Reason
from provisioner.model.plan import History, StagedFact
from provisioner.planning.machine_settings.pinned_sets import (
    BIOS,
    BMC,
    find_pinned_setting,
    select_machine_sets,
)
from provisioner.planning.machine_settings.resolution import find_lock, predict
from provisioner.planning.machine_settings.running_sets import build_components, find_differences
from provisioner.planning.matrix.matrix_text import parse
from provisioner.planning.path.planner import plan

ROWS = quirks.ALL["dell_idrac"].meanings
MATRIX = """\
schema: 1
releases:
  r1:
    profiles:
      p:
        match: {kind: host}
        pins:
          host.bios_settings: {version: fast}
          host.bmc_settings: {version: safe}
edges:
  host.bios_settings:
    - {from: ["*"], to: fast, via: [first], activates_by: warm_reboot, evidence: own}
machine_settings:
  first: {power_profile: custom}
  fast: {power_profile: custom, c_states: off, secure_boot: on}
  safe: {ipmi: off, ntp: "10.0.0.1,10.0.0.2"}
"""


def refusal(text: str) -> InputError:
    with pytest.raises(InputError) as error:
        parse([("own.yaml", text)])
    return error.value


@pytest.mark.parametrize(
    ("release", "profile", "name", "value"),
    [
        ("r1", "p", "ipmi", "off"),
        ("r1", "p", "c_states", "off"),
        ("r1", "p", "ssh", None),
        ("r1", "other", "ipmi", None),
        ("r0", "p", "ipmi", None),
        ("", "", "ipmi", None),
    ],
)
def test_a_setting_is_pinned_by_the_set_of_the_nodes_profile(
    release: str, profile: str, name: str, value: str | None
) -> None:
    node = Node(id="n", kind=NodeKind.HOST, release=release, profile=profile)

    assert find_pinned_setting(parse([("own.yaml", MATRIX)]), node, name) == value


def test_on_and_off_need_no_quotes_and_sets_on_the_way_are_read_too() -> None:
    matrix = parse([("own.yaml", MATRIX)])

    sets = select_machine_sets(matrix)

    assert sorted(sets[BIOS]) == ["fast", "first"]
    assert sets[BIOS]["fast"]["c_states"] == "off"
    assert sorted(sets[BMC]) == ["safe"]


@pytest.mark.parametrize(
    ("good", "bad", "line", "part"),
    [
        ("ipmi: off", "impi: off", 16, "Is it 'ipmi'?"),
        ("c_states: off", "c_states: deep", 15, "Write one of on, off"),
        ("c_states: off", "numa_per_socket: 3", 15, "Write one of 1, 2, 4"),
        ("c_states: off", "ipmi: off", 15, "Make two sets"),
        ("c_states: off", "attribute:SetupPassword: x", 15, "never pinned"),
        ('ntp: "10.0.0.1,10.0.0.2"', 'ntp: "10.0.0.1;rm"', 16, "time servers"),
        ("{version: fast}", "{version: faster}", 8, "Add them under machine_settings"),
        ("{version: fast}", "{version: safe}", 8, "Pin it under host.bmc_settings"),
        ("  safe: {ipmi: off", "  none: {}\n  safe: {ipmi: off", 16, "List them"),
        ("ipmi: off", "login_order: radius", 16, "Write one of local"),
        ("safe: {ipmi: off", "safe: {tacacs: off, ipmi: off", 16, "no setting of switch.settings"),
        ("safe: {ipmi: off", 'safe: {login_order: "local,tacacs"', 16, "add `tacacs`"),
    ],
)
def test_nonsense_is_refused_with_its_line_and_the_remedy(
    good: str, bad: str, line: int, part: str
) -> None:
    error = str(refusal(MATRIX.replace(good, bad, 1)))

    assert f"line {line}" in error
    assert part in error


def machine(
    current: dict[str, Value] | None,
    pending: dict[str, Value] | None = None,
    registry: AttributeRegistry | None = None,
    *,
    secure: tuple[bool, bool] = (False, False),
) -> MachineSettings:
    bios = BiosSettings(source="/bios", current=current, pending=pending or {}, registry=registry)
    state = SecureBootState(source="/sb", enabled=secure[1], running=secure[0])
    return MachineSettings(vendor="dell_idrac", bios=(bios,), secure_boot=(state,))


SETS = {BIOS: {"small": {"iommu": "on"}, "large": {"iommu": "on", "secure_boot": "on"}}}
ON: dict[str, Value] = {"ProcVirtualization": "Enabled"}
OFF: dict[str, Value] = {"ProcVirtualization": "Disabled"}


@pytest.mark.parametrize(
    ("settings", "version", "staged"),
    [
        (machine(OFF), "none", None),
        (machine(ON), "small", None),
        (machine(ON, secure=(True, True)), "large", None),
        (machine(ON, secure=(False, True)), "small", "large"),
        (machine(OFF, ON), "none", "small"),
        (machine(OFF, ON, secure=(False, True)), "none", "large"),
        (machine(None), None, None),
        (machine({}), "none", None),
    ],
)
def test_the_largest_set_that_runs_is_the_version_and_what_waits_is_staged(
    settings: MachineSettings, version: str | None, staged: str | None
) -> None:
    (component,) = build_components(settings, SETS, ROWS)

    assert (component.version, component.staged) == (version, staged)
    assert component.pending is (Activation.WARM_REBOOT if staged else None)


def test_a_difference_names_the_attribute_and_its_value() -> None:
    pinned = {"iommu": "on", "secure_boot": "on", "attribute:LogicalProc": "Enabled"}

    assert find_differences(pinned, machine(OFF), ROWS) == {
        "iommu": "ProcVirtualization = Disabled",
        "secure_boot": "off",
        "attribute:LogicalProc": "not shown",
    }


def test_settings_of_a_bmc_run_when_all_of_them_show() -> None:
    values: dict[str, Value] = {
        "IPMI.ProtocolEnabled": False,
        "NTP.ProtocolEnabled": True,
        "NTP.NTPServers": "10.0.0.1",
        "AccountLockoutThreshold": 3,
        "PowerRestorePolicy": "LastState",
        "HostInterfaces.1.InterfaceEnabled": False,
    }
    bmc = BmcSettings(source="/bmc", values=values)
    pinned = {
        "ipmi": "off",
        "ntp": "10.0.0.1",
        "lockout_threshold": "3",
        "power_restore": "last",
        "host_interface": "off",
    }
    for name in pinned:
        other = pinned | {name: "10.0.0.9" if name == "ntp" else "on"}
        sets = {BMC: {"own": pinned, "other": other}}
        (component,) = build_components(MachineSettings(vendor="x", bmcs=(bmc,)), sets, ())
        assert component.version == "own"


# --- dependencies


def registry(*dependencies: Dependency, read_only: bool = False) -> AttributeRegistry:
    rules = {n: AttributeRule(name=n, read_only=read_only) for n in ("A", "B", "C")}
    return AttributeRegistry(source="/r", rules=rules, dependencies=dependencies)


def mapped(
    target: str, affects: str, value: Value, *terms: tuple[str, str, Value], every: bool = False
) -> Dependency:
    listed = tuple(DependencyTerm(attribute=a, condition=c, value=v) for a, c, v in terms)
    return Dependency(attribute=target, affects=affects, value=value, terms=listed, every=every)


@pytest.mark.parametrize(
    ("condition", "value", "locked"),
    [
        ("EQU", 5, True),
        ("NEQ", 5, False),
        ("GTR", 4, True),
        ("GEQ", 5, True),
        ("LSS", 5, False),
        ("LEQ", 5, True),
        ("GTR", "4", False),
    ],
)
def test_a_lock_compares_by_its_condition(condition: str, value: Value, locked: bool) -> None:
    book = registry(mapped("A", "ReadOnly", True, ("B", condition, value)))

    assert (find_lock(book, "A", {"B": 5}) is not None) is locked


def test_one_term_is_enough_unless_all_are_asked_for() -> None:
    terms = (("B", "EQU", "on"), ("C", "EQU", "on"))
    values: dict[str, Value] = {"B": "on", "C": "off"}

    assert find_lock(registry(mapped("A", "GrayOut", True, *terms)), "A", values) is not None
    assert (
        find_lock(registry(mapped("A", "GrayOut", True, *terms, every=True)), "A", values) is None
    )


def test_the_registrys_flag_decides_where_a_term_is_not_shown() -> None:
    one = mapped("A", "ReadOnly", True, ("X", "EQU", "on"))

    assert find_lock(registry(one, read_only=True), "A", {}) is not None
    assert find_lock(registry(one, read_only=False), "A", {}) is None
    assert find_lock(registry(one, read_only=True), "A", {"X": "off"}) is None


def test_a_change_writes_others_in_a_chain_and_a_circle_ends() -> None:
    book = registry(
        mapped("B", "CurrentValue", 1, ("A", "EQU", 1)),
        mapped("C", "CurrentValue", 1, ("B", "EQU", 1)),
        mapped("A", "CurrentValue", 0, ("C", "EQU", 1)),
        mapped("A", "CurrentValue", 1, ("A", "EQU", 0)),
    )

    assert predict(book, {"A": 0, "B": 0, "C": 0}, {"A": 1})["C"] == 1


def test_a_map_at_rest_writes_nothing() -> None:
    book = registry(mapped("B", "CurrentValue", 1, ("A", "EQU", 1)))

    assert predict(book, {"A": 1, "B": 0, "C": 0}, {"C": 1}) == {"A": 1, "B": 0, "C": 1}


# --- the plan

SETTINGS = Component(kind=BIOS, slot="host", version="none", bmc="host", source="/bios")
BESIDE = Component(kind="host.driver", slot="0", version="1.0", source="host")


def steps(component: Component, *others: Component) -> list[tuple[str, str]]:
    """Return each step of the plan as its component, or its reset, and its version."""
    pins = {BIOS: "fast"} | {other.kind: "2.0" for other in others}
    edges = {kind: (edge("*", version, REBOOT),) for kind, version in pins.items()}
    inventory = Inventory(node="n", vendor="v", components=(component, *others))
    answer = plan(inventory, matrix(pins, edges), "r", "p", production=False)
    assert answer.blockers == ()
    return [(step.component or str(step.activation), step.to_version) for step in answer.steps]


REBOOT = Activation.WARM_REBOOT


def test_settings_that_differ_are_written_and_booted() -> None:
    assert steps(SETTINGS) == [(BIOS, "fast"), ("warm_reboot", "")]


def test_their_boot_is_shared_with_other_updates() -> None:
    names = [name for name, _ in steps(SETTINGS, BESIDE)]

    assert sorted(names) == [BIOS, "host.driver", "warm_reboot"]
    assert names[-1] == "warm_reboot"


def test_a_set_that_runs_needs_nothing() -> None:
    assert steps(SETTINGS.model_copy(update={"version": "fast"})) == []


def test_a_set_that_waits_in_the_settings_object_is_only_booted() -> None:
    waiting = SETTINGS.model_copy(update={"staged": "fast", "pending": REBOOT})

    assert steps(waiting) == [("warm_reboot", "")]


@pytest.mark.parametrize(("kind", "boots"), [(BIOS, True), ("host.driver", False)])
def test_a_set_that_shows_as_running_before_its_boot_is_booted_all_the_same(
    kind: str, boots: bool
) -> None:
    """Settings misbehaviour 2; a version of firmware is believed, which shows only if it runs."""
    fact = StagedFact(kind=kind, slot="host", version="fast", activation=REBOOT)
    shown = SETTINGS.model_copy(update={"kind": kind, "version": "fast"})
    pinned = matrix({kind: "fast"}, {kind: (edge("*", "fast", REBOOT),)})
    inventory = Inventory(node="n", vendor="v", components=(shown,))

    answer = plan(inventory, pinned, "r", "p", production=False, history=History(staged=(fact,)))

    assert [str(step.activation) for step in answer.steps] == ["warm_reboot"] * boots
    later = plan(inventory, pinned, "r", "p", production=False)  # the boot has ended the wait
    assert later.steps == ()


def test_a_lockdown_blocks_the_plan_before_anything_is_sent() -> None:
    lockdown = WriteObstacle(
        bmc="host",
        name="lockdown",
        hinders=("push", "settings"),
        reason=Reason.REFUSED,
        detail="it is on",
        unblock="Switch it off.",
    )
    inventory = Inventory(node="n", vendor="v", components=(SETTINGS,), obstacles=(lockdown,))
    pinned = matrix({BIOS: "fast"}, {BIOS: (edge("*", "fast", REBOOT),)})

    answer = plan(inventory, pinned, "r", "p", production=False)

    assert answer.steps == ()
    assert [b.unblock for b in answer.blockers] == ["Switch it off."]
