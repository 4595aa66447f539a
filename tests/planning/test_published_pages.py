"""Published tables become a draft; what could be read in two ways is refused with its row."""

from __future__ import annotations

import published
import pytest
from drafting import HERE, RELEASE, apply, draft, read, verdicts

from provisioner.integrations.published_versions.deciding.overlay_draft import Place, draft_overlay
from provisioner.integrations.published_versions.deciding.published_pages import Choice, read_page
from provisioner.integrations.published_versions.deciding.reading import read_import
from provisioner.model.input_error import InputError
from provisioner.planning.matrix.matrix_text import parse_located


def versions(name: str, text: str, section: str = "", column: str = "") -> dict[str, str]:
    choice = Choice(section, column)
    got = read_import(
        name, text.encode(), sha256="a" * 64, maps={}, systems=("U54",), choice=choice
    )
    return {s.kind: s.version for s in got.statements}


@pytest.mark.parametrize(
    ("name", "text", "section", "stated"),
    [
        pytest.param(
            "General+Support.html",
            published.GENERAL_SUPPORT,
            "",
            {
                "bluefield.nic": "32.43.3608",
                "bluefield.bmc": "24.10-33",
                "bluefield.erot": "00.02.0195.0000",
                "nic.cx7": "28.43.3608",
            },
            id="doca",
        ),
        pytest.param(
            "mft.md",
            published.MFT,
            "",
            {"nic.cx8": "40.48.1000", "bluefield.nic": "32.48.1000", "nic.cx7": "28.48.1000"},
            id="mft",
        ),
        pytest.param(
            "previous-releases-gb300.html",
            published.PREVIOUS_RELEASES,
            "compute",
            {
                "hgx.cpld": "0.22",
                "hgx.gpu": "97.10.4A.00.0C",
                "nic.cx8": "40.47.1026",  # the page says CX7 beside a ConnectX-8's firmware
                "bluefield.nic": "32.47.1026",
            },
            id="dgx-gb300",
        ),
        pytest.param(
            "040-supported-nic-firmware-configmap.yaml",
            published.FIRMWARE_MAP,
            "26.04",
            {"nic.cx7": "28.49.1014", "bluefield.nic": "32.49.1014"},
            id="network-operator",
        ),
        pytest.param(
            "ai-netris-host-networking.rst",
            published.NETRIS,
            "v1.3.0",
            {
                "switch.os": "5.12.1.100",
                "bluefield.bundle": "2.10.0-147_25.01",
                "bluefield.nic": "32.44.1036",
                "host.doca": "2.10.0-0.5.3",
                "host.spcx_cc": "2.10",
            },
            id="netris",
        ),
        pytest.param(
            "redistrib_535.309.01.json",
            published.REDISTRIB,
            "",
            {"host.driver": "535.309.01", "host.fabric_manager": "535.309.01"},
            id="driver",
        ),
        pytest.param(
            "package-contents.txt",
            published.PDF,
            "",
            {
                "host.driver": "580.126.20",
                "host.doca": "3.2.1-044413",
                "bluefield.bundle": "3.2.1-42_25.11",
            },
            id="pdf",
        ),
        pytest.param("RA2.2.yaml", published.PROFILE, "", {"host.spcx_cc": "3.4.0"}, id="profile"),
        pytest.param("meta.xml", published.HPE, "", {"host.bios": "2.40_09-21-2026"}, id="hpe"),
    ],
)
def test_a_published_page_gives_what_it_states_of_our_components(
    name: str, text: str, section: str, stated: dict[str, str]
) -> None:
    assert versions(name, text, section) == stated


def refused(text: str, name: str = "page.html", **choice: str) -> str:
    with pytest.raises(InputError) as error:
        read_page(name, text.encode(), maps={}, choice=Choice(**choice))
    return str(error.value)


def page(*rows: tuple[str, ...], head: tuple[str, ...] = ("Component", "Version")) -> str:
    return published.html("Firmware", head, ("ConnectX-7", "28.48.1000"), *rows)


