# `make run` runs everything on this machine, `make test` runs the checks and tests.
# `make test PYTHON=python3.13` uses that interpreter, with a virtual environment of its own, .venv-3.13.
.DEFAULT_GOAL := help
.PHONY: help venv run test test-kube core portable versions e2e properties sim check bench docs lock clean

VENV := .venv
ifeq ($(origin PYTHON), command line)
VERSION := $(shell "$$(tools/find-python "$(PYTHON)")" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
$(if $(VERSION),,$(error PYTHON: expected Python 3.11 or newer, got $(PYTHON)))
VENV := .venv-$(VERSION)
else
PYTHON := python3 python3.13 python3.12 python3.11
endif
BIN := $(VENV)/bin
SEEDS := 1000:2000
# More than cores: tests often wait for a service.
WORKERS := 3
AGAINST_GO := tests/core/gotemplate/test_against_go.py
# Excluded from coverage: they cover no additional branch, and take three times as long under coverage.
UNCOVERED := tests/core/kdl/test_fuzzing.py tests/core/kdl/test_against_ckdl.py \
	tests/core/hub/test_rollout_properties.py tests/core/hub/test_rollout_simulation.py \
	tests/core/fleet/test_aggregate_properties.py
VERSIONS := 3.11 3.12 3.13
# What may break on another Python: the core, asyncio's internals in the simulated loop, and what runs on it.
PORTABLE := tests/core/ tests/testing/ tests/runtime/ tests/adapter/ tests/pulse/ tests/web/
# Long tests of single modules, which `make e2e` runs: twelve thousand templates, and brokers killed and restarted.
LONG := $(AGAINST_GO) tests/drivers/rabbitmq/test_node.py
# The longest tests first, so that they do not run alone at the end.
BEYOND_CORE := tests/sim/ \
	$(filter-out tests/core/ tests/e2e/ tests/kube/ tests/sim/,$(wildcard tests/[a-z]*/ tests/test_*.py)) $(UNCOVERED)

help:  ## show this list
	@grep -E '^[a-z0-9.-]+:.*##' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 10

venv: $(VENV)  ## create the virtual environment from pinned requirements

$(VENV): requirements-dev.txt pyproject.toml
	python=$$(tools/find-python $(PYTHON)) && tools/make-venv "$$python" $(VENV)
	@touch $(VENV)

run: $(VENV)  ## run the whole loop on this machine; Ctrl-C stops it
	$(BIN)/sentinel up --demo

test: $(VENV)  ## run checks and tests; installs and starts the services they need
	$(MAKE) --jobs=2 check core
	$(BIN)/python -m tools.services rabbitmq pubsub postgresql promtool -- \
		$(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder \
			$(addprefix --ignore=,$(LONG)) $(BEYOND_CORE)

test-kube: $(VENV)  ## run the tests on a real Kubernetes API server, which the first run builds with Go
	$(BIN)/python -m tools.services kube-apiserver rabbitmq -- $(BIN)/python -m pytest tests/kube

core: $(VENV)  ## run the core's tests, which must cover every branch
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest --numprocesses=2 tests/core $(addprefix --ignore=,$(AGAINST_GO) $(UNCOVERED))
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

portable: $(VENV)  ## run the core's and other quick tests without services: make portable PYTHON=python3.13
	$(BIN)/python -m pytest --numprocesses=$(WORKERS) --ignore=$(AGAINST_GO) $(PORTABLE)

versions: $(VENV)  ## run `make portable` on every other supported Python that is installed
	@own=$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	for version in $(VERSIONS); do \
		if [ $$version = $$own ]; then continue; fi; \
		if ! python=$$(tools/find-python python$$version 2>/dev/null); then \
			echo "Python $$version is not installed: not tested"; continue; \
		fi; \
		$(MAKE) portable PYTHON="$$python" || exit; \
	done

e2e: $(VENV)  ## run the slow tests: real processes, killed and restarted, and a browser
	$(BIN)/python -m tools.services rabbitmq pubsub postgresql chromium -- \
		$(BIN)/python -m pytest tests/e2e $(LONG)

check: $(VENV)  ## check lint, types, import rules and generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.reference --check
	$(BIN)/python -m tools.manifests --check
	$(BIN)/python -m tools.wire --check

properties: $(VENV)  ## run the property tests with five times the examples of `make test`
	$(BIN)/python -m tools.services postgresql -- \
		$(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=loadfile --no-loadscope-reorder \
			-m hypothesis --hypothesis-profile=thorough $(addprefix --ignore=,$(LONG)) $(BEYOND_CORE) tests/core/

sim: $(VENV)  ## simulate the loop under faults with new seeds: make sim SEEDS=1000:5000
	$(BIN)/python -m tests.sim $(SEEDS)

bench: $(VENV)  ## measure the budgets and write docs/reference/performance.md: make bench TOPICS="hub agent"
	$(BIN)/python -m tools.services rabbitmq pubsub postgresql -- $(BIN)/python -m bench $(TOPICS)

docs: $(VENV)  ## write docs/reference and deploy/crds from the code, src/sentinel/wire from proto
	$(BIN)/python -m tools.wire
	$(BIN)/python -m tools.reference
	$(BIN)/python -m tools.manifests

lock: $(VENV)  ## update the pinned dependencies
	tools/lock $(BIN)

clean:  ## remove the files that other targets create
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .import_linter_cache
