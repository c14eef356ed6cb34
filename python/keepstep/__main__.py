"""`python -m keepstep` is the `keepstep` command."""

from ._command import main

if __name__ == "__main__":
    main()
