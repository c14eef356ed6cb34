"""`python -m keepstep` is the `keepstep` command."""

from ._command import main

main()
