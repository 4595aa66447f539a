"""Ansible inventory plugin: the provisioner's nodes, grouped by their facts."""

from __future__ import annotations

DOCUMENTATION = r"""
name: nodes
short_description: Nodes of the provisioner
version_added: "0.1.0"
description:
  - Reads nodes from the provisioner's REST API. With the token of a tenant, only its own.
  - Each host is in groups by state, release, profile, tenant, rack, scalable unit and leaf, and has
    the API's facts of it in variables that begin with C(provisioner_).
extends_documentation_fragment: [constructed]
options:
  plugin:
    description: This plugin.
    type: str
    required: true
    choices: [provisioner.fleet.nodes]
  url:
    description: The provisioner; only a loopback address may be plain http.
    type: str
    default: https://127.0.0.1:8443
    env: [{name: PROVISIONER_URL}]
  token_file:
    description: File with the token, readable by its owner only.
    type: path
    required: true
    env: [{name: PROVISIONER_TOKEN_FILE}]
  ca_path:
    description: Certificates to trust instead of the system's.
    type: path
    env: [{name: PROVISIONER_CA}]
  where:
    description: Which nodes, as an expression (C(state=released and rack=su0-*)).
    type: str
    default: kind=host
"""

EXAMPLES = r"""
# fleet.provisioner.yml
plugin: provisioner.fleet.nodes
url: https://provisioner.example:8443
token_file: ~/.config/provisioner/token
ca_path: /etc/provisioner/agent-ca.pem
where: state=released and not tenant=red
keyed_groups:
  - {key: provisioner_placement, prefix: placement}
"""

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Constructable
from ansible_collections.provisioner.fleet.plugins.module_utils import provisioner_api, tools

FIELDS = ("kind", "state", "placement", "vrf", "release", "profile", "tenant", "certificate")
FIELDS += ("location", "ports", "note", "blockers", "entered_at")


class InventoryModule(BaseInventoryPlugin, Constructable):
    """The inventory plugin; see the documentation above."""

    NAME = "provisioner.fleet.nodes"

    def verify_file(self, path):
        """Accept only files whose name marks them as ours."""
        return super().verify_file(path) and path.endswith(("provisioner.yml", "provisioner.yaml"))

    def parse(self, inventory, loader, path, cache=True):
        """Read the nodes and add them. A fleet that cannot be read is an error, never empty."""
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        try:
            names = ("url", "token_file", "ca_path")
            api = provisioner_api.Api(*(self.get_option(name) for name in names))
            for node in api.read_nodes(self.get_option("where")):
                self._add(node)
        except tools.Refused as refused:
            raise AnsibleParserError(str(refused)) from None

    def _add(self, node):
        name = node.get("id")
        if not isinstance(name, str) or not name or not name.isprintable():
            raise tools.Refused("a node has no readable name")
        self.inventory.add_host(name)
        values = {f"provisioner_{field}": node.get(field) for field in FIELDS}
        for key, value in values.items():
            self.inventory.set_variable(name, key, value)
        if node.get("address"):
            self.inventory.set_variable(name, "ansible_host", node["address"])
        for group in list_groups(node):
            safe = self.inventory.add_group(self._sanitize_group_name(group))
            self.inventory.add_child(safe, name)
        strict = self.get_option("strict")
        self._set_composite_vars(self.get_option("compose"), values, name, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), values, name, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), values, name, strict=strict)


def list_groups(node):
    """Return the names of a node's groups."""
    place = node.get("location") if isinstance(node.get("location"), dict) else {}
    ports = node.get("ports") if isinstance(node.get("ports"), list) else []
    named = [(field, node.get(field)) for field in ("state", "release", "profile", "tenant")]
    named += [("rack", place.get("rack")), ("su", place.get("scalable_unit"))]
    named += [("leaf", port.get("switch")) for port in ports if isinstance(port, dict)]
    groups = {f"{field}_{value}" for field, value in named if value not in ("", None)}
    return sorted({"provisioner"} | groups)
