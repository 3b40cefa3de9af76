# Two commands do everything on a machine that has only Python 3.11 or later and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export NO_ALBUMENTATIONS_UPDATE := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-browser bench docs format clean

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

demo: $(VENV)/installed ## pretrain with and without a local field, compare them: runs/demo/report.html
	$(BIN)/randfield demo

test: $(VENV)/tested ## ruff, strict types, and the tests with README and docstring examples
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q -n 2

test-slow: $(VENV)/tested ## the large and long tests, speed ratios among them, one at a time, and transforms without the kernels
	$(BIN)/pytest -q -m slow
	RANDFIELD_KERNELS=0 $(BIN)/pytest -q tests/test_transforms.py tests/test_functional.py

test-browser: $(VENV)/browsed ## the explorer in a headless Chromium, which this installs if there is none
	$(BIN)/pytest -q -m browser

bench: $(VENV)/benched ## peers and randfield in one run, ten minutes or more: tables, JSON and charts in runs/bench
	$(BIN)/python -m benchmarks $(BENCH)

docs: $(VENV)/documented $(VENV)/beside/installed ## run every example and gallery script, and build the site: docs/_build/index.html
	$(BIN)/pytest -q tests/test_docs.py
	$(VENV)/beside/bin/python -m pytest -q tests/test_docs.py -k stable_pretraining
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build
	@echo "Open docs/_build/index.html in a browser."

format: $(VENV)/tested ## format and fix what ruff can fix
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

clean: ## remove the environment and what the commands wrote
	rm -rf $(VENV) runs docs/_build docs/examples .mypy_cache .pytest_cache .ruff_cache

# The marker files hold off the installation until pyproject.toml or what is compiled changes.
$(VENV)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "randfield needs Python 3.11 or later: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@touch $@

$(VENV)/installed: $(VENV)/python pyproject.toml hatch_build.py src/randfield/kernels.c
	@echo "Installing randfield and PyTorch into $(VENV); the first time takes a minute or two."
	$(BIN)/python -m pip install --quiet --editable ".[study]"
	@touch $@

$(VENV)/tested: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --group test
	@touch $@

$(VENV)/browsed: $(VENV)/tested
	$(BIN)/python -m pip install --quiet --group browser
	@command -v chromium >/dev/null || apt-get install -y chromium || $(BIN)/playwright install chromium
	@touch $@

$(VENV)/benched: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --group bench
	@touch $@

$(VENV)/documented: $(VENV)/tested
	$(BIN)/python -m pip install --quiet --group docs
	@touch $@

# stable-pretraining hooks itself into every Lightning trainer of its environment. It gets one of its own, which sees ours.
$(VENV)/beside/installed: $(VENV)/documented
	$(BIN)/python -m venv --without-pip $(VENV)/beside
	@$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
		> "$$($(VENV)/beside/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/ours.pth"
	$(BIN)/python -m pip --python $(VENV)/beside/bin/python install --quiet --group beside
	@touch $@
