# The commands of this project; CI calls the same ones. CONTRIBUTING.md describes them.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/ready
# TensorFlow has a separate environment.
BIN_TENSORFLOW := .venv-tensorflow/bin
READY_TENSORFLOW := .venv-tensorflow/ready

# The console is built only if npm is installed, with a Node.js that is new enough. Everything else works without it.
NPM ?= $(shell node -e 'const [a, b] = process.versions.node.split("."); process.exit(a * 100 + +b < 2019 ? 1 : 0)' 2>/dev/null && command -v npm)
PAGES := src/legato/server/pages/index.html
NODE_READY := console/node_modules/.package-lock.json
CONSOLE_SOURCES := $(shell find console -name node_modules -prune -o -type f -print 2>/dev/null)

.PHONY: demo console test soak test-console test-tensorflow test-torch test-gpu bench-gpu lint lint-console docs bench clean

# The demo itself needs no console. It is built for users who start `legato up` afterwards.
demo: $(READY)
	-@$(MAKE) --no-print-directory console
	$(BIN)/python examples/demo.py

ifneq ($(NPM),)
console: $(PAGES)

lint-console: $(NODE_READY)
	cd console && $(NPM) run lint && $(NPM) run check

test-console: $(READY) $(NODE_READY)
	cd console && $(NPM) run schema -- --check && $(NPM) run test
else
console lint-console test-console:
	@echo "$@: no npm with Node.js 20.19 or newer, so the web console is left out. Install it, then: make console"
endif

$(PAGES): $(NODE_READY) $(CONSOLE_SOURCES)
	cd console && $(NPM) run build
	touch $@

$(NODE_READY): console/package.json console/package-lock.json
	cd console && $(NPM) ci --no-audit
	touch $@

# `test` runs the quick tests; `soak` runs the others, and ten times as many random cases.
# Tests start hundreds of programs, so Python must keep compiled modules, even if the shell forbids it.
unexport PYTHONDONTWRITEBYTECODE
# One process more than there are cores, because tests often wait for the programs that they start; four at most.
PROCESSES := $(shell $(PYTHON) -c "import os; print(min(4, os.cpu_count() + 1))")
PYTEST := -m pytest --numprocesses $(PROCESSES) --dist worksteal

test: $(READY) console
	$(BIN)/python $(PYTEST)

EXAMPLES_FACTOR ?= 10
# How long the soak test disturbs a platform, on each of two databases in each of three modes of run_jobs_as: an hour in total.
SOAK_SECONDS ?= 600
soak: $(READY) console
	EXAMPLES_FACTOR=$(EXAMPLES_FACTOR) $(BIN)/python $(PYTEST) -m "soak or hypothesis" --soak-seconds $(SOAK_SECONDS) $(SOAK)

test-tensorflow: $(READY_TENSORFLOW)
	$(BIN_TENSORFLOW)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal tests/keras

# Tests training with another release of torch, which downloads gigabytes of CUDA. Run it by hand when the range of torch in pyproject.toml,
# or Legato's use of torch, changes. The default is the oldest release in that range.
TORCH ?= 2.8.0
test-torch: .venv-torch-$(TORCH)/ready
	.venv-torch-$(TORCH)/bin/python $(PYTEST) \
		tests/unit/train tests/contract/test_engine.py tests/integration/test_driver.py tests/integration/test_faults.py \
		tests/integration/test_state.py tests/integration/test_verify.py tests/integration/test_workers.py \
		tests/integration/test_evaluation.py

.venv-torch-$(TORCH)/ready: pyproject.toml constraints.txt
	rm -rf .venv-torch-$(TORCH)
	$(PYTHON) -m venv .venv-torch-$(TORCH)
	grep -v '^torch' constraints.txt >.venv-torch-$(TORCH)/constraints.txt
	.venv-torch-$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir \
		--constraint .venv-torch-$(TORCH)/constraints.txt torch==$(TORCH) torchvision --editable '.[train,dev]'
	touch $@

# For a machine with CUDA: tests, and measurements, each below 8 minutes, with one file of results in build/gpu. They make an
# environment with the newest torch for CUDA, which downloads gigabytes. GPU_PYTHON=python3 uses an interpreter as it is instead.
# DEVICE=cpu rehearses them on a machine without a GPU. OPTIONS: see `python -m benchmarks.gpu --help`.
DEVICE ?= cuda
GPU_PYTHON ?=
OPTIONS ?=
ifneq ($(GPU_PYTHON),)
BIN_GPU := $(GPU_PYTHON)
READY_GPU :=
else ifeq ($(DEVICE),cpu)
BIN_GPU := $(BIN)/python
READY_GPU := $(READY)
else
BIN_GPU := .venv-gpu/bin/python
READY_GPU := .venv-gpu/ready
endif

test-gpu: $(READY_GPU)
	PYTHONPATH=$(CURDIR)/src:$(CURDIR) $(BIN_GPU) -m tests.gpu --device $(DEVICE) $(OPTIONS)

bench-gpu: $(READY_GPU)
	PYTHONPATH=$(CURDIR)/src:$(CURDIR) $(BIN_GPU) -m benchmarks.gpu --device $(DEVICE) $(OPTIONS)

.venv-gpu/ready: pyproject.toml constraints.txt
	rm -rf .venv-gpu
	$(PYTHON) -m venv .venv-gpu
	grep -v '^torch' constraints.txt >.venv-gpu/constraints.txt
	.venv-gpu/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir \
		--constraint .venv-gpu/constraints.txt --editable '.[train,gpu]' pytest pytest-timeout
	touch $@

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Builds the site of the documents in build/site, and fails at the first broken link or unknown name. The variable switches off
# an advertisement of the theme for its successor. With --quiet, MkDocs would not count what it does not print.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: $(READY)
	$(BIN)/python -m benchmarks

clean:
	rm -rf console/node_modules src/legato/server/pages
	rm -rf .venv .venv-gpu .venv-tensorflow .venv-torch-* build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Created again only if one of these files has changed. torch is installed first and by its exact version: with a range, pip would install
# the newest build with all of CUDA.
$(READY): pyproject.toml constraints.txt
	@echo "Installing PyTorch, Legato and its tools into .venv, about 2 GB without CUDA. This takes some minutes."
	rm -rf .venv
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[train,dev]'
	touch $@

# tf_keras requires the package with CUDA; it works with the one for the CPU too, so install it without dependencies.
$(READY_TENSORFLOW): pyproject.toml constraints.txt
	rm -rf .venv-tensorflow
	$(PYTHON) -m venv .venv-tensorflow
	$(BIN_TENSORFLOW)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch==2.13.0
	$(BIN_TENSORFLOW)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[train]' tensorflow-cpu scipy pytest pytest-timeout pytest-xdist
	$(BIN_TENSORFLOW)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps tf_keras
	touch $@
