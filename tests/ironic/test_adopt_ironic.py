"""The hosts of a real Ironic as rows of an adoption, with the leaf ports that it records."""

from __future__ import annotations

from recorded_ironic import serve_ironic

from provisioner.integrations.inventories.deciding.adoption_rows import merge_rows
from provisioner.integrations.inventories.ironic import Ironic
from provisioner.planning.intake import expected_text

SWITCHES = "".join(
    f"- {{name: leaf-su0-r{n}, kind: switch, address: 'https://10.0.9.{n}:8765'}}\n"
    for n in range(2)
)


def test_its_serving_host_is_listed_with_its_ports_and_the_others_are_refused() -> None:
    with serve_ironic() as served:
        rows = Ironic(served.url).read_rows()
        methods = {method for method, _, _ in served.log}
    base = expected_text.parse("base", f"site: fra1\nnodes:\n{SWITCHES}")
    merged = merge_rows(base, rows, {}, "ironic")

    assert methods == {"GET"}
    (host,) = (n for n in merged.expected.nodes if n.kind == "host")
    assert (host.name, host.bmc.serial) == ("su0-n00", "ADMX0GP328W8N1")
    assert host.bmc.url.startswith("https://127.0.0.1:")
    assert [(p.switch, p.interface) for p in host.ports] == [
        ("leaf-su0-r0", "swp1s0"),
        ("leaf-su0-r1", "swp1s0"),
    ]
    assert merged.tenants == {"su0-n00": "red"}
    details = " ".join(b.detail for b in merged.refused)
    assert "maintenance: RMA 17" in details
    assert "available" in details
    assert len(merged.refused) == 2
