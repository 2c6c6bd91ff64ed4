# The one list of commands. `make` alone prints it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# Tests that run at a time, on two cores: many wait, for a server or for a disk. Each process has servers of its own.
PROCESSES ?= 4

# Compiled modules are kept, whatever a container's image says of that: tests start hundreds of processes, and to compile
# all modules again takes each of them a quarter of its start.
export PYTHONDONTWRITEBYTECODE :=

# Three stamps: the demo needs what runs and a Postgres and Spark of its own, the checks need the developers' tools.
RUNTIME := $(VENV)/runtime.stamp
DEMO := $(VENV)/demo.stamp
DEV := $(VENV)/dev.stamp

CHECKS := style format types imports tests
STATIC_CHECKS := $(filter-out tests,$(CHECKS))

.DEFAULT_GOAL := help
.PHONY: help test lint format demo bench nemesis clean $(CHECKS:%=check-%)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: $(DEV) ## all checks and tests; ends with one line that says which failed
	@$(call run_checks,$(CHECKS))

lint: $(DEV) ## the checks that run nothing: style, format, types, imports
	@$(call run_checks,$(STATIC_CHECKS))

format: $(DEV) ## rewrite the sources: format them, fix what ruff can fix
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

demo: $(DEMO) ## show the project at work (ARGS="--help" lists options)
	@$(BIN)/shapelog demo $(ARGS)

bench: $(DEV) ## measure (ARGS=...); results go to build/bench
	@mkdir -p build/bench
	@$(BIN)/python -m tests.bench $(ARGS)

nemesis: $(DEV) ## the long form: every test, many more examples, long searches
	@HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -m "nemesis or not nemesis" --timeout=3600 $(ARGS)

clean: ## remove all that make made
	@rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Every check runs even when an earlier one failed: one run shows all there is to mend.
define run_checks
failed=""; \
for check in $(1); do \
	echo "== $$check"; \
	$(MAKE) --no-print-directory --silent check-$$check || failed="$$failed $$check"; \
done; \
if [ -n "$$failed" ]; then echo "== FAILED:$$failed"; exit 1; fi; \
echo "== all checks passed: $(1)"
endef

check-style: $(DEV)
	$(BIN)/ruff check .

check-format: $(DEV)
	$(BIN)/ruff format --check .

check-types: $(DEV)
	$(BIN)/mypy

check-imports: $(DEV)
	$(BIN)/lint-imports --no-logo

check-tests: $(DEV)
	$(BIN)/python -m pytest --numprocesses=$(PROCESSES) --dist=worksteal $(ARGS)

$(RUNTIME): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "shapelog needs Python 3.11 or later; name one: make PYTHON=python3.12"; exit 1; }
	@[ -x $(BIN)/pip ] || { echo "-- making $(VENV)"; $(PYTHON) -m venv --clear $(VENV); }
	@echo "-- upgrading pip"
	@$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@echo "-- installing shapelog and what it runs on"
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(DEMO): $(RUNTIME)
	@echo "-- installing what the demo brings along: Postgres, Java and Spark; half a gigabyte, once"
	@$(BIN)/python -m pip install --quiet --editable ".[demo]"
	@touch $@

$(DEV): $(RUNTIME)
	@echo "-- installing the developers' tools"
	@$(BIN)/python -m pip install --quiet --group dev
	@touch $@
