"""House rules that no linter knows: sizes, complete tables of contents, documents equal to code."""

from __future__ import annotations

import ast
import graphlib
import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

import grimp
import pytest
import yaml

from provisioner import checks, components, quirks, settings
from provisioner.checks.check import Check
from provisioner.planning.lifecycle import journey
from provisioner.quirks.quirk import Quirk

ROOT = Path(__file__).parents[1]
MODULE_LINES_MAX = 600  # a module is a whole subject; the limit of what a reader holds
FOLDER_MODULES_MAX = 40
LOOSE_MODULES_MAX = 6  # of the package itself
FUNCTION_LINES_MAX = 70
LINE_CHARS_MAX = 100
WORD = re.compile(r"\b[a-z]\w*\b")
BAD_WORDS = {"manager", "helper", "helpers", "util", "utils", "common", "core"}
TEXT = {".py", ".md", ".yaml", ".yml", ".toml", ".sh", ".cfg", ".j2", ".html", ".js", ".css"}
PRODUCT_IMPORT = re.compile(
    r"^\s*from (?P<module>provisioner(?:\.\w+)*) import (?P<names>\([^)]*\)|[\w, ]*)", re.MULTILINE
)
SKIPPED = {"__pycache__", "node_modules"}


def files(*folders: str, suffixes: set[str]) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and path.is_file() and not SKIPPED & set(path.parts):
                yield path


def own_code() -> Iterator[Path]:
    return files("provisioner", "tests", suffixes={".py"})


def own_texts() -> Iterator[Path]:
    yield from (p for p in sorted(ROOT.iterdir()) if p.is_file() and p.suffix in TEXT)
    yield from (p for p in (ROOT / "Makefile", ROOT / ".ci" / "run", ROOT / ".ci" / "setup"))
    yield from files("provisioner", "delivery", "tests", "docs", "ansible", suffixes=TEXT)
    # images/out may hold a chroot with a /proc of its own
    yield from files("images/elements", "images/hardware_manager", "images/vm", suffixes=TEXT)
    yield from sorted((ROOT / "images").glob("*.py"))


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@dataclass(frozen=True)
class Syntax:
    """What the rules ask of one module, read once: to parse all of them takes seconds."""

    documented: bool
    functions: tuple[tuple[str, int], ...]  # name, lines
    classes: tuple[str, ...]
    prints: tuple[int, ...]  # lines
    pairs: tuple[int, ...]  # lines of assignments of a tuple to a tuple, swaps left out
    names: frozenset[str]  # what can be imported from it


