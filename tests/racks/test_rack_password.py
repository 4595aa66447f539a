"""BMCs of a rack get the site's password in place of the factory's, over HTTPS."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from served_rack import ServedRack
from typer.testing import CliRunner

from provisioner.cli.options.checked_options import PASSWORD
from provisioner.integrations.demo.rack_site import RackSite
from provisioner.integrations.racks.password_commands import FACTORY
from provisioner.integrations.racks.rack_commands import app
from provisioner.integrations.sim.racks.logins import Account
from provisioner.model.input_error import InputError

LOGINS = {PASSWORD: "Long-and-0urs", FACTORY: "0penBmc"}


def give(folder: Path, rack: ServedRack, code: int) -> dict[str, str]:
    """Run the command; return what became of each unit."""
    words = ["password", str(folder / "racks.yaml"), "r01", "--user", "root", "--yes", "--json"]
    told = CliRunner().invoke(app, [*words, "--ca", str(rack.authority)], env=LOGINS)
    assert told.exit_code == code, told.output
    return {row["unit"]: row["password"] for row in json.loads(told.stdout)}


def test_each_bmc_takes_our_password_once_and_keeps_it(tmp_path: Path) -> None:
    site = RackSite(tmp_path, trays=2, switches=1, shelves=1)
    rack = ServedRack(site, tmp_path, 1.0)
    accounts = {unit["name"]: Account("root", "0penBmc") for unit in site.units}
    rack.accounts = {unit["bmc"]: accounts[unit["name"]] for unit in site.units}
    accounts["s0"].password = "nobody-knows"
    accounts["p0"].must_change = False  # a shelf that lets one in with it
    with rack.serve():
        (tmp_path / "racks.yaml").write_text(site.plan().model_dump_json())
        first = give(tmp_path, rack, 1)
        assert first == {"t0": "changed", "t1": "changed", "s0": "failed", "p0": "changed"}
        assert accounts["s0"].failures == 2  # each of the two once
        assert {accounts[n].password for n in ("t0", "t1", "p0")} == {LOGINS[PASSWORD]}
        accounts["s0"].password = "0penBmc"  # a person reset it
        again = give(tmp_path, rack, 0)
        ours = "ours already"
        assert again == {"t0": ours, "t1": ours, "s0": "changed", "p0": ours}
        assert all(accounts[name].failures <= 1 for name in ("t0", "t1", "p0"))
        assert all(not account.tokens for account in accounts.values())  # no session is left


def test_two_equal_passwords_are_refused(tmp_path: Path) -> None:
    site = RackSite(tmp_path, trays=1, switches=1, shelves=1)
    (tmp_path / "racks.yaml").write_text(site.plan().model_dump_json())
    words = ["password", str(tmp_path / "racks.yaml"), "r01", "--user", "root", "--yes"]
    for env in ({PASSWORD: "same", FACTORY: "same"}, {PASSWORD: "one", FACTORY: ""}):
        told = CliRunner().invoke(app, words, env=env)
        assert isinstance(told.exception, InputError)


@pytest.mark.parametrize("breaks", ["deaf", "keeps"])
def test_a_bmc_that_says_yes_and_keeps_the_old_one_has_failed(tmp_path: Path, breaks: str) -> None:
    site = RackSite(tmp_path, trays=1, switches=1, shelves=1)
    rack = ServedRack(site, tmp_path, 1.0)
    rack.accounts = {unit["bmc"]: Account("root", "0penBmc") for unit in site.units}
    if breaks == "keeps":
        rack.watch = lambda url, _path: setattr(rack.accounts[url], "password", "0penBmc")
    else:
        site.tray("t0").dead = True
    with rack.serve():
        (tmp_path / "racks.yaml").write_text(site.plan().model_dump_json())
        told = give(tmp_path, rack, 1)
    assert told["t0"] == "failed"
    assert set(told.values()) == ({"failed"} if breaks == "keeps" else {"failed", "changed"})
