"""The former name of `repair_workflow`; it goes with the next change."""

from provisioner.control.node.repair_workflow import *  # noqa: F403
