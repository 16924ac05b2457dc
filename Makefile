# Each target does its own set-up: a virtual environment in .venv, the build, the downloads.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

NATIVE := CMakeLists.txt $(shell find host/native -name '*.hpp' -o -name '*.cpp')
CXX_FILES := $(shell find host/native -name '*.hpp' -o -name '*.cpp')
SECONDS ?= 60

.PHONY: train test sim lint type format check bench sanitize arm peers wheel clean help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/installed: pyproject.toml constraints.txt $(NATIVE)
	@echo 'setting up .venv: downloading PyTorch and compiling, about two minutes' >&2
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[envs]'
	touch $@

$(VENV)/developing: $(VENV)/installed
	$(BIN)/pip install --quiet 'copal-rl[dev,envpool,mujoco,sim]'
	touch $@

train: $(VENV)/installed  ## train DQN on LunarLander-v3 until it is solved
	$(BIN)/copal train --algo dqn --env LunarLander-v3 --backend cpu --stop-at-return 200 --seed 1

test: $(VENV)/developing  ## run all tests
	$(BIN)/python -m pytest

sim: $(VENV)/developing  ## verify the FPGA engine: every test bench, SECONDS a soak; an ECP5 bitstream
	$(BIN)/copal simulate --seconds $(SECONDS)
	COPAL_FPGA_UPDATES=500 $(BIN)/python -m pytest tests/unit/test_fpga_updates.py --timeout 3600
	$(BIN)/copal build --board ecp5 --stage bitstream

lint: $(VENV)/developing  ## check style of Python and C++
	$(BIN)/ruff check host tests hls sim
	$(BIN)/ruff format --check host tests hls sim
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)

type: $(VENV)/developing  ## check types
	$(BIN)/mypy

format: $(VENV)/developing  ## rewrite Python and C++ in the house format
	$(BIN)/ruff check --fix-only --quiet host tests hls sim
	$(BIN)/ruff format host tests hls sim
	$(BIN)/clang-format -i $(CXX_FILES)

check: lint type test  ## all of the above that only check

sanitize: $(VENV)/developing  ## long stress of the native code under ThreadSanitizer and AddressSanitizer
	$(BIN)/python tests/stress.py sanitize $(SECONDS)

arm: $(VENV)/developing  ## build the native code for Arm and stress it under emulation
	$(BIN)/python tests/stress.py arm $(SECONDS)

peers: $(VENV)/installed  ## install the frameworks that the benchmarks compare with, each in its own environment
	$(BIN)/python -m copal.bench.peers.install

bench: $(VENV)/developing  ## print the benchmark tables (peers that are absent are rows that say so)
	$(BIN)/copal bench replay
	$(BIN)/copal bench learner
	$(BIN)/copal bench train

wheel: $(VENV)/developing  ## build a wheel into dist/
	$(BIN)/pip wheel --no-deps --wheel-dir dist .

clean:  ## remove the environment and every build product
	rm -rf $(VENV) build dist