@pytest.mark.parametrize(
    ("text", "said", "row"),
    [
        (page().replace("<td>", '<td rowspan="2">', 1), "merged cells", "row 2"),
        (page().replace("<th>", '<th colspan="2">', 1), "merged headings", "row 1"),
        (page(("BMC firmware", "24.10-33*")), "footnote", "row 3: a footnote"),
        (page(("BMC firmware", "24.10-33<sup>1</sup>")), "footnote", "24.10-331"),
        (page(("BMC firmware [2]", "24.10-33")), "near a known component", "BMC firmware [2]"),
        (page(("ConnectX-8", "40.47.1026 / 40.48.1000")), "two values", "row 3"),
        (page(("ConnectX-8", "40.47.1026<br>40.48.1000")), "two values", "row 3"),
        (page(("ConnectX-8", "40.47.1026 or newer")), "two values", "row 3"),
        (page(("ConnectX-7 SuperNIC adapter", "28.49.1014")), "near a known", "row 3"),
        (page(("BlueField-3 firmware image", "32.49.1014")), "near a known", "row 3"),
        (page(("ConnectX-8",)), "a cell is missing", "row 3"),
        (page(head=("Part", "Release")), "no table has the headings", "Part | Release"),
        (page(head=("Component", "Build")), "no table has the headings", "Component | Build"),
        (
            page(("x", "1", "2"), head=("Component", "H100", "B300")),
            "which column has the version",
            "row 1",
        ),
        ("<html>nothing</html>", "no table", "no table"),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused_with_its_row(
    text: str, said: str, row: str
) -> None:
    message = refused(text)

    assert said in message
    assert row in message


def test_a_grid_with_a_heading_over_several_columns_is_merged() -> None:
    """As Netris's table of 2.1.2 has it: "GPU Platform" stands over six columns."""
    grid = """
+-----------+------+------+
| Component | GPU Platform |
+-----------+------+------+
|           | H100 | B300 |
+===========+======+======+
| NCCL      | 2.29.2 | 2.29.2 |
+-----------+------+------+
"""
    assert "merged cells" in refused(grid, "a.rst", column="GPU Platform")


def test_a_column_is_taken_by_its_heading_and_a_person_names_a_renamed_component() -> None:
    table = "| Component | H100 | B300 |\n|---|---|---|\n| NCCL | 2.28.1 | 2.29.2 |\n"
    renamed = page(("ConnectX-8 SuperNIC adapter", "40.48.1000"))

    assert versions("a.md", table, column="B300") == {"host.nccl": "2.29.2"}
    got = read_page("p.html", renamed.encode(), maps={"ConnectX-8 SuperNIC adapter": "nic.cx8"})
    assert [s.kind for s in got.statements] == ["nic.cx7", "nic.cx8"]


def test_each_line_of_the_draft_has_the_row_and_old_and_new_values() -> None:
    text = published.PDF.replace("BF3_BFB                      3.2.1-42_25.11", "")
    drafted = draft(
        read("notes.txt", text.encode()),
        read("mft.md", published.MFT.encode()),
        place=HERE,
    )
    differs = next(c for c in drafted.changes if c.kind == "nic.cx7")

    assert ("closes", "host.driver") in verdicts(drafted)
    assert (differs.verdict, differs.before, differs.after) == (
        "differs",
        "28.43.2026",
        "28.48.1000",
    )
    assert "ConnectX-7 | 28.48.1000" in differs.row
    assert "nic.cx7 28.43.2026 -> 28.48.1000" in drafted.text
    assert apply(drafted).releases[RELEASE].profiles["h100"].pins["nic.cx7"].version == "28.43.2026"


def test_the_row_stands_in_the_evidence() -> None:

    pinned, located = parse_located([("matrix", __import__("drafting").MATRIX)])
    drafted = draft_overlay(
        pinned, located, [read("n.txt", published.PDF.encode())], HERE, evidence="https://page"
    )
    pin = apply(drafted).releases[RELEASE].profiles["h100"].pins["host.driver"]

    assert pin.evidence.startswith("https://page; row: ")
    assert "GPU Driver | 580.126.20" in pin.evidence


def test_two_pages_that_contradict_each_other_stand_side_by_side_and_nothing_is_written() -> None:
    other = published.PDF.replace("580.126.20", "580.178.04")
    drafted = draft(
        read("a.txt", published.PDF.encode()), read("b.txt", other.encode()), place=HERE
    )
    conflict = next(c for c in drafted.changes if c.verdict == "conflict")

    assert "580.126.20 (a.txt" in conflict.reason
    assert "against 580.178.04 (b.txt" in conflict.reason
    assert not apply(drafted).releases[RELEASE].profiles["h100"].pins["host.driver"].known


def test_a_new_release_is_drafted_for_the_nodes_of_an_older_one() -> None:
    place = Place(release="r2", profiles=("h100",), like="r")
    drafted = draft(read("mft.md", published.MFT.encode()), place=place)
    fresh = apply(drafted).releases["r2"]

    assert fresh.follows == "r"
    assert fresh.profiles["h100"].match.gpu_models == ("*H100*",)
    assert fresh.profiles["h100"].pins["nic.cx7"].version == "28.48.1000"


@pytest.mark.parametrize("place", [Place(release="r", profiles=("h100",), like="r")])
def test_a_release_that_is_there_is_not_drafted_anew(place: Place) -> None:
    with pytest.raises(InputError, match="is not there itself"):
        draft(read("mft.md", published.MFT.encode()), place=place)


def test_a_hostile_page_is_refused_or_read_within_bounds() -> None:
    deep = "<table>" * 5000 + "</table>" * 5000
    wide = "| Component | Version |\n" + "| ConnectX-7 | 28.48.1000 |\n" * 30_000

    assert "no table" in refused(deep)
    assert "more than" in refused(wide, "a.md")
    with pytest.raises(InputError, match="UTF-8"):
        read_page("a.md", b"\xff\xfe", maps={})
