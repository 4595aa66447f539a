"""How every module of this collection begins and ends.

Rule: what a module refuses is a failure with a sentence for a person; nothing else is caught, so
that our own mistake shows as a traceback.
"""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.provisioner.fleet.plugins.module_utils import tools


def run(argument_spec, apply, **more):
    """Parse arguments, call `apply(module)`, tell what it returns; `more` is AnsibleModule's."""
    module = AnsibleModule(argument_spec=argument_spec, supports_check_mode=True, **more)
    try:
        module.exit_json(**apply(module))
    except tools.Refused as refused:
        module.fail_json(msg=str(refused))
