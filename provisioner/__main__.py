"""`python -m provisioner` is the command line."""

from provisioner.cli import main

main()
