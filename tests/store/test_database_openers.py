"""The modules that open the database: the composition root, and the commands that the docs name."""

from __future__ import annotations

import ast
from pathlib import Path

OPENERS = frozenset({"open_store", "open_data", "open_database", "open_reading", "open_postgres"})
PRODUCT = Path(__file__).parents[2] / "provisioner"
ALLOWED = {
    "cli/serve/reading.py": "audit verify, --offline",
    "cli/serve/backup.py": "backup, restore, db upgrade, db wrap-key, db unwrap-key, db reseal",
    "integrations/site_examination/doctor_commands.py": "doctor",
    "cli/serve/serve.py": "serve",
    "daemon/data.py": "the composition root",
    "integrations/demo/running.py": "demo",
    "integrations/demo/stay.py": "demo",
    "store/sql_store.py": "`open_store` itself",
    "integrations/twin/fleet_twin.py": "a rehearsal's own database, in memory",
    "integrations/twin/site_twin.py": "the same, of a site",
}


def list_openers(text: str) -> set[str]:
    """Return the functions of OPENERS that a module calls."""
    if not any(name in text for name in OPENERS):
        return set()  # to parse all modules takes seconds
    calls = (node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    names = {getattr(func, "attr", "") or getattr(func, "id", "") for func in calls}
    return names & OPENERS


def test_only_named_modules_open_the_database() -> None:
    paths = {str(p.relative_to(PRODUCT)): p for p in PRODUCT.rglob("*.py")}
    openers = {name for name, path in paths.items() if list_openers(path.read_text())}

    assert openers == set(ALLOWED)


def test_an_opener_is_noticed_under_any_module_name() -> None:
    assert list_openers("from a import b\nb.open_store(path)") == {"open_store"}
    assert list_openers("store.open_reader(path)") == set()
