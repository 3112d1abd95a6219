# What a newcomer needs. PYTHON picks the interpreter: make test PYTHON=python3.12
PYTHON ?= .venv/bin/python

.PHONY: help install test test-slow lint format bench

help:            ## show this
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## */\t/' | expand -t 14

install:         ## a virtual environment with everything for development
	python3.11 -m venv .venv
	.venv/bin/pip install -c constraints.txt -e ".[torch,test,dev]"

test:            ## the ordinary tests, two processes
	$(PYTHON) -m pytest

test-slow:       ## also what takes minutes
	$(PYTHON) -m pytest -m "slow or not slow"

lint:            ## style and types
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

format:          ## put the code in shape
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

bench:           ## all benchmarks; DATA names the folder of data sets
	$(PYTHON) -m pip install -q -c constraints.txt -e ".[torch,bench]"
	$(PYTHON) -m benchmarks.bench_text --data $(DATA)/imdb
	$(PYTHON) -m benchmarks.bench_step
	$(PYTHON) -m benchmarks.bench_classify --data $(DATA)
	$(PYTHON) -m benchmarks.bench_rates --data $(DATA)
	$(PYTHON) -m benchmarks.report
