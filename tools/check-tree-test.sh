#!/usr/bin/env bash
# Shows that tools/check-tree.sh finds each thing that it is there to find, and nothing else.
set -euo pipefail
check=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/check-tree.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

# expect FINDING FILE: with FILE in the tree (its text on stdin) the check fails and names FINDING; without, it passes.
expect() {
    local want=$1 file=$2 said
    cat >"$tree/$file"
    if said=$("$check" "$tree" 2>/dev/null); then
        echo "check-tree-test: not found: $want in $file" >&2
        exit 1
    fi
    if [[ $said != *"$file:"*"$want"* ]]; then
        echo "check-tree-test: wanted '$want' in $file, got: $said" >&2
        exit 1
    fi
    rm "$tree/$file"
}

# What is fine: links that lead somewhere, links in code, paths that are part of something longer.
mkdir "$tree/docs"
cat >"$tree/docs/good.md" <<'GOOD'
[up](../ok.md), [here](#part), [far](https://example.org/home/page), [titled](../ok.md#x "a title"), `[code](gone.md)`
```text
[also code](gone.md)
```
{dir}/work/x, ./home/x, a/root/b, todo!( in prose
GOOD
seq 600 | sed 's|^|// |' >"$tree/long.rs"
echo "fine" >"$tree/ok.md"
if ! said=$("$check" "$tree" 2>/dev/null); then
    echo "check-tree-test: found fault with a tree that has none: $said" >&2
    exit 1
fi

seq 601 | sed 's|^|# |' | expect "over 600 lines" big.py
echo 'fn f() { todo!() }' | expect "unfinished" stub.rs
echo 'fn f() { unimplemented!("x") }' | expect "unfinished" stub.rs
echo '[gone](docs/gone.md)' | expect "dead link: docs/gone.md" link.md
printf '%s\n' '[gone]: docs/gone.md#part' | expect "dead link: docs/gone.md" reference.md
for name in work root home; do
    printf 'path = "/%s/somebody/x"\n' "$name" | expect "path of somebody's machine" config.toml
done
echo "check-tree-test: each fault was found" >&2
