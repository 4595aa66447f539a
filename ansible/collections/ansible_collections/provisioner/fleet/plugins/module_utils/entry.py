"""The common entry point of this collection's modules.

A refusal of a module becomes a failure with a sentence for a person. Nothing else is caught, so
that our own mistakes show as a traceback.
"""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.provisioner.fleet.plugins.module_utils import tools


def run_module(argument_spec, apply, **more):
    """Parse arguments, call `apply(module)` and return its result; `more` goes to AnsibleModule."""
    module = AnsibleModule(argument_spec=argument_spec, supports_check_mode=True, **more)
    try:
        module.exit_json(**apply(module))
    except tools.Refused as refused:
        module.fail_json(msg=str(refused))
