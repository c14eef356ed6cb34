#!/usr/bin/env bash
# Finds what no compiler finds: overlong files, paths of somebody's machine, stubs, dead links.
#
# usage: tools/check-tree.sh [DIR]      looks at what git tracks there, or would track; without git, at everything
# Each finding is one line `file:line: what`; any finding makes the exit code 1.
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}"

lines_max=600
findings=0
found() { printf '%s\n' "$1"; findings=$((findings + 1)); }

list_files() {
    if [ -e .git ]; then
        git ls-files -z --cached --others --exclude-standard
    else
        find . \( -name target -o -name .venv -o -name node_modules \) -prune -o -type f -print0
    fi
}

files=()
while IFS= read -r -d '' file; do
    # A file that was deleted but not yet committed is still listed.
    if [ -f "$file" ]; then files+=("${file#./}"); fi
done < <(list_files)
if [ "${#files[@]}" -eq 0 ]; then
    echo "check-tree: no files here, so nothing was checked" >&2
    exit 1
fi

# Prints `line target` for each link of a Markdown file; what stands in code is not a link.
links() {
    awk '
        /^[ \t]*(```|~~~)/ { fenced = !fenced; next }
        fenced { next }
        {
            line = $0
            gsub(/`[^`]*`/, "", line)
            if (match(line, /^[ \t]*\[[^]]+\]:[ \t]*[^ \t]+/)) {
                target = substr(line, RSTART, RLENGTH)
                sub(/^[ \t]*\[[^]]+\]:[ \t]*/, "", target)
                print NR, target
            }
            while (match(line, /\]\([^)]*\)/)) {
                print NR, substr(line, RSTART + 2, RLENGTH - 3)
                line = substr(line, RSTART + RLENGTH)
            }
        }
    ' "$1"
}

check_links() {
    local file=$1 number target
    while read -r number target; do
        target=${target%%[[:space:]]*}                  # [text](target "title")
        target=${target#<}; target=${target%>}
        case $target in '' | '#'* | http://* | https://* | mailto:*) continue ;; esac
        target=${target%%#*}
        if [ ! -e "$(dirname "$file")/$target" ]; then found "$file:$number: dead link: $target"; fi
    done < <(links "$file")
}

# Not part of a longer path: a/work/b, {dir}/home/x and https://host/root/ are fine.
machine_path='(^|[^[:alnum:]_.~)}>*-])/(work|root|home)/'

for file in "${files[@]}"; do
    case $file in
        *.rs | *.py)
            count=$(awk 'END { print NR }' "$file")
            if [ "$count" -gt "$lines_max" ]; then
                found "$file:$count: over $lines_max lines; make it a folder"
            fi ;;
        *.md) check_links "$file" ;;
    esac
    case $file in
        *.rs)
            while IFS=: read -r number rest; do
                found "$file:$number: unfinished: ${rest#"${rest%%[![:space:]]*}"}"
            done < <(grep -nE '\b(todo|unimplemented)!\(' -- "$file" || true) ;;
    esac
done

while IFS= read -r hit; do
    found "${hit%%:*}:$(cut -d: -f2 <<<"$hit"): path of somebody's machine: $(cut -d: -f3- <<<"$hit" | cut -c1-120)"
done < <(printf '%s\0' "${files[@]}" | xargs -0 grep -HInE -e "$machine_path" -- || true)

if [ "$findings" -gt 0 ]; then
    echo "check-tree: $findings found in ${#files[@]} files" >&2
    exit 1
fi
echo "check-tree: nothing found in ${#files[@]} files" >&2
