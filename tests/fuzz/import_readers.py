"""Readers of makers' files (`matrix refresh`), the API's times and answers of services, as
registry.py lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.model.input_error import InputError
from provisioner.ports import Malformed, PortError

_IMPORTS = "integrations.published_versions.deciding"
IMPORT_READERS: tuple[tuple[str, tuple[type[Exception], ...], str, Mapping[str, Any]], ...] = (
    ("planning.matrix.located_yaml", (InputError,), "load", {"source": "own.yaml"}),
    ("planning.matrix.matrix_text", (InputError,), "parse", {}),
    ("model.times.instant", (ValueError,), "parse_instant", {}),
    ("model.times.instant", (), "write_instants", {}),
    ("integrations.audit_export.form", (), "read_otlp_reply", {"status": 200, "sent": 5}),
    (
        "integrations.key_service.transit_service",
        (),
        "read_field",
        {"names": ("data", "ciphertext")},
    ),
    ("integrations.key_service.transit_service", (), "read_errors", {}),
    (
        "integrations.tickets.servicenow",
        (Malformed,),
        "read_record",
        {"status": 201, "expected": 201},
    ),
    ("integrations.tickets.jira", (Malformed,), "read_key", {}),
    ("integrations.tickets.jira", (), "make_document", {}),
    ("integrations.tickets.jira", (Malformed,), "find_labelled", {"label": "provisioner"}),
    ("integrations.tickets.slack", (Malformed,), "read_ts read_own_messages", {}),
    ("integrations.tickets.slack", (PortError,), "check_answer", {"status": 200, "writes": True}),
    (f"{_IMPORTS}.reading", (InputError,), "parse_boot_stream", {"source": "a.bfb"}),
    (f"{_IMPORTS}.reading", (), "is_boot_stream", {}),
    (f"{_IMPORTS}.reading", (InputError,), "parse_package", {"source": "a.fwpkg"}),
    (f"{_IMPORTS}.reading", (), "is_package", {}),
    (
        f"{_IMPORTS}.json_documents",
        (InputError,),
        "read_catalog",
        {"source": "Catalog.xml", "systems": ("XE9680",)},
    ),
    (f"{_IMPORTS}.reading", (InputError,), "read_table", {"source": "a.csv", "maps": {}}),
    *(
        (f"{_IMPORTS}.published_pages", (InputError,), "read_page", {"source": name, "maps": {}})
        for name in ("a.html", "a.md", "a.yaml")
    ),
    (f"{_IMPORTS}.json_documents", (InputError,), "read_document", {"source": "a", "maps": {}}),
    (
        "integrations.published_versions.deciding.statements",
        (InputError,),
        "clean_text clean_version clean_sha256 clean_file",
        {"source": "a", "where": "b"},
    ),
    *(
        (
            f"{_IMPORTS}.reading",
            (InputError,),
            "read_import",
            {"source": f"a{suffix}", "sha256": "0" * 64, "maps": {}, "systems": ("x",)},
        )
        for suffix in (".xml", ".json", ".csv", ".html", ".yaml", "")
    ),
)
