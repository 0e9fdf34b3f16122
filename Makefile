# One front door. Every target does its own set-up first; the second time that takes no time.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo demo-edge kafka quick test long check lowest format bench pictures soak prove sim fuzz fuzz-records fuzz-crash sdk lock release clean

BIN := .venv/bin
CODE := src tests sdk scripts examples benchmarks
# Two processes share the work, a file at a time.
SHARED := -n 2 --max-worker-restart 2 --dist loadfile --no-loadscope-reorder

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## fetch uv, make .venv from the lock file, find Java 17+ (or install it), build the console
	@scripts/bootstrap

demo: setup ## run a real flow on real data, with a crash and a switch in the middle
	@PYTHONPATH=. $(BIN)/python examples/flights/demo.py

test: ## run the tests (ARGS="-k journal" for some of them, ARGS="-n 0" for one at a time)
	@scripts/bootstrap postgres network mqtt browser servers
	@$(BIN)/pytest -m "not soak and not long" $(SHARED) --durations=25 $(ARGS)

long: ## run the tests that take about half a minute or more each
	@scripts/bootstrap postgres network mqtt browser servers
	@$(BIN)/pytest -m "long and not soak" $(SHARED) --durations=0 $(ARGS)

demo-edge: setup ## run watchers on three devices that are killed and cut off, and a flow that counts what they find
	@PYTHONPATH=. $(BIN)/python examples/edge/demo.py

quick: setup ## the daily round: what needs no Spark and no other process, in under three minutes
	@PROFILE=quick $(BIN)/pytest -m "not soak and not slow and not process" --ignore tests/integration -n 4 -q $(ARGS)

kafka: setup ## run a Kafka broker at 127.0.0.1:9092 for trying (PORT=9093 for another port)
	@$(BIN)/python -m millstream.testing.kafka --port $(or $(PORT),9092)

check: setup ## format, lint, types and rooms; the types of the console
	@$(BIN)/ruff format --check --quiet $(CODE) || { echo "hint: make format"; exit 1; }
	@$(BIN)/ruff check --quiet $(CODE)
	@$(BIN)/mypy
	@$(BIN)/mypy --strict tests/typing
	@$(BIN)/lint-imports --no-logo
	@scripts/page check

lowest: setup ## run fast tests with the lowest versions of libraries that we allow
	@scripts/lowest $(ARGS)

format: setup ## format the code and fix what can be fixed
	@$(BIN)/ruff format $(CODE)
	@$(BIN)/ruff check --fix $(CODE)

bench: setup ## measure, write benchmarks/results/ and FIGURES.md, and show what is worse than before
	@scripts/bootstrap browser servers
	@PYTHONPATH=.:tests $(BIN)/python benchmarks/run.py $(ARGS)

pictures: ## take the pictures of the console in the docs, in a browser, of a job that runs
	@scripts/bootstrap browser
	@PYTHONPATH=tests:. $(BIN)/python scripts/pictures.py $(ARGS)

soak: ## run the tests that take minutes on purpose
	@scripts/bootstrap postgres network mqtt browser servers
	@$(BIN)/pytest -m soak --timeout=3600 --durations=15 $(ARGS)

prove: setup ## prove that switches change no result: all kinds of stages, deaths at every step, N random lives (N=3), N thousand seeds
	@PROVE=$(or $(N),3) $(BIN)/pytest -m "soak or long or slow" --timeout=7200 --durations=15 tests/integration/test_{switch,switch_deaths,switch_joins,switch_lateness,switch_outside,switch_service,nulls_outside,share,again,shadow,shared_queries}.py tests/simulation/test_switch.py $(ARGS)

sim: setup ## simulate links under faults, 10,000 seeds (SEED=7 tells the story of one)
	@PYTHONPATH=tests $(BIN)/python -m simulation.run $(SEED) $(ARGS)

fuzz: fuzz-records fuzz-crash ## hostile input and kills: both of these

fuzz-records: setup ## hostile records on all ways into a journal, hostile requests and devices, N thousand for each (N=1)
	@PROFILE=fuzz N=$(or $(N),1) $(BIN)/pytest --timeout=7200 -q tests/property/test_hostile_*.py $(ARGS)

fuzz-crash: setup ## kill eight programs with journals of all kinds, N rounds (N=1; SEED=7 plays the kills of one again)
	@ROUNDS=$(or $(N),1) SEED=$(or $(SEED),$$RANDOM) $(BIN)/pytest -m soak -v --timeout=3600 tests/integration/test_crash.py -k sequences $(ARGS)

sdk: setup ## build and test the SDKs for actions (ARGS="c go" for some of them)
	@$(BIN)/python sdk/check.py $(ARGS)

lock: setup ## compile the lock files again (ARGS=--upgrade for newer versions)
	@scripts/lock $(ARGS)

release: setup ## build wheel and sdist, check them, and run a flow with the wheel in an empty environment
	@scripts/release

clean: ## remove what the targets above have made
	@rm -rf .venv .tools .lowest .millstream build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache page/node_modules page/build src/millstream/engine/http/page src/*.egg-info sdk/build examples/*/data examples/*/out examples/flights/flow_2.py
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
