#!/usr/bin/env bash
# Runs the Python tests with the wheel of a folder under every Python from 3.10 on that is here.
#
# usage: tools/test-pythons.sh DIST
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
dist=${1:?usage: tools/test-pythons.sh DIST}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

found=()
for minor in 10 11 12 13 14; do
    for python in "python3.$minor" "$HOME"/.pyenv/versions/3."$minor".*/bin/python3; do
        if "$python" -c '' 2>/dev/null; then found+=("$python"); break; fi
    done
done
if [ "${#found[@]}" -eq 0 ]; then echo "error: no Python from 3.10 on is here" >&2; exit 1; fi

for python in "${found[@]}"; do
    echo "== $("$python" --version)"
    rm -rf "$work/env"
    "$python" -m venv "$work/env"
    "$work/env/bin/pip" install --quiet --disable-pip-version-check -r tests/requirements.txt "$dist"/keepstep-*.whl
    # The installed package, not the one of the tree.
    "$work/env/bin/python" -m pytest tests -q -p no:cacheprovider
done
