"""A new operating system of switches touches as many places as its page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from provisioner.runtime.integrations import find_integrations

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/new-switch-os.md"
INTEGRATIONS = "provisioner/integrations"
PROOF = ROOT / "tests/switches/bench_os"


def table() -> list[str]:
    """The places in the page's table."""
    rows = re.findall(r"^\| (?:folder )?`([^`]+)` \|", PAGE.read_text(), re.MULTILINE)
    return [row.rstrip("/") for row in rows]


def naming(name: str, *folders: str) -> set[str]:
    """The modules below these folders, and outside of the system's own, that name a system."""
    pattern = re.compile(rf"\b{name}\b")
    return {
        str(path.relative_to(ROOT))
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if path.parent.name != name and pattern.search(path.read_text())
    }


def test_the_table_has_one_folder_and_one_line() -> None:
    assert table() == [f"{INTEGRATIONS}/NAME", "pyproject.toml"]


def test_each_system_is_one_folder_and_one_entry_point() -> None:
    listing = (ROOT / "pyproject.toml").read_text()
    brought = [one for one in find_integrations() if one.switch_system]

    assert [one.name for one in brought] == ["cumulus", "sonic"]
    for one in brought:
        assert (ROOT / INTEGRATIONS / one.name / "system.py").is_file()
        assert listing.count(f'{one.name} = "provisioner.integrations.{one.name}:') == 1


def test_no_code_of_a_system_is_loaded_before_a_switch_of_it_is_opened() -> None:
    script = (
        "import sys\n"
        "from provisioner.runtime.switch_systems import find_switch_systems\n"
        "names = [system.facts.name for system in find_switch_systems()]\n"
        "begin = 'provisioner.integrations.'\n"
        "print(*names, *(n for n in sys.modules if n.startswith(begin) and n.count('.') > 2))\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    declared = {
        f"provisioner.integrations.{name}.{module}"
        for name in ("cumulus", "sonic")
        for module in ("facts", "system")
    }
    assert set(run.stdout.split()) == {"cumulus", "sonic"} | declared


def test_the_third_system_was_added_by_one_folder_and_one_line() -> None:
    touched = naming("bench_os", "provisioner", "tests") - {"tests/docs/test_new_switch_os.py"}

    assert PROOF.is_dir()
    assert touched == {"tests/switches/switch_boxes.py"}
    assert (ROOT / "tests/switches/switch_boxes.py").read_text().count("bench_os.SYSTEM") == 1


# Modules outside of its adapter that name Cumulus Linux or NVUE, and why.
_MATRIX = "the matrix's vocabulary: component names, grammars of versions, update methods"
_WORDS = "words for people: a default of an option, a source of a limit, a name of an image"
_FIRST = "the first script of a new switch, which its own system fetches (docs/intake.md)"
_NVOS = "NVLink switches, whose NVOS speaks NVUE too"
NAMING = {
    "integrations/racks/fabric/switch_looks.py": _NVOS,
    "integrations/racks/identity.py": _NVOS,
    "integrations/racks/leaving/decommission_run.py": _NVOS,
    "integrations/racks/targets/matrix_targets.py": _NVOS,
    "integrations/racks/reading.py": _NVOS,
    "integrations/racks/nvue.py": _NVOS,
    "integrations/racks/rack_update.py": _NVOS,
    "integrations/racks/update_steps.py": _NVOS,
    "integrations/racks/update_switches.py": _NVOS,
    "integrations/racks/update_world.py": _NVOS,
    "integrations/inventories/adoption_sources.py": _WORDS,
    "integrations/inventories/netbox_commands.py": _WORDS,
    "integrations/dhcp/discover_commands.py": _FIRST,
    "components/kind.py": _MATRIX,
    "integrations/demo/site.py": _WORDS,
    "execution/executor.py": _MATRIX,
    "execution/plan_requests.py": _MATRIX,
    "execution/steps/methods_switch.py": _MATRIX,
    "execution/steps/methods_redfish.py": _MATRIX,
    "model/expected.py": "the default of `os` in the expected-hardware list",
    "model/host_filter.py": _WORDS,
    "model/versions.py": _MATRIX,
    "integrations/dhcp/deciding/management_network.py": _FIRST,
    "integrations/inventories/deciding/netbox_source.py": _WORDS,
    "integrations/matrix_tools/deciding/contradictions.py": _MATRIX,
    "integrations/matrix_tools/deciding/cumulus_moves.py": _MATRIX,
    "integrations/matrix_tools/deciding/review.py": _MATRIX,
    "planning/matrix/readiness.py": _MATRIX,
    "integrations/published_versions/deciding/statements.py": _MATRIX,
    "integrations/published_versions/deciding/published_pages.py": _MATRIX,
    "planning/path/hops.py": _MATRIX,
    "planning/places/place_ports.py": "the names of ports in the address plan",
    "settings/__init__.py": _MATRIX,
    "settings/fabric.py": _WORDS,
    "integrations/twin/wires.py": "the simulator's name of its switches' API",
}


def test_nothing_else_names_cumulus_or_its_api() -> None:
    package = ROOT / "provisioner"
    own = (package / "integrations/cumulus", package / "integrations/sim")
    named = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if not any(path.is_relative_to(folder) for folder in own)
        and re.search(r"nvue|cumulus", path.read_text(), re.IGNORECASE)
    }

    assert named == set(NAMING)
