# Two commands do everything on a machine that has only Python 3.11 or later and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export NO_ALBUMENTATIONS_UPDATE := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow bench format clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

demo: $(VENV)/installed ## see every transform on a photograph: writes runs/demo/sheet.png
	@mkdir -p runs/demo
	$(BIN)/randfield show docs/photos/chelsea.jpg --output runs/demo/sheet.png --seed 0 --overwrite

test: $(VENV)/tested ## ruff, strict types, and the tests with README and docstring examples
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q -n 2

test-slow: $(VENV)/tested ## the large and long tests, speed ratios among them, one at a time
	$(BIN)/pytest -q -m slow

bench: $(VENV)/benched ## peers and randfield in one run, ten minutes or more: tables, JSON and charts in runs/bench
	$(BIN)/python -m benchmarks $(BENCH)

format: $(VENV)/tested ## format and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment and what the commands wrote
	rm -rf $(VENV) runs .mypy_cache .pytest_cache .ruff_cache

# The marker files hold off the installation until pyproject.toml changes.
$(VENV)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "randfield needs Python 3.11 or later: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@touch $@

$(VENV)/installed: $(VENV)/python pyproject.toml
	@echo "Installing randfield and PyTorch into $(VENV); the first time takes a minute or two."
	$(BIN)/python -m pip install --quiet --editable ".[learn]"
	@touch $@

$(VENV)/tested: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --group test
	@touch $@

$(VENV)/benched: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --group bench
	@touch $@
