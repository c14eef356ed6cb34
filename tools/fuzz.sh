#!/usr/bin/env bash
# Runs each fuzz target for FUZZ_SECONDS; stops at the first finding.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cargo_fuzz_version=0.13.2
seconds=${FUZZ_SECONDS:-120}
target_dir=${CARGO_TARGET_DIR:-target}
mkdir -p "$target_dir"
target_dir=$(cd "$target_dir" && pwd)

if ! command -v rustup >/dev/null; then
    echo "error: fuzzing needs a nightly compiler, which rustup installs: https://rustup.rs" >&2
    exit 1
fi
if ! rustup run nightly rustc --version >/dev/null 2>&1; then
    rustup toolchain install nightly --profile minimal
fi
export PATH="$target_dir/tools/bin:$PATH"
if ! command -v cargo-fuzz >/dev/null; then
    cargo install cargo-fuzz --locked --version "$cargo_fuzz_version" --root "$target_dir/tools"
fi

# cargo-fuzz has no --locked: see first that the committed lock file still fits.
cargo +nightly metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null

targets=$(cargo +nightly fuzz list --fuzz-dir fuzz)
if [ -z "$targets" ]; then
    echo "error: fuzz/ has no targets, so nothing was fuzzed" >&2
    exit 1
fi
for target in $targets; do
    echo "fuzz: $target for $seconds s" >&2
    cargo +nightly fuzz run --fuzz-dir fuzz --target-dir "$target_dir/fuzz" "$target" -- \
        -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=30 -print_final_stats=1
done
echo "fuzz: no findings" >&2
