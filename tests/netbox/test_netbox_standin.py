"""The scenarios of a real NetBox, against its recorded OpenAPI; and what is refused before."""

from __future__ import annotations

from pathlib import Path

from netbox_scenario import SCENARIOS, Site
from netbox_standin import TOKEN, standing_in


def test_the_fleet_is_shown_followed_and_read_back(tmp_path: Path):
    with standing_in() as server:
        site = Site(tmp_path, server.url, TOKEN)
        for scenario in SCENARIOS:
            scenario(site)


def test_what_netbox_refuses_is_told_and_the_rest_is_done(tmp_path: Path):
    with standing_in() as server:
        site = Site(tmp_path, server.url, TOKEN)
        # of racks nothing is taken: as if the token had no right to make one
        server.document["paths"]["/api/dcim/racks/"]["post"] = {"not": {}}
        done = site.netbox("apply", "--yes")

        assert done.returncode == 1
        assert "create rack fra-1/r01: NetBox: " in done.stderr
        assert "create device su0-n01: the rack fra-1/r01 is not there" in done.stderr
        assert [r["slug"] for r in server.rows["sites"].values()] == ["fra-1"]


def test_a_token_goes_to_nobody_else(tmp_path: Path):
    site = Site(tmp_path, "http://netbox.example", TOKEN)
    plain = site.netbox("plan")
    (tmp_path / "token").chmod(0o644)
    read = site.netbox("plan")

    assert [plain.returncode, read.returncode] == [2, 2]
    assert "https only" in plain.stderr
    assert "others may read it" in read.stderr


def test_a_netbox_that_does_not_answer_is_one_line(tmp_path: Path):
    done = Site(tmp_path, "http://127.0.0.1:9", TOKEN).netbox("plan")

    assert done.returncode == 1
    assert done.stderr.startswith("error: NetBox: ")
    assert done.stderr.count("\n") == 1
