"""The former name of `case_service`; it goes with the next change."""

from provisioner.control.repairs.case_service import *  # noqa: F403
