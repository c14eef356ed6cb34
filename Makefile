# Everything runs without root. `make` alone lists the targets.

SHELL := bash
.DEFAULT_GOAL := help

CARGO ?= cargo
PYTHON ?= python3
TARGET := $(or $(CARGO_TARGET_DIR),target)

VENV := .venv
STAMP := $(VENV)/.made-from-requirements
KEEPSTEP := $(TARGET)/release/keepstep
MATURIN := VIRTUAL_ENV="$(CURDIR)/$(VENV)" $(VENV)/bin/maturin

# keepstep-compare builds the peers we measure against; only `make bench` needs them.
CRATES := --workspace --exclude keepstep-compare

TORTURE_SECONDS ?= 60
FUZZ_SECONDS ?= 120
CRASH_POINTS ?= 1000000
BENCH_ARGS ?=
BENCH_PYTHON_ARGS ?=
OUTSIDE ?=

.PHONY: help setup demo test check bench torture fuzz crash-million takeover-all proofs loom faults clean
.PHONY: torture-python test-wheel test-pythons docs wheel package test-outside bench-frameworks
.PHONY: need-cargo need-python release develop develop-release test-rust test-python check-python check-deny

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with the pinned packages of tests/requirements.txt

demo: develop-release ## record, kill -9, see what survived, go on to the end
	$(VENV)/bin/keepstep demo

test: test-rust loom test-python ## all tests: Rust, docs, loom, the Python package, the second reader

check: need-cargo setup ## format, lints, docs, licences, the tree
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(CRATES) --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(CRATES) --lib --no-deps --locked
	@$(MAKE) --no-print-directory check-python
	tools/check-tree-test.sh
	tools/check-tree.sh
	$(VENV)/bin/python tools/check_arrows.py
	$(VENV)/bin/typos
	@$(MAKE) --no-print-directory check-deny

bench: develop-release ## measure against the raw limit and peers (writes bench.json into the target directory)
	status=0; \
	$(CARGO) run --release --locked -p keepstep-compare -- $(BENCH_ARGS) || status=1; \
	$(VENV)/bin/python bench/python/measure.py --out "$(TARGET)/bench.json" $(BENCH_PYTHON_ARGS) || status=1; \
	exit $$status

torture: release ## kill -9 real recorders for a minute, twice, and with company, against an outside oracle
	rm -rf "$(TARGET)/torture"
	mkdir -p "$(TARGET)/torture"
	$(KEEPSTEP) torture "$(TARGET)/torture/threads" --seconds $(TORTURE_SECONDS) --processes 2 --threads 32 --json
	$(KEEPSTEP) torture "$(TARGET)/torture/processes" --seconds $(TORTURE_SECONDS) --processes 24 --threads 2 --json
	$(KEEPSTEP) torture "$(TARGET)/torture/company" --seconds $(TORTURE_SECONDS) --company --json

torture-python: develop-release ## kill -9 Python recorders: threads, 512 tasks, fork, spawn, company; a minute each; then memory
	$(VENV)/bin/python tools/torture_python.py --seconds $(TORTURE_SECONDS) --dir "$(TARGET)"
	KEEPSTEP_SLOW=1 $(VENV)/bin/pytest tests/python/test_memory.py -q -m slow --basetemp "$(TARGET)/torture-memory"

fuzz: need-cargo ## fuzz each decoder for FUZZ_SECONDS (120)
	FUZZ_SECONDS=$(FUZZ_SECONDS) tools/fuzz.sh

crash-million: need-cargo ## a million crash points on the simulated disk
	KEEPSTEP_CRASH_POINTS=$(CRASH_POINTS) $(CARGO) test --release --locked -p keepstep --test crash -- --nocapture

takeover-all: need-cargo ## takeover in every order of its steps, 200 stopped owners, many power cuts (many minutes)
	$(CARGO) test --release --locked -p keepstep --test takeover -- --nocapture --include-ignored
	KEEPSTEP_ROUNDS=200 $(CARGO) test --release --locked -p keepstep --test owners -- --nocapture
	KEEPSTEP_CRASH_POINTS=200000 $(CARGO) test --release --locked -p keepstep --test cuts -- --nocapture

proofs: ## all long proofs, one after another, on a quiet machine (hours; set FUZZ_SECONDS=600)
	$(MAKE) crash-million takeover-all torture torture-python fuzz test-outside

# `--list` first: a filter that matches nothing passes, and would prove nothing.
LOOM := RUSTFLAGS="$$RUSTFLAGS --cfg loom" CARGO_TARGET_DIR="$(TARGET)/loom" \
	$(CARGO) test --release --locked -p keepstep --lib loom
