# `make run` runs everything on this machine, `make test` runs the checks and tests.
.DEFAULT_GOAL := help
.PHONY: help run test core e2e sim check bench docs lock clean

PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
SEEDS := 1000:2000
WORKERS := 2
# Excluded from coverage: it covers no additional branch, and takes three times as long under coverage.
AGAINST_GO := tests/core/gotemplate/test_against_go.py
# The longest tests first, so that they do not run alone at the end.
BEYOND_CORE := $(AGAINST_GO) tests/sim/ \
	$(filter-out tests/core/ tests/e2e/ tests/sim/,$(wildcard tests/[a-z]*/ tests/test_*.py))

help:  ## show this list
	@grep -E '^[a-z0-9.]+:.*##' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 10

.venv: requirements-dev.txt pyproject.toml  ## create the virtual environment from pinned requirements
	@test -n "$(PYTHON)" || { echo "Sentinel needs Python 3.11 or newer on the path" >&2; exit 1; }
	tools/make-venv "$(PYTHON)" .venv
	@touch .venv

run: .venv  ## run the whole loop on this machine; Ctrl-C stops it
	$(BIN)/sentinel up --demo

test: .venv  ## run checks and tests; installs and starts the services they need
	$(MAKE) --jobs=2 check core
	$(BIN)/python -m tools.services rabbitmq pubsub postgresql -- \
		$(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder \
			$(BEYOND_CORE)

core: .venv  ## run the core's tests, which must cover every branch
	$(BIN)/coverage run -m pytest tests/core --ignore=$(AGAINST_GO)
	$(BIN)/coverage report

e2e: .venv  ## run the slow tests: real processes, killed and restarted, and a browser
	$(BIN)/python -m tools.services rabbitmq pubsub postgresql chromium -- $(BIN)/python -m pytest tests/e2e

check: .venv  ## check lint, types, import rules and generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.reference --check

sim: .venv  ## simulate the loop under faults with new seeds: make sim SEEDS=1000:5000
	$(BIN)/python -m tests.sim $(SEEDS)

bench: .venv  ## measure the budgets and write docs/reference/performance.md
	$(BIN)/python -m tools.services rabbitmq pubsub postgresql -- $(BIN)/python -m bench

docs: .venv  ## write docs/reference from the code
	$(BIN)/python -m tools.reference

lock: .venv  ## update the pinned dependencies
	tools/lock $(BIN)

clean:  ## remove the files that other targets create
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .import_linter_cache
