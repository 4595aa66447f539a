"""The pages hold: links and anchors lead somewhere, commands are commands, pages have places."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from page_reading import ROOT, blocks, commands, pages

from provisioner.model.access import ChangeKind
from provisioner.model.recovery import GateCheck

DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))

import reference_pages  # noqa: E402  (beside the pages, in no package)
import sections  # noqa: E402

ALL = dict(reference_pages.commands())
LINK = re.compile(r"\]\(([^)\s]+)\)")
LINES = [(page, words) for page in pages() for block in blocks(page) for words in commands(block)]


def without_code(text: str) -> str:
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


@functools.cache
def anchors(page: Path) -> set[str]:
    """As GitHub and MyST make them of headings, and those that a page names itself."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}
    return made | set(re.findall(r'<a id="([\w-]+)"></a>', text))


def tracked(*endings: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    files = [ROOT / name for name in listed.stdout.split("\0") if name.endswith(endings)]
    return [file for file in files if file.is_file() and not file.is_symlink()]


def find_dead_links(page: Path) -> list[str]:
    """Return the links of a document that lead to no file or to no heading of it."""
    dead = []
    for link in LINK.findall(without_code(page.read_text(encoding="utf-8"))):
        target, _, anchor = link.partition("#")
        if re.match(r"\w+:", link) or target.endswith(".html"):
            continue
        file = (page.parent / target).resolve() if target else page
        if "generated" in file.parts and file.name in reference_pages.PAGES:
            continue
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            dead.append(link)
    return dead


CITED = re.compile(r"(?<![\w/.:-])docs/([\w/.-]+\.md)(?:#([\w-]+))?")


def find_dead_citations(file: Path) -> list[str]:
    """Return what a file of code cites of docs/ and a reader would not find there."""
    if file == Path(__file__):
        return []
    dead = []
    for name, anchor in CITED.findall(file.read_text(encoding="utf-8")):
        page = DOCS / name
        made = "generated" in page.parts
        if not made and (not page.is_file() or (anchor and anchor not in anchors(page))):
            dead.append(f"{file.relative_to(ROOT)}: docs/{name}{'#' * bool(anchor)}{anchor}")
    return dead


def wrong_with(words: list[str]) -> str:
    """Why a command line is none, or nothing: its name, its options, how many arguments."""
    name, rest = words[0], words[1:]
    while rest:
        of_group = reference_pages.options(ALL[name]) if hasattr(ALL[name], "commands") else {}
        if rest[0] in of_group:
            rest = rest[2:] if reference_pages.takes_value(of_group[rest[0]]) else rest[1:]
        elif f"{name} {rest[0]}" in ALL:
            name, rest = f"{name} {rest[0]}", rest[1:]
        else:
            break
    command: Any = ALL[name]
    if getattr(command, "commands", None):
        return "" if rest in ([], ["--help"]) else f"no such command: {words[:3]}"
    known = reference_pages.options(command) | {"--help": click.Option(["--help"], is_flag=True)}
    arguments = 0
    while rest:
        word, rest = rest[0], rest[1:]
        if not word.startswith("-") or word == "-":
            arguments += 1
            continue
        option = known.get(word.partition("=")[0])
        if option is None:
            return f"{name} has no {word}"
        if reference_pages.takes_value(option) and "=" not in word:
            if not rest:
                return f"{name}: {word} lacks its value"
            rest = rest[1:]
    taken = [p for p in command.params if p.param_type_name == "argument"]
    most = 99 if any(p.nargs == -1 for p in taken) else len(taken)
    return "" if arguments <= most else f"{name} takes {most} arguments, not {arguments}"


def test_commands_were_found():
    assert len(LINES) > 100


@pytest.mark.parametrize("page", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_command_of_a_page_is_understood_by_the_program(page: Path):
    wrong = [(" ".join(w), why) for p, w in LINES if p == page and (why := wrong_with(w))]

    assert wrong == []


def misnamed(text: str) -> list[str]:
    """Return the commands in a sentence (`provisioner storage show|check`) that are none."""
    wrong = []
    for command in re.findall(
        r"`(provisioner [^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    ):
        name = "provisioner"
        for word in command.replace(",", " ").split()[1:]:
            if not getattr(ALL[name], "commands", None) or not re.match(r"[a-z]", word):
                break
            if f"{name} {word.partition('|')[0]}" not in ALL:
                wrong.append(command)
                break
            name += f" {word.partition('|')[0]}"
    return wrong


def test_every_command_in_a_sentence_or_a_table_is_one_of_the_program():
    files = [*pages(), *DOCS.glob("*.csv"), DOCS / "tables.yaml"]
    files += [ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
    wrong = {f.name: misnamed(f.read_text(encoding="utf-8")) for f in files}
    wrong["exercises.md"].remove("provisioner lights RACK")  # the reader writes it

    assert {name: found for name, found in wrong.items() if found} == {}
    assert misnamed("`provisioner judge` `provisioner node lst` `provisioner log head|verify`") == [
        "provisioner judge",
        "provisioner node lst",
    ]


def test_a_wrong_command_is_found():
    assert wrong_with(["provisioner", "node", "lst"])
    assert wrong_with(["provisioner", "node", "list", "--dat", "x"])
    assert wrong_with(["provisioner", "case", "accept", "a", "b"])
    assert wrong_with(["provisioner", "node", "list", "--data"])


def test_every_link_of_a_document_leads_to_a_file_and_a_heading():
    dead = {str(page.relative_to(ROOT)): find_dead_links(page) for page in tracked(".md")}

    assert {page: links for page, links in dead.items() if links} == {}


def test_every_citation_in_code_leads_to_a_page_and_an_anchor():
    code = tracked(".py", ".csv", ".yaml", ".yml", ".toml", ".sh", ".ts", "Makefile")

    assert [dead for file in code for dead in find_dead_citations(file)] == []


def test_no_comment_cites_a_file_that_readers_do_not_have():
    subject = "redfish|hardware|health|engine|ansible|writes|image|inband|attestation|bmcweb"
    private = re.compile(
        rf"\bfacts/(?:{subject})|\bfacts[:,]? (?:{subject}) ?[A-Z]?\d|[(#] ?facts:? [A-Z]?\d"
        rf"|(?<![/\w])(?:{subject})\.md(?:, table| \d)|[(;] ?(?:{subject}) \d+\.\d"
        r'|^"""[A-Z]\d+[a-z]?[:,]'  # the id of a list of checks that stands nowhere
    )
    code = [file for file in tracked(".py", ".yaml", ".yml", ".toml") if file != Path(__file__)]

    assert [file for file in code if private.search(file.read_text(encoding="utf-8"))] == []


def test_a_dead_link_and_a_dead_citation_are_found(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text('<a id="there"></a>\n[a](#there) [b](#not-there) [c](none.md)\n')
    assert find_dead_links(page) == ["#not-there", "none.md"]
    code = ROOT / "build" / "cites.py"
    code.parent.mkdir(exist_ok=True)
    try:
        cited = ("sources/redfish.md#tasks", "sources/redfish.md#no", "no.md")
        code.write_text("".join(f"# docs/{page}\n" for page in cited))
        found = [dead.partition(": ")[2] for dead in find_dead_citations(code)]
    finally:
        code.unlink()
    assert found == [f"docs/{page}" for page in cited[1:]]


@pytest.mark.parametrize("page", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_make_target_of_a_page_is_one(page: Path):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, flags=re.MULTILINE))

    assert named - targets == set()


def test_every_page_is_in_one_section_and_once():
    listed = [page for found in sections.by_section().values() for page in found]

    assert set(sections.by_section()) == set(sections.SECTIONS)
    assert sorted(listed) == sorted(set(listed))
    assert set(listed) == sections.pages()


def test_the_reference_names_every_command_route_and_reason():
    made = {name: make() for name, make in reference_pages.PAGES.items()}

    assert [n for n in ALL if n != "provisioner" and f" {n}\n" not in made["command-line.md"]] == []
    assert "### GET /v1/nodes" in made["api-routes.md"]
    assert "`check_failed`" in made["reasons.md"]
    links = [
        (name, target)
        for name, text in made.items()
        for link in LINK.findall(without_code(text))
        if (target := link.partition("#")[0]) and not re.match(r"\w+:", target)
    ]
    assert links
    assert [
        (name, target)
        for name, target in links
        if target not in made and not (DOCS / "generated" / target).resolve().exists()
    ] == []


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("tests/remainders.yaml", 50),
        ("tests/misbehaviours.yaml", 20),
        ("tests/promises.yaml", 16),
        ("docs/comparison.csv", 30),
    ],
)
def test_every_test_that_a_table_names_is_there(table: str, rows: int):
    text = (ROOT / table).read_text()
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", text)
    assert len(named) >= rows
    for file, function in named:
        (path,) = (ROOT / "tests").rglob(file)
        assert f"def {function}(" in path.read_text(), f"{file}::{function}"


def test_every_test_that_a_threat_names_is_there():
    origins = yaml.safe_load((ROOT / "tests/threats.yaml").read_text(encoding="utf-8"))
    named = {test for o in origins for row in o["rows"] for test in row["tests"]}

    assert len(named) >= 30
    assert named - {path.name for path in (ROOT / "tests").rglob("test_*.py")} == set()


def test_the_page_of_the_gate_has_exactly_the_rows_of_the_code():
    rows = yaml.safe_load((DOCS / "release_gate.yaml").read_text(encoding="utf-8"))
    named = [name for row in rows for name in row["rows"]]

    assert sorted(named) == sorted(check.value for check in GateCheck)


def test_the_page_of_changes_lists_the_kinds_that_another_person_can_approve():
    listed = re.findall(r"`(\w+\.\w+)`", reference_pages.PAGES["change-kinds.md"]())

    assert [kind.value for kind in ChangeKind if kind.value not in listed] == []
