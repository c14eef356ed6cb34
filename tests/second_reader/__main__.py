"""Reads a store and prints what is in it: data on stdout, talk on stderr.

usage: python -m second_reader STORE [--json] [--verify]

Exit codes: 0 read, 1 not readable, 3 read, with damage.
"""

from __future__ import annotations

import argparse
import sys

from .dump import lines
from .errors import FormatError
from .store import Store


def main() -> int:
    parser = argparse.ArgumentParser(prog="second_reader", description="Read a keepstep store.")
    parser.add_argument("store")
    parser.add_argument("--json", action="store_true", help="one JSON line per record, in the canonical form")
    parser.add_argument("--verify", action="store_true", help="also check hashes, commit lists and indexes")
    options = parser.parse_args()
    try:
        store = Store(options.store, verify=options.verify)
    except (FormatError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.json:
        # Bytes, so that neither the locale nor the platform changes a line.
        for line in lines(store):
            sys.stdout.buffer.write(line.encode())
    else:
        for key, log in store.records().items():
            print(
                f"{key.what} {key.id.hex()} attempt {key.attempt} writer {key.writer.hex()}: {len(log)} records"
            )
    for damage in store.damage:
        print(f"damage: {damage}", file=sys.stderr)
    for torn in store.torn:
        print(f"torn: {torn}", file=sys.stderr)
    return 3 if store.damage else 0


if __name__ == "__main__":
    sys.exit(main())
