#!/usr/bin/env bash
# Installs the wheel and the source archive of a folder into fresh environments, and records with each.
#
# usage: tools/test-wheel.sh DIST
set -euo pipefail
dist=$(cd "${1:?usage: tools/test-wheel.sh DIST}" && pwd)
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for archive in "$dist"/keepstep-*.whl "$dist"/keepstep-*.tar.gz; do
    echo "== ${archive##*/}"
    rm -rf "$work/env"
    "$python" -m venv "$work/env"
    # What it needs, it brings: nothing but the archive (and, for the source, its build tool) is installed.
    "$work/env/bin/pip" install --quiet --disable-pip-version-check "$archive"
    others=$("$work/env/bin/pip" list --format=freeze --disable-pip-version-check | grep -vE '^(pip|setuptools|keepstep)=' || true)
    if [ -n "$others" ]; then echo "error: it pulled in: $others" >&2; exit 1; fi
    (
        cd "$work"
        rm -rf runs
        "$work/env/bin/python" -W error -c '
import keepstep
with keepstep.open("runs") as store:
    with store.run("r").episode("t") as episode:
        episode.step(action=1, observation="seen", reward=0.5)
        episode.end("finished")
'
        "$work/env/bin/keepstep" ls runs --json >listed.json
        grep -q '"finished"' listed.json || { echo "error: the command does not list it" >&2; cat listed.json >&2; exit 1; }
        "$work/env/bin/python" -m keepstep --version
        # A reader that goes away is no failure worth a word.
        "$work/env/bin/keepstep" --help 2>err.txt | head -1 >/dev/null
        if [ -s err.txt ]; then echo "error: a broken pipe is not quiet" >&2; cat err.txt >&2; exit 1; fi
    )
done
echo "test-wheel: the wheel and the source archive install and record"
