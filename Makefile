# Two commands: `make app` starts the app, `make test` runs every check. Each sets everything up first, once;
# from then on both work without a network.
#
#   PYTHON       the Python to use, 3.11 or newer
#   TORCH        another torch, 2.7 or newer: a version, or the wheel of one that was built for this machine
#   TORCH_ARGS   more arguments for the installation of torch, for instance the index of another build
#   ARGS         more arguments for the app: make app ARGS="--port 8000"
#   BENCH        where `make bench` writes

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
TORCH ?= $(shell grep '^torch==' constraints.txt)
TORCH_ARGS ?=
ARGS ?=
BENCH ?= build/bench
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
MODEL := $(VENV)/model-fetched
PIP := $(BIN)/python -m pip --disable-pip-version-check
TOOLS := build/tools
# Half of what is slow waits for others: for processes of Ray, for time limits, for files.
SLOW_PROCESSES := $(shell echo $$(( $$(nproc) < 4 ? 4 : $$(nproc) > 8 ? 8 : $$(nproc) )))
SLOWLY = OMP_NUM_THREADS=1 $(BIN)/pytest -q -n $(SLOW_PROCESSES) --dist worksteal
# One process for each core, one thread in each: these are many and small, and starting a process takes ten seconds.
QUICKLY = OMP_NUM_THREADS=1 $(BIN)/pytest -q -n auto --maxprocesses 8 --dist worksteal -m "not slow"
LOCK = $(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.11.1 --generate-hashes --no-header \
	--no-emit-package torch --no-emit-package triton -c constraints.txt

# The folder kernels/ must not be found under that name when a command runs from here: see pyproject.toml.
export PYTHONSAFEPATH = 1

.PHONY: help app setup test test-all lint unit slow triton laboratory affected browser browser-all bench gpu-check gpu-bench \
	screenshots screenshots-update pictures docs map-frames walk lock audit licences fuzz clean

help:
	@echo 'make app          start the app on http://127.0.0.1:7860'
	@echo 'make test         lint, types, unit and browser tests, and what the last commits may have broken elsewhere'
	@echo 'make test-all     every test: minutes more'
	@echo 'make lint         formatting, lint and types only'
	@echo 'make bench        measure every speed, and write files and tables into $(BENCH)'
	@echo 'make gpu-check    on a machine with an NVIDIA GPU: check and measure the kernels there; no set-up'
	@echo 'make gpu-bench    the same for a real model, MODEL_FILE=...'
	@echo 'make screenshots  compare every screen with its baseline'
	@echo 'make screenshots-update  make the screens as they are now the baselines'
	@echo 'make pictures     take the pictures of README and docs/app.md, of the app with its default model'
	@echo 'make map-frames   frames a second of the memory map of a million tokens, on one core'
	@echo 'make walk         what somebody waits for, and is told, with documents and questions of your own'
	@echo 'make setup        only the set-up that all of these begin with'
	@echo 'make lock         write the two locks anew from pyproject.toml and constraints.txt; needs the network'
	@echo 'make audit        ask the public lists of vulnerabilities about everything that is locked'
	@echo 'make fuzz         look for documents that harm the readers, for a night; KIND=pdf, docx, zip, eml, ...'
	@echo 'make docs         write the reference in docs/cli.md anew'
	@echo 'make licences     write docs/licences.md anew'
	@echo 'make clean        remove what the set-up made here'

app: setup
	@$(BIN)/ondevice app $(ARGS)

setup: $(MODEL)

$(BIN)/python:
	@[ -n '$(PYTHON)' ] || { echo 'Python 3.11 or newer is needed; name it with PYTHON=...' >&2; exit 1; }
	@rm -rf $(VENV)
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
		scripts/debian-packages "$$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
	$(PYTHON) -m venv $(VENV)

# Everything in the lock has to have the hash that stands there, and nothing else comes with it. torch is not locked,
# because each machine takes a build of its own; it says which triton it works with, or takes any. Nothing is asked for
# the building of this project either: setuptools is in the lock.
# Compiled by all cores afterwards: pip would do it with one. Files that are templates, and no Python, are left as they are;
# so are tests of others and what transformers has for each of its models, of which only those in use are ever imported.
# Torch, half of all files, is unpacked and compiled beside the rest, for pip uses one core; what it needs comes after.
COMPILE = $(BIN)/python -m compileall -q -x '/tests?/|/transformers/models/'
$(INSTALLED): $(BIN)/python pyproject.toml batch/pyproject.toml bench/pyproject.toml constraints.txt requirements.lock
	@{ $(PIP) install --quiet --no-compile --no-deps $(TORCH_ARGS) "$(TORCH)" && { $(COMPILE) $(VENV)/lib/*/site-packages/torch >/dev/null || true; }; } & \
	$(PIP) install --quiet --no-compile --require-hashes --no-deps -r requirements.lock && wait $$!
	$(PIP) install --quiet --no-compile $(TORCH_ARGS) "$(TORCH)"
	$(PIP) install --quiet --no-compile "triton>=3.3; sys_platform == 'linux'"
	$(COMPILE) -j 0 $(VENV)/lib >/dev/null || true
	$(PIP) install --quiet --no-deps --no-build-isolation -e . -e batch -e bench
	$(BIN)/python scripts/compile_kernels.py || true
	@mkdir -p $(VENV)/types
	@for part in batch bench; do ln -sfn ../../$$part $(VENV)/types/ondevice_$$part; done
	@touch $@

$(MODEL): $(INSTALLED)
	$(BIN)/ondevice models fetch smollm2-135m
	@touch $@

test: lint unit browser affected

test-all: lint unit slow triton laboratory browser-all

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

unit: setup
	$(QUICKLY) tests batch/tests --ignore=tests/browser --ignore=tests/triton

# Minutes of work, so apart: most cases of large grids, thousands of damaged files, the default model itself, and
# questions to the larger one where `ondevice models fetch` has been run for it.
slow: setup
	$(SLOWLY) -m slow tests batch/tests --ignore=tests/browser --ignore=tests/triton

# Every kernel in Triton's interpreter, and compiled for the GPUs that we name; CAPABILITY=90: for one of them.
triton: setup
	$(SLOWLY) tests/triton

# What measures the product.
laboratory: setup
	$(SLOWLY) bench/tests

# Of these two, what the commits of the last two days may have broken and is not slow; of the compiled kernels one GPU
# in any case.
affected: setup
	@tests=$$($(BIN)/python scripts/affected_tests.py); \
	[[ "$$tests" == *triton_compile* ]] || export CAPABILITY=90; \
	$(QUICKLY) tests/triton/test_triton_compile.py $$tests

# Without Chromium these tests skip, and say so. A browser that shares two cores with others can stand still for longer
# than a test waits: what failed is run once more, and both runs are printed.
BROWSER = $(BIN)/pytest -q -n 3 --dist loadfile tests/browser
AGAIN = $(BIN)/pytest -q --last-failed --last-failed-no-failures none tests/browser

browser: setup
	@command -v chromium >/dev/null || scripts/debian-packages chromium || true
	$(BROWSER) -m "not slow" || $(AGAIN)

browser-all: setup
	@command -v chromium >/dev/null || scripts/debian-packages chromium || true
	$(BROWSER) || $(AGAIN)

# Every speed once more, into a folder of its own. Files of bench/results that need what is not part of this checkout
# are repeated with it where it is named: BOOKS, two texts, of which thresholds are calibrated on the first and the
# second is read; GGUF, the default model for llama.cpp.
bench: setup
	$(BIN)/ondevice bench ingest --out $(BENCH)/ingest.json
	$(BIN)/ondevice bench decode $(if $(GGUF),--llama-cpp $(GGUF)) --out $(BENCH)/decode.json
	for part in proofs updates decoding; do $(BIN)/ondevice bench equip --parts $$part --out $(BENCH)/equip_$$part.json; done
	$(BIN)/ondevice bench slim --out $(BENCH)/slim.json
	$(BIN)/ondevice bench tier --out $(BENCH)/tier.json
	$(BIN)/ondevice bench plan --host-tier 1GB --out $(BENCH)/plan.json
	$(BIN)/ondevice bench slim --tokens 12288 --slim 6:50%,12:25% --out $(BENCH)/slim_early.json
	$(if $(BOOKS),$(BIN)/ondevice bench calibrate --text $(word 1,$(BOOKS)) --capacity 4096 --keep 2048 --out $(BENCH)/calibrate.json)
	$(if $(BOOKS),$(BIN)/ondevice bench calibrate --text $(word 1,$(BOOKS)) --policy full --tokens 16000 --out $(BENCH)/calibrate_full.json)
	$(BIN)/ondevice bench art $(if $(BOOKS),--text $(word 2,$(BOOKS))) --out $(BENCH)/art.json
	$(BIN)/ondevice bench specprefill --out $(BENCH)/specprefill.json
	$(BIN)/ondevice results --from $(BENCH) --to $(BENCH)

# With the torch that is there, and what came with it: such a machine often has no network to set anything up from.
gpu-check: PYTHON = python3
gpu-check:
	@[ -n '$(PYTHON)' ] || { echo 'Python 3.11 or newer is needed; name it with PYTHON=...' >&2; exit 1; }
	$(PYTHON) scripts/from-checkout ondevice_bench.speed.gpu.check --out $${OUT:-bench/results}/gpu.json $(ARGS)

# The same for a real model: make gpu-bench MODEL_FILE=file.gguf
gpu-bench: PYTHON = python3
gpu-bench:
	@[ -n '$(MODEL_FILE)' ] || { echo 'Name a folder with safetensors, or a .gguf file: make gpu-bench MODEL_FILE=...' >&2; exit 1; }
	$(PYTHON) scripts/from-checkout ondevice_bench.speed.gpu.check --model $(MODEL_FILE) --out $${OUT:-bench/results}/gpu_model.json $(ARGS)

# Part of `browser`; alone when only the look of things has changed.
screenshots: setup
	@command -v chromium >/dev/null || scripts/debian-packages chromium
	$(BIN)/pytest -q tests/browser/test_screens.py

screenshots-update: setup
	@command -v chromium >/dev/null || scripts/debian-packages chromium
	$(BIN)/pytest -q tests/browser/test_screens.py --update-baselines

# On a machine with nothing else to do: the pictures show speeds.
pictures: setup
	@command -v chromium >/dev/null || scripts/debian-packages chromium
	@env -u PYTHONSAFEPATH $(BIN)/python -m tests.browser.screenshots

map-frames: setup
	@command -v chromium >/dev/null || scripts/debian-packages chromium
	@env -u PYTHONSAFEPATH $(BIN)/python -m tests.browser.map_frames --out $${OUT:-bench/results}/map_frames.json $(ARGS)

walk: setup
	@command -v chromium >/dev/null || scripts/debian-packages chromium
	@env -u PYTHONSAFEPATH $(BIN)/python -m tests.browser.walk --out $${OUT:-bench/results}/walk.json $(ARGS)

# What is not used by the product itself, and differs from what is: in a virtual environment of its own.
$(TOOLS)/bin/python:
	@[ -n '$(PYTHON)' ] || { echo 'Python 3.11 or newer is needed; name it with PYTHON=...' >&2; exit 1; }
	$(PYTHON) -m venv $(TOOLS)

lock: $(TOOLS)/bin/python
	@$(TOOLS)/bin/python -m pip --disable-pip-version-check install --quiet 'uv>=0.9'
	$(LOCK) --all-extras pyproject.toml -o requirements.lock
	$(LOCK) --extra gpu --extra mcp pyproject.toml -o requirements-image.lock

# Needs atheris; see scripts/fuzz.py. A folder CORPUS keeps what was found for the next night.
KIND = pdf
SECONDS = 28800
fuzz: $(INSTALLED)
	$(BIN)/python scripts/fuzz.py $(KIND) --seconds $(SECONDS) $(if $(CORPUS),--corpus $(CORPUS))

# Without a network it says so, and fails nothing.
audit: $(TOOLS)/bin/python
	@$(PYTHON) scripts/audit.py $(TOOLS)/bin/python

docs: $(INSTALLED)
	$(BIN)/python scripts/cli_page.py

licences: $(INSTALLED)
	$(BIN)/python scripts/licences.py

clean:
	rm -rf $(VENV) build {batch,bench}/build *.egg-info {batch,bench}/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