loom: need-cargo ## the acknowledgement handoff, in every order of its threads
	@listed=$$($(LOOM) -- --list) || exit 1; \
	grep -q ': test$$' <<<"$$listed" || { echo "error: no loom tests were found in keepstep" >&2; exit 1; }
	$(LOOM)

faults: need-cargo ## EIO and ENOSPC injected into the real program
	@command -v strace >/dev/null || { echo "error: \`make faults\` injects errors with strace, which is not installed here" >&2; exit 1; }
	$(CARGO) test --release --locked -p keepstep-cli --test faults

wheel: setup need-cargo ## build the wheel and the source archive into dist/
	rm -rf dist
	$(VENV)/bin/maturin sdist -o dist
	$(VENV)/bin/maturin build --release --locked -o dist

package: need-cargo ## pack the crates as they would be published, and build each from its package
	$(CARGO) package --locked --allow-dirty -p keepstep-format -p keepstep -p keepstep-cli

test-wheel: wheel ## install the wheel and the source archive into fresh environments, and use both
	tools/test-wheel.sh dist

test-pythons: wheel ## the Python tests under every Python from 3.10 on that is here
	tools/test-pythons.sh dist

test-outside: wheel ## the adapters against the real frameworks (OUTSIDE="ares langgraph" for some of them)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/outside/requirements.txt
	$(VENV)/bin/python tools/test_outside.py $(OUTSIDE)

bench-frameworks: wheel ## the adapters beside their frameworks' own stores (writes bench-frameworks.json into the target directory)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r tests/outside/requirements.txt
	$(VENV)/bin/python bench/frameworks/measure.py --out "$(TARGET)/bench-frameworks.json" $(OUTSIDE)

docs: develop ## build the site into site/
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r docs/requirements.txt
	$(VENV)/bin/mkdocs build --strict

clean: need-cargo ## remove what was built
	$(CARGO) clean
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache dist site

# Steps of the targets above.

release: need-cargo
	$(CARGO) build --release --locked -p keepstep-cli

test-rust: need-cargo
	@if $(CARGO) nextest --version >/dev/null 2>&1; then \
	    set -x; $(CARGO) nextest run $(CRATES) --locked; \
	else \
	    set -x; $(CARGO) test $(CRATES) --tests --locked; \
	fi
	$(CARGO) test $(CRATES) --doc --locked

test-python: develop
	$(VENV)/bin/pytest tests -q

# The package as it stands in the tree: its native half built as the Rust tests build theirs.
develop: setup need-cargo
	$(MATURIN) develop --quiet --locked

develop-release: setup need-cargo
	$(MATURIN) develop --quiet --locked --release

check-python: develop
	$(VENV)/bin/ruff check python tests tools bench examples
	$(VENV)/bin/ruff format --check python tests tools bench examples
	MYPYPATH=tests/standins $(VENV)/bin/mypy --strict python/keepstep examples
	PYTHONPATH=tests/standins MYPYPATH=tests/standins $(VENV)/bin/python -m mypy.stubtest keepstep --ignore-disjoint-bases --allowlist tests/stubtest-allowlist.txt

# Licences, bans and sources need no network; the advisories do.
check-deny: need-cargo
	@if ! $(CARGO) deny --version >/dev/null 2>&1; then \
	    echo "note: cargo-deny is not installed; licences and advisories were not checked" >&2; \
	elif ! $(CARGO) deny --locked fetch db >/dev/null 2>&1; then \
	    echo "note: the advisories could not be fetched (offline?) and were not checked" >&2; \
	    $(CARGO) deny --locked --offline check bans licenses sources; \
	else \
	    $(CARGO) deny --locked check; \
	fi

$(STAMP): tests/requirements.txt | need-python
	@$(PYTHON) -m venv --clear $(VENV) || \
	    { echo "error: $(PYTHON) cannot make a virtual environment; install its venv module, or name another with PYTHON=" >&2; exit 1; }
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r tests/requirements.txt
	@touch $@

need-cargo:
	@command -v $(CARGO) >/dev/null && command -v rustc >/dev/null || \
	    { echo "error: Rust is not installed here; get it from https://rustup.rs and run make again (no root needed)" >&2; exit 1; }
	@command -v $${CC:-cc} >/dev/null || \
	    { echo "error: a C compiler (cc) is needed to build zstd and to link" >&2; exit 1; }
	@$(CARGO) --version >/dev/null || \
	    { echo "error: the compiler that rust-toolchain.toml names is missing; run \`rustup toolchain install\` here" >&2; exit 1; }

need-python:
	@command -v $(PYTHON) >/dev/null || \
	    { echo "error: Python is not installed here; the tests need python3, 3.10 or newer (or name one with PYTHON=)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	    { echo "error: $(PYTHON) is too old; the tests need Python 3.10 or newer (name another with PYTHON=)" >&2; exit 1; }
