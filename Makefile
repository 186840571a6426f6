# The two words a stranger types: `make demo` and `make test`. Each installs what it lacks.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	  command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes
# podman as a small machine needs it (tests/podman/containers.conf says why)
TEST_ENV := CONTAINERS_CONF=$(CURDIR)/tests/podman/containers.conf
# Side by side, as tests/conftest.py groups them: they wait so much that two cores carry six (468 s; four: 587 s).
JOBS ?= 6
PYTEST = $(BIN)/python -m pytest -q -n $(JOBS) --dist loadscope --no-loadscope-reorder
# The lock of the real engine holds Intel's libraries: elsewhere it ends in pip's words about them.
HAS_REAL := [ "$$(uname -m)" = x86_64 ] || { echo "The real vLLM of the tests is for x86_64, and this is $$(uname -m): make unit runs what needs neither it nor podman."; exit 1; }
# Compiled modules are kept, whatever the shell says: tests start programs by the hundred.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help venv demo test full engines check loops format lint types contracts unit metrics bench ab clean lock
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "sparkdash needs Python 3.11 or newer, and none was found."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "python3-venv is missing: apt-get install python3-venv"; rm -rf $(VENV); exit 1; }

$(VENV)/.base: requirements/base.txt pyproject.toml | $(BIN)/python
	@echo "Installing sparkdash into $(VENV) …"
	@$(PIP) -r requirements/build.txt -r requirements/base.txt
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.base
	@echo "Installing the test tools …"
	@$(PIP) -r requirements/dev.txt
	@touch $@

venv: $(VENV)/.dev ## the environment in .venv, with the test tools

, := ,
NODES ?= 1
demo: $(VENV)/.base ## the whole product on a simulated box, in this terminal; NODES=2: on two
	@$(BIN)/sparkdash demo --nodes $(NODES)

test: engines ## what a commit needs: every unit, contract and property test, and one real life of each kind
	@$(TEST_ENV) $(PYTEST) -m "not full"

# Real engines compute: 24 minutes with four at once, 28 with six, and some were starved.
full: JOBS = 4
full: engines ## every test, with a table of where the time goes; ROOMS=real,two_hosts: those folders of tests/ only
	@sh tests/two_hosts/ray.sh
	@sh tests/podman/docker.sh
	@sh tests/browser/setup.sh $(BIN)/python
	@SPARKDASH_FULL=1 $(TEST_ENV) $(PYTEST) --times $(foreach room,$(subst $(,), ,$(ROOMS)),tests/$(room))

engines: $(VENV)/.dev # what the tests run against: podman, two hosts, a real vLLM and llama-server, two clients
	@$(HAS_REAL)
	@sh tests/podman/setup.sh
	@sh tests/packaging/setup.sh $(BIN)/python
	@sh tests/two_hosts/setup.sh
	@sh tests/real/setup.sh $(PYTHON)
	@sh tests/real/llama.sh $(PYTHON)
	@$(BIN)/python tests/clients/run.py --install --only llm,langchain

unit: $(VENV)/.dev ## the tests that need neither podman nor a real engine
	@$(PYTEST) -m "not full and not podman and not real and not wheels"

check: format lint types contracts test loops ## everything CI asks for

loops: $(VENV)/.dev # the daemon's event loop is uvloop, and that of other tests asyncio's own
	@$(PYTEST) -m "not full" --uvloop tests/store tests/gateway

format: $(VENV)/.dev ## is every file formatted?
	@$(BIN)/ruff format --check --quiet . || { echo "Run: $(BIN)/ruff format ."; exit 1; }

lint: $(VENV)/.dev
	@$(BIN)/ruff check --quiet .

types: $(VENV)/.dev
	@$(BIN)/mypy

contracts: $(VENV)/.dev ## who may import whom
	@said=$$($(BIN)/lint-imports --no-cache) || { echo "$$said"; exit 1; }

metrics: $(VENV)/.dev ## how easy the source is to read, in figures
	@$(BIN)/python tests/metrics.py

bench: $(VENV)/.dev ## benchmarks: ratios against a peer in the same run, never part of the tests
	@for b in tests/perf/*.py; do echo "== $$b"; $(BIN)/python $$b; done

ab: $(VENV)/.dev ## A/B over two real engines, killed in the middle: some ten minutes
	@$(HAS_REAL)
	@sh tests/podman/setup.sh
	@sh tests/real/setup.sh $(PYTHON)
	@$(TEST_ENV) $(BIN)/python tests/real/ab.py

UV := uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --quiet
lock: ## resolve the dependency ranges again (needs uv)
	@$(UV) --group build -o requirements/build.txt
	@$(UV) pyproject.toml -o requirements/base.txt
	@$(UV) pyproject.toml --group dev -c requirements/base.txt -o requirements/dev.txt

clean: ## forget the environment and the caches
	@rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
