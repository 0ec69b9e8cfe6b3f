# Everything a fresh machine needs: Python >= 3.11, git, make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup run test test-slow lint types bench package clean

help:  ## Show what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; name it with PYTHON=..." >&2; exit 1; }
	@test -x $(BIN)/python || { echo "Creating $(VENV) ..."; $(PYTHON) -m venv $(VENV); }
	@echo "Installing packages (about two minutes the first time) ..."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt torch -e '.[dev]'
	@touch $@

setup: $(STAMP)  ## Create the virtual environment

run: $(STAMP)  ## Answer a real prompt through the whole stack, then serve (ONCE=1: exit after it)
	@SPECINFER_QUANTIZATION=$${SPECINFER_QUANTIZATION:-auto} $(BIN)/specinfer local up $(if $(PROMPT),--prompt "$(PROMPT)") $(if $(ONCE),--once)

test: $(STAMP)  ## Run the tests
	$(BIN)/python -m pytest -q $(ARGS)

.venv-checkov/.installed:
	@$(PYTHON) -m venv .venv-checkov
	@.venv-checkov/bin/python -m pip install -qq --disable-pip-version-check checkov==3.3.30
	@touch $@

# Ray beside the environment rather than in it: it brings event loops and parsers that uvicorn
# would take up by itself.
.venv-ray/.installed: $(STAMP)
	@$(PYTHON) -m venv .venv-ray
	@$(BIN)/python -c 'import site; print(site.getsitepackages()[0])' \
	  > "$$(.venv-ray/bin/python -c 'import site; print(site.getsitepackages()[0])')/beside.pth"
	@.venv-ray/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt 'ray[serve]'
	@touch $@

test-slow: $(STAMP) .venv-checkov/.installed .venv-ray/.installed  ## Run the real-model and full-stack tests that `test` leaves out
	$(BIN)/python -m pytest -q -m "slow and not gpu" $(ARGS)

lint: $(STAMP)  ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## Check types
	$(BIN)/mypy

package: $(STAMP)  ## Build the Lambda's zips for arm64 and x86_64 (needs Python 3.12)
	$(BIN)/python tools/build_lambda.py

bench: $(STAMP)  ## Plain decoding against token trees, paired, on the default model
	$(BIN)/python benchmarks/engine.py

clean:  ## Remove the virtual environment and all caches of the checkout
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
