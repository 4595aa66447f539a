"""Words of the command line that the routes do not have: options, and names for examples."""

from __future__ import annotations

from collections.abc import Mapping

# fields whose text is in a file, and the options that name it
FILES = {
    "thresholds": "--thresholds",
    "ca": "--ca-file",
    "expected": "--file",
    "secret": "--secret-file",
    "user_data": "--user-data-file",
}
# options that are repeated have the name of one of their values
SINGULAR = {
    "kinds": "--kind",
    "nodes": "--node",
    "cards": "--card",
    "tags": "--tag",
    "networks": "--range",
    "racks": "--rack",
    "logins": "--login",
    "releases": "--release",
    "tenants": "--for-tenant",
}
EXAMPLES: Mapping[str, str] = {
    "node": "su0-n03",
    "switch": "leaf-su0-r0",
    "tenant": "red",
    "certificate": "su0-n03",
    "campaign": "c0001",
    "case": "su0-n03-c0001",
    "rack": "su0-rack1",
    "release": "spectrum-x-1.2.0",
    "newer": "spectrum-x-1.3.0",
    "operation": "r12",
    "request": "r12",
    "token": "3f2a9c01",
    "session": "81c2d07e",
    "webhook": "pager",
    "bmc": "host",
    "pin": "rack:su0-rack1",
    "key": "laptop",
    "policy_name": "bmc-firmware",
    "matrix_file": "1",
    "image_name": "ubuntu-22.04-hgx-7.qcow2",
}
