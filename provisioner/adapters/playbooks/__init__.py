"""Playbooks through ansible-runner's own command line, in processes that outlive the daemon.

`AnsibleRunner` batches calls into runs; a run is a folder, a row in the store and a detached
process. The verdict on a host comes from the events that the run wrote, never from an exit code.
"""

from provisioner.adapters.playbooks.runner import AnsibleRunner
from provisioner.ports import Remote

__all__ = ["AnsibleRunner", "Remote"]
