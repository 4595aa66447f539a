"""What a person writes wrong: one error with file, line or field, and the remedy; nothing is made.

Through `main`, so that the exit code and the standard error are what a person gets.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from program import run

from provisioner.cli.options.checked_options import PASSWORD

SHIPPED = Path(__file__).parents[2] / "firmware_matrix.yaml"
HOST = "nodes:\n  - {name: n0, kind: host, bmc: {serial: S1}}\n"
DELL = "factory_credentials:\n  dell_idrac: {username: u, %s}\n"
MATRIX = """\
schema: 1
releases:
  r:
    profiles:
      p: {match: {kind: host}, pins: {host.bmc: {version: "2.0"}}}
"""
FILES: dict[str, str | bytes] = {
    "good.yaml": HOST,
    "matrix.yaml": MATRIX,
    "cut.yaml": "nodes: [a\n",
    "empty": "",
    "list.yaml": "- 1\n",
    "bytes": b"nodes: \xff\xfe\n",
    "anchor.yaml": "nodes: &a [*a]\n",
    "twice.yaml": "nodes: []\nnodes: []\n",
    "vendor.yaml": "factory_credentials:\n  acme: {username: u, password: p}\n" + HOST,
    "no_env.yaml": DELL % "password_env: GONE" + HOST,
    "empty_env.yaml": DELL % "password_env: NIL" + HOST,
    "no_file.yaml": DELL % "password_file: gone" + HOST,
    "two_sources.yaml": DELL % "password: p, password_env: X" + HOST,
    "mac.yaml": 'nodes:\n  - {name: n0, kind: host, bmc: {mac: "001122334455"}}\n',
    "nobody.yaml": "nodes:\n  - {name: n0, kind: host}\n",
    "switch.yaml": 'nodes:\n  - {name: s0, kind: switch, address: "http://10.0.0.1"}\n',
    "serials.yaml": HOST + "  - {name: n1, kind: host, bmc: {serial: S1}}\n",
    "maint.yaml": HOST + "tenants:\n  - {name: red, vrf: MAINT}\n",
    "negative.yaml": HOST + "tenants:\n  - {name: red, vrf: RED, nodes_wanted: -1}\n",
    "pins.yaml": MATRIX.replace('"2.0"', "[]"),
    "field.yaml": MATRIX + "wrong: 1\n",
    "schema.yaml": MATRIX.replace("schema: 1", "schema: 7"),
    "overlay.yaml": MATRIX.replace("2.0", "3.0"),
    "text_setting.yaml": "site: here\npoll_s: soon\n",
    "no_setting.yaml": "poll: 3\n",
    "setting_limit.yaml": "attempts_max: 99\n",
    "not.pem": "no certificate\n",
    "cut.json": '{"components": [\n',
    "number.json": '{"components": 3, "vendor": "v"}',
    "list.json": "[]",
}  # fmt: skip

INTAKE = "intake --data data --file "
SERVE = "serve --data data --artifacts . --playbooks . "
INSPECT = "inspect https://bmc.example "

# what is typed: words that the one error holds (file, line or field; then the remedy)
CASES: dict[str, tuple[str, ...]] = {
    # the proposal of a site
    "init": ("init", "no place to look for BMCs", "--range, --leases or --bmc"),
    "init --range 10.0.0.999/24": ("10.0.0.999/24",),
    "init --range 10.0.0.0/24 --switches 10.0.1.0/28": ("SWITCH_PASSWORD is not set", "export"),
    "init --range 10.0.0.0/24 --names rack": ("--names", "all hosts would have one name"),
    "init --range 10.0.0.0/24 --names n{place}": ("--names", "{place} is not known", "{index"),
    "init --range 10.0.0.0/24 --release none": ("--release", "no such release", "It is one of"),
    "init --range 10.0.0.0/24 --file cut.yaml": ("cut.yaml, line 2", "not YAML"),
    "init --range 10.0.0.0/24 --matrix gone.yaml": ("gone.yaml", "no such file"),
    "init --leases gone": ("gone", "no such file"),
    "init --leases bytes": ("bytes",),
    # the expected-hardware list
    INTAKE + "gone.yaml": ("gone.yaml", "no such file", "path"),
    INTAKE + ".": (".", "no file"),
    INTAKE + "cut.yaml": ("cut.yaml, line 2", "not YAML", "syntax"),
    INTAKE + "empty": ("empty, line 1", "nodes:"),
    INTAKE + "list.yaml": ("list.yaml, line 1", "nodes:"),
    INTAKE + "bytes": ("bytes, line 1", "UTF-8"),
    INTAKE + "anchor.yaml": ("anchor.yaml, line 1", "anchors"),
    INTAKE + "twice.yaml": ("twice.yaml, line 2", "second time", "See line 1"),
    INTAKE + "vendor.yaml": ("vendor.yaml, line 2", "acme", "dell_idrac"),
    INTAKE + "two_sources.yaml": ("two_sources.yaml, line 2", "exactly one of"),
    INTAKE + "mac.yaml": ("mac.yaml, line 2, field nodes[0].bmc.mac", "5c:25:73:00:00:01"),
    INTAKE + "nobody.yaml": ("nobody.yaml, line 2", "bmc.serial"),
    INTAKE + "switch.yaml": ("switch.yaml, line 2", "nodes[0].address", "https://"),
    INTAKE + "serials.yaml": ("serials.yaml, line 3", "S1", "second time", "line 2"),
    INTAKE + "maint.yaml": ("maint.yaml, line 4", "MAINT"),
    INTAKE + "negative.yaml": ("negative.yaml, line 4", "nodes_wanted", "0 or more"),
    # credentials
    INTAKE + "no_env.yaml": ("factory_credentials.dell_idrac", "GONE", "export GONE"),
    INTAKE + "empty_env.yaml": ("factory_credentials.dell_idrac", "NIL", "export NIL"),
    INTAKE + "no_file.yaml": ("dell_idrac, password_file", "gone", "no such file"),
    INSPECT + "--user root": ("--user", PASSWORD),
    # networks and addresses
    # certificates and pins
    INSPECT + "--ca not.pem": ("--ca", "not.pem", "PEM"),
    INSPECT + "--ca gone.pem": ("--ca", "gone.pem", "PEM"),
    INSPECT + "--pin 12:34": ("--pin", "64 hexadecimal"),
    SERVE + "--matrix matrix.yaml --ca-file not.pem": ("--ca-file", "not.pem", "PEM"),
    # the matrix
    SERVE + "--matrix gone.yaml": ("gone.yaml", "no such file"),
    SERVE + "--matrix pins.yaml": ("pins.yaml, line 5", "version"),
    SERVE + "--matrix field.yaml": ("field.yaml, line 6", "wrong"),
    SERVE + "--matrix schema.yaml": ("schema.yaml, line 1", "schema 1"),
    SERVE + "--matrix matrix.yaml --matrix overlay.yaml": ("overlay.yaml, line 5", "override"),
    "demo --directory data --matrix pins.yaml": ("pins.yaml, line 5", "version"),
    # settings
    SERVE + "--matrix matrix.yaml --settings text_setting.yaml": ("line 2", "poll_s", "settings"),
    SERVE + "--matrix matrix.yaml --settings no_setting.yaml": ("line 1", "poll", "help settings"),
    SERVE + "--matrix matrix.yaml --settings setting_limit.yaml": ("attempts_max", "equal to 10"),
    SERVE + "--matrix matrix.yaml --settings list.yaml": ("list.yaml, line 1", "name: value"),
    # what else the daemon needs
    SERVE + "--matrix matrix.yaml --artifacts gone": ("--artifacts", "gone", "Make it"),
    SERVE + "--matrix matrix.yaml --playbooks gone": ("--playbooks", "gone"),
    SERVE + "--matrix matrix.yaml --ssh-key gone": ("--ssh-key", "gone", "path"),
    SERVE + "--matrix matrix.yaml --known-hosts gone": ("--known-hosts", "gone", "path"),
    SERVE + "--matrix matrix.yaml --simulator gone.sock": ("--simulator", "sim serve --control"),
    SERVE + "--artifact-url ftp://files": ("--artifact-url", "http(s)://HOST"),
    SERVE + "--artifact-url https://u:hunter2@files/fw": ("credentials", "admit the site"),
    SERVE + "--artifact-url https://files/fw?X-Amz-Signature=1": ("query", "bucket's policy"),
    SERVE + "--artifact-url https://files/a/../b": ("--artifact-url", "path", "plain folder names"),
    SERVE + "--artifact-url http://files:99999/": ("--artifact-url", "http(s)://HOST[:PORT]/PATH"),
    # inventories
    "plan --release r --matrix matrix.yaml --inventory cut.json": ("cut.json, line 2", "inspect"),
    "plan --release r --matrix matrix.yaml --inventory list.json": ("list.json", "inspect"),
    "plan --release r --matrix matrix.yaml --inventory number.json": ("components", "inspect"),
    # no data, or a directory that is not ours
    "node list --data data --offline": ("data", "--data"),
    "node list --server http://h": ("--server", "https://HOST:PORT"),
    "node list --server https://h": ("--token-file", "PROVISIONER_TOKEN_FILE"),
    "node list --context lab": ("--context", "no such context"),
    "node list --context lab --data data": ("--context", "one of them"),
    "campaign defer c0001 n0 --until soon": ("--until", "2026-12-24T18:00"),
    "pin set fleet --release r": ("--reason", "provisioner pin set"),
    "demo --matrix matrix.yaml --directory .": ("--directory", "no demonstration made"),
    "demo --matrix matrix.yaml --spare 1": ("--spare", "every sound host"),
    "demo --matrix matrix.yaml --stay --nodes 2 --spare 2": ("--spare", "of 2 hosts"),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, content in FILES.items():
        data = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(data)
    monkeypatch.setenv("NIL", "")
    for name in ("GONE", PASSWORD):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def told(words: str, folder: Path) -> str:
    """What stands on the standard error when the program ends with exit code 2."""
    done = run(words.split(), folder)

    assert (done.returncode, done.stdout) == (2, ""), done
    return done.stderr


@pytest.mark.parametrize("words", CASES)
def test_one_error_says_where_and_what_to_do_and_nothing_is_made(words: str, folder: Path) -> None:
    error = told(words, folder)

    assert [w for w in CASES[words] if w not in error] == []
    assert "Traceback" not in error
    if not error.startswith("Usage"):  # an option that is no number: typer's own frame
        assert error.startswith("error: ")
        assert error.count("\n") == 1
    assert {p.name for p in folder.iterdir()} == set(FILES)


def test_a_password_in_the_address_of_artifacts_is_not_said_again(folder: Path) -> None:
    error = told(SERVE + "--matrix matrix.yaml --artifact-url https://u:hunter2@files/fw", folder)

    assert "hunter2" not in error


def test_an_address_that_is_not_ours_is_told_before_a_node_is_driven(
    folder: Path,
) -> None:
    words = SERVE + "--matrix matrix.yaml --artifact-host 203.0.113.9"

    error = told(words, folder)

    assert error.count("error: ") == 1
    assert "--artifact-host, 203.0.113.9:8070" in error


def test_the_demonstration_empties_only_what_is_its_own(
    folder: Path,
) -> None:
    home = folder / "home"
    home.mkdir()
    (home / "precious").write_text("mine")

    error = told(f"demo --matrix {SHIPPED} --directory home", folder)

    assert "--directory, home" in error
    assert (home / "precious").read_text() == "mine"
