# Two commands for a newcomer: `make train` and `make test`. Each sets up all that it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: train test check clean

train: $(VENV)/.installed
	$(BIN)/harness train --env alfworld $(ARGS)

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/.installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy harness
	$(BIN)/lint-imports

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed-test: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[test]"
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) build dist harness.egg-info
