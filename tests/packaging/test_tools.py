"""A make target's tools are quiet while they work, and say why themselves when they fail."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from delivery.sources import DeliveryError
from delivery.sources import run_tool as run_for_delivery
from delivery.tools import LAST_LINES, ToolError, read_last_lines, run_tool
from images.inputs import run_tool as run_for_image
from images.locks import BadInput

ROOT = Path(__file__).parents[2]
ACCEPTANCE = ROOT / "docs" / "examples" / "acceptance"
# where programs lie that make targets start
PROGRAMS = ("delivery", "images", "docs/examples/acceptance", "tests/bench", "tests/netbox")


def python(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


def test_the_output_of_a_tool_is_returned():
    assert run_tool(*python("print(input())"), content="a line") == "a line\n"


def test_a_tool_that_fails_is_told_with_its_last_lines_of_errors():
    long = (
        "import sys; print('x' * 9000); [print(i, file=sys.stderr) for i in range(99)]; sys.exit(3)"
    )
    with pytest.raises(ToolError) as told:
        run_tool(*python(long))

    lines = str(told.value).splitlines()
    assert "failed with exit code 3" in lines[0]
    assert [line.strip() for line in lines[1:]] == [str(n) for n in range(99)][-LAST_LINES:]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import sys; print('only here'); sys.exit(1)", "only here"),
        ("import sys; sys.exit(1)", "said nothing"),
        ("import os; os.kill(os.getpid(), 9)", "ended by signal 9"),
        ("import os; os.write(2, b'\\xff\\xfe broken'); os._exit(1)", "broken"),
        ("import sys; print(sys.stdin.read(), flush=True); sys.exit('end')", "end"),
    ],
    ids=["in its output", "silent", "killed", "in no encoding", "asks a person"],
)
def test_each_way_of_failing_is_told(text: str, told: str):
    with pytest.raises(ToolError, match=told):
        run_tool(*python(text))


def test_a_tool_that_does_not_end_is_told_with_what_it_said_until_then():
    with pytest.raises(ToolError, match=r"did not end within 0.5 s\n  so far"):
        run_tool(*python("import time; print('so far', flush=True); time.sleep(60)"), timeout_s=0.5)


def test_a_tool_that_is_not_installed_is_named():
    with pytest.raises(ToolError, match="no-such-tool is not installed"):
        run_tool("no-such-tool", "--version")


def test_each_package_has_its_own_error_of_the_one_helper():
    for run, error in ((run_for_image, BadInput), (run_for_delivery, DeliveryError)):
        words = python("import sys; sys.exit('its own words')")
        with pytest.raises(error, match="its own words"):
            run(*words) if run is run_for_image else run(list(words))


def test_a_log_that_a_program_wrote_ends_a_message(tmp_path: Path):
    log = tmp_path / "log"
    assert "cannot be read" in read_last_lines(log)

    log.write_text("first\n\nlast\n")
    assert read_last_lines(log) == f", see {log}\n  first\n  last"


def test_a_guest_of_the_acceptance_run_is_built_where_there_is_no_folder_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """`make acceptance` in a fresh clone: mmdebstrap makes its own folder and none above it."""
    monkeypatch.syspath_prepend(str(ACCEPTANCE))
    import guest_host

    tools = tmp_path / "tools"
    tools.mkdir()
    # as mmdebstrap 1.3 says it, and does it (`main`, realpath of the target's folder)
    (tools / "mmdebstrap").write_text(
        '#!/bin/sh\nfor target; do :; done\n[ -d "${target%/*}" ] ||'
        '{ echo "E: unable to get absolute path of target directory" >&2; exit 1; }\n'
        'mkdir "$target"\n[ ! -e "${target%/*}/full" ] || { echo "E: disk full" >&2; exit 1; }\n'
    )
    (tools / "mmdebstrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")

    base = guest_host.build_system(tmp_path / "build" / "acceptance-guest")
    assert base.is_dir()

    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "full").touch()
    with pytest.raises(ToolError, match="E: disk full"):
        guest_host.build_system(tmp_path / "other")


def swallowing_calls(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of calls that end in a bare CalledProcessError, with the errors kept."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "subprocess.run":
            given = {k.arg: ast.unparse(k.value) for k in node.keywords if k.arg}
            kept = {"capture_output", "stderr"} & given.keys()
            to_a_person = given.get("stderr") == "sys.stderr"
            if given.get("check") == "True" and kept and not to_a_person:
                yield node.lineno


def test_no_program_of_a_make_target_keeps_its_tools_errors_to_itself():
    files = [file for folder in PROGRAMS for file in (ROOT / folder).rglob("*.py")]
    texts = {file: text for file in files if "subprocess.run" in (text := file.read_text())}
    found = [f"{f}:{n}" for f, text in texts.items() for n in swallowing_calls(ast.parse(text))]

    assert len(files) > 80
    assert found == []


def test_the_rule_finds_what_it_is_about():
    texts = ("capture_output=True", "stderr=log", "stderr=subprocess.DEVNULL")
    for text in texts:
        tree = ast.parse(f"subprocess.run(words, check=True, {text})")
        assert list(swallowing_calls(tree)) == [1]
    assert list(swallowing_calls(ast.parse("subprocess.run(words, check=True)"))) == []