@cache
def syntax_of(path: Path) -> Syntax:
    text = path.read_text()
    tree = ast.parse(text)
    nodes = list(statements(tree))
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    inner = ast.walk(tree) if "print(" in text else ()
    calls = [n for n in inner if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    return Syntax(
        documented=not text.strip() or bool(ast.get_docstring(tree)),
        functions=tuple((n.name, (n.end_lineno or 0) - n.lineno + 1) for n in functions),
        classes=tuple(n.name for n in nodes if isinstance(n, ast.ClassDef)),
        prints=tuple(n.lineno for n in calls if getattr(n.func, "id", "") == "print"),
        pairs=tuple(n.lineno for n in nodes if isinstance(n, ast.Assign) and is_pair(n)),
        names=frozenset(n for s in nodes for n in bound_by(s)),
    )


def bound_by(node: ast.AST) -> Iterator[str]:
    """The names that a statement binds, those inside of functions among them."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((n.asname or n.name) for n in node.names)
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Every statement of a module, and no expression: those are five times as many."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(node, part, ())


def is_pair(node: ast.Assign) -> bool:
    target = node.targets[0]
    if not isinstance(target, ast.Tuple) or not isinstance(node.value, ast.Tuple):
        return False
    swapped = {ast.unparse(e) for e in target.elts}
    return not {ast.unparse(e) for e in node.value.elts} <= swapped


def modules(package: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(found.name)


def test_no_module_is_longer_than_a_reader_can_hold():
    long = {named(p): n for p in own_code() if (n := p.read_text().count("\n")) > MODULE_LINES_MAX}

    assert long == {}


def test_no_folder_holds_more_than_a_reader_surveys():
    """A check or a migration is one file each, and their folders grow by design."""
    code = (p for p in files("provisioner", suffixes={".py"}) if p.name != "__init__.py")
    counts = Counter(path.parent for path in code)
    grows = {ROOT / "provisioner" / "checks", ROOT / "provisioner" / "store" / "migrations"}
    top = ROOT / "provisioner"

    assert counts[top] <= LOOSE_MODULES_MAX
    assert {
        named(p): n for p, n in counts.items() if n > FOLDER_MODULES_MAX and p not in grows
    } == {}


def test_no_two_modules_import_each_other_in_a_circle():
    """Imports for types only count as well: a circle of types is a circle for the reader."""
    graph = grimp.build_graph("provisioner", cache_dir=None)
    imports = {m: graph.find_modules_directly_imported_by(m) for m in graph.modules}

    tuple(graphlib.TopologicalSorter(imports).static_order())  # CycleError names the circle


def test_no_two_modules_of_the_tests_have_one_name():
    """Tests are no packages: Python would take the first for the second."""
    names = [p.name for p in files("tests", suffixes={".py"}) if p.name != "conftest.py"]

    assert sorted({n for n in names if names.count(n) > 1} - {"__init__.py"}) == []


def test_every_import_of_the_product_names_what_is_there():
    """Tests, tools and pages import late or rarely: a renamed module would show in one of them."""
    missing = []
    for path in files("tests", "docs", "images/vm", "delivery", suffixes={".py"}):
        for found in PRODUCT_IMPORT.finditer(path.read_text()):
            inside = ROOT / found["module"].replace(".", "/")
            module = inside.with_suffix(".py")
            module = module if module.exists() else inside / "__init__.py"
            names = syntax_of(module).names if module.exists() else frozenset()
            for name in re.findall(r"(\w+)(?: as \w+)?\s*(?:[,)]|$)", found["names"]):
                below = inside / name
                if name not in names and not below.with_suffix(".py").exists() | below.is_dir():
                    missing.append(f"{named(path)}: {found['module']}.{name}")

    assert missing == []


def test_no_function_is_longer_than_a_screen():
    long = {
        f"{named(path)}:{name}": lines
        for path in own_code()
        for name, lines in syntax_of(path).functions
        if lines > FUNCTION_LINES_MAX
    }

    assert long == {}


def test_no_line_of_code_is_too_long():
    long = [
        f"{named(path)}:{number}"
        for path in own_code()
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if len(line) > LINE_CHARS_MAX and "http" not in line and "noqa: E501" not in line
    ]

    assert long == []


def test_every_module_says_what_it_is_for():
    silent = [named(path) for path in own_code() if not syntax_of(path).documented]

    assert silent == []


def test_nothing_prints():
    prints = [
        f"{named(path)}:{line}"
        for path in files("provisioner", suffixes={".py"})
        for line in syntax_of(path).prints
    ]

    assert prints == []


def test_no_module_or_class_has_a_name_that_says_nothing():
    """Methods and values may say "manager": Redfish has a resource of that name."""
    bad = [named(p) for p in own_code() if BAD_WORDS & set(p.stem.lower().split("_"))]
    for path in own_code():
        for name in syntax_of(path).classes:
            words = {w.lower() for w in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)}
            bad += [f"{named(path)}:{name}"] if BAD_WORDS & words else []

    assert bad == []


def test_nothing_is_left_to_do():
    marks = re.compile(r"(#|//|<!--|\"\"\").*\b(TO" + r"DO|FIX" + r"ME)\b")
    left = [
        f"{named(path)}:{number}"
        for path in own_texts()
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if marks.search(line)
    ]

    assert left == []


def test_nothing_names_a_place_on_somebodys_machine():
    # a home below it; SCIM has a path of that name itself
    places = re.compile(r"(?<![\w.-])/(?:wo" + r"rk\b|Us" + r"ers/\w|tmp/mk\b|opt/py" + r"pi\b)")
    found = [
        f"{named(path)}:{number}"
        for path in own_texts()
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if places.search(line)
    ]

    assert found == []


def test_every_quirk_is_in_the_table_of_contents():
    declared = {
        value.name
        for m in modules(quirks)
        for value in vars(m).values()
        if isinstance(value, Quirk)
    }

    assert declared - {quirks.UNKNOWN.name} <= {quirk.name for quirk in quirks.ALL.values()}


def test_every_quirk_flag_is_documented():
    text = (ROOT / "provisioner" / "quirks" / "README.md").read_text()

    assert [name for name in Quirk.model_fields if f"`{name}`" not in text] == []


def test_every_check_is_in_the_table_of_contents():
    declared = {
        value.name
        for m in modules(checks)
        for value in vars(m).values()
        if isinstance(value, Check)
    }

    assert declared == {check.name for check in checks.ALL}


def test_every_family_of_components_is_in_the_table_of_contents_and_names_a_kind_once():
    files = {f.stem: f.read_text() for f in (ROOT / "provisioner" / "components").glob("*.yaml")}
    declared = [kind["name"] for text in files.values() for kind in yaml.safe_load(text)]

    assert set(files) == set(components.FAMILIES)
    assert sorted(declared) == sorted(components.ALL)


def test_each_setting_is_in_the_list_of_settings_once_with_its_meaning():
    listed = re.findall(r"^\| `(\w+)` \|.*\S \|$", settings.render_markdown(), re.MULTILINE)

    assert sorted(listed) == sorted(settings.Settings.model_fields)
    assert [n for n, f in settings.Settings.model_fields.items() if not f.description] == []


def test_every_setting_is_used():
    words = Counter(
        word for p in files("provisioner", suffixes={".py"}) for word in WORD.findall(p.read_text())
    )
    idle = [name for name in settings.Settings.model_fields if words[name] < 2]

    assert idle == []


def test_the_journey_in_the_documents_is_the_journey():
    lines = ["stateDiagram-v2", "    [*] --> discovered"]
    for state, stage in journey.JOURNEY.items():
        lines += [f"    {state} --> {target}" for target in stage.leaves_to]
    diagram = "\n".join([*lines, "    retired --> [*]"]) + "\n"
    assert diagram in (ROOT / "docs" / "lifecycle.md").read_text()


@pytest.mark.parametrize("play", sorted((ROOT / "ansible" / "playbooks").glob("*.yml")), ids=named)
def test_every_play_carries_the_mark_of_its_run_and_hands_over_one_result(play: Path):
    """By the mark a probe finds what is left of a run in a host; without the result: no verdict."""
    (content,) = yaml.safe_load(play.read_text())

    assert content["environment"]["PROVISIONER_RUN"] == "{{ provisioner_run | default('') }}"
    assert "provisioner_result" in content["tasks"][-1]["ansible.builtin.set_fact"]


def test_no_assignment_of_a_tuple_saves_lines():
    """Values on one line are read in pairs; a call that returns a tuple, and a swap, may stay."""
    paired = [
        f"{named(path)}:{line}"
        for path in files("provisioner", suffixes={".py"})
        for line in syntax_of(path).pairs
    ]

    assert paired == []


def test_no_assert_does_anything():
    """Python leaves asserts out where it runs optimized; what they call would be left out, too."""
    wrong = [
        f"{named(path)}:{node.lineno}"
        for path in files("provisioner", suffixes={".py"})
        if "assert " in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assert) and any(map(does_something, ast.walk(node.test)))
    ]
    assert wrong == []


def does_something(node: ast.AST) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    ours = isinstance(called, ast.Name) and called.id.startswith("_")
    own = isinstance(called, ast.Attribute) and ast.unparse(called.value).startswith("self")
    return ours or own or isinstance(node, ast.Await | ast.NamedExpr)
