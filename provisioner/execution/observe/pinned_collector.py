"""The collector of a daemon: it reads in the hosts what a matrix pins, and nothing beyond."""

from __future__ import annotations

from provisioner.execution.actions.work import Site
from provisioner.execution.observe.collector import Collector
from provisioner.model.matrix import Matrix
from provisioner.planning.certification.host_settings import select_sets
from provisioner.planning.intake.drive_firmware import is_pinned_somewhere


def build_collector(site: Site, matrix: Matrix) -> Collector:
    """Return a collector for the nodes of one matrix."""
    drives = is_pinned_somewhere(matrix)
    return Collector(site, matrix.nic_profiles, select_sets(matrix), drives=drives)
