"""The former name of `isolation_violations`; it goes with the next change."""

from provisioner.control.watch.isolation_violations import *  # noqa: F403
