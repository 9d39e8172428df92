# Everything runs in .venv, which `make setup` makes. Offline but for the package registries.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# The tests start hundreds of processes, which would each compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

# Tests with real servers: three files at a time; then, once more and alone, those that failed. What fails twice fails.
BESIDE := $(BIN)/python -m pytest integration -n 3 --dist loadfile --no-loadscope-reorder --durations=30
ALONE := $(BIN)/python -m pytest integration --last-failed --last-failed-no-failures none
REST := "(large or hypothesis) and not soak"

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo test test-hermetic test-all test-rest test-soak lint format bench docs image dist lock clean

help: ## Lists the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Makes .venv with the command .venv/bin/offloader

$(STAMP): requirements.lock pyproject.toml hatch_build.py $(wildcard proto/*.proto)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || \
	  { echo "error: Python 3.11, 3.12 or 3.13 is needed; name one with make PYTHON=python3.12 setup" >&2; exit 1; }
	@$(PYTHON) -m offloader.java
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $(STAMP)

demo: setup ## A real Pulsar, the offloader beside it, everything read back and compared (90 s); KEEP=1 keeps it running
	KEEP=$(KEEP) $(BIN)/python -m dev.demo.demo

test: test-hermetic ## Tests with Python and Java alone, the same each time: hermetic ones, then some with a real Pulsar, Spark and S3 (10 minutes)
	$(BESIDE) -m "not large" || { [ $$? = 1 ] && $(ALONE) -m "not large"; }

test-hermetic: setup ## Those of them that start no server
	$(BIN)/python -m pytest tests -m "not large" -n 3 --dist worksteal --durations=10

test-all: test test-rest ## Every test but those of test-soak alone; installs what is missing, with apt as root (40 minutes)

test-rest: setup ## What test-all has beyond test
	.ci/packages
	OFFLOADER_ALL=1 $(BIN)/python -m pytest tests -m "large or explores or hypothesis" -n 3 --dist worksteal --durations=10
	export OFFLOADER_ALL=1; $(BESIDE) -m $(REST) || { [ $$? = 1 ] && $(ALONE) -m $(REST); }

test-soak: setup ## Thousands of new seeds and examples, and the full cross product of faults (hours)
	OFFLOADER_NEW=1 OFFLOADER_ALL=1 OFFLOADER_EXAMPLES=3000 OFFLOADER_WORLDS=10000 OFFLOADER_GATEWAY_WORLDS=1000 OFFLOADER_SOAK=1 $(BIN)/python -m pytest tests -n 2 -o timeout=14400
	OFFLOADER_NEW=1 OFFLOADER_ALL=1 OFFLOADER_EXAMPLES=3000 OFFLOADER_GATEWAY_KILLS=20 OFFLOADER_SOAK=1 $(BIN)/python -m pytest integration -o timeout=14400
	$(BIN)/python -m integration.gateway.go_suite
	$(BIN)/python -m integration.image.rebuilt
	$(BIN)/python -m integration.lifecycle.soak
	OFFLOADER_SOAK=1 $(BIN)/python -m integration.bridge.soak --rounds 200 --go
	$(MAKE) dist

lint: setup ## Every static check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup ## Formats the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## Benchmarks, as ratios within one run
	$(BIN)/python -m benchmarks

docs: setup ## Writes the generated pages again (docs/configuration.md, docs/metrics.md, docs/cli.md), the dashboard and the page's alarms
	$(BIN)/python -m dev.docs.configuration docs/configuration.md
	$(BIN)/python -m dev.docs.metrics docs/metrics.md
	$(BIN)/python -m dev.docs.commands docs/cli.md
	$(BIN)/python -m dev.docs.dashboard conf/grafana/offloader.json
	$(BIN)/python -m dev.docs.alarms offloader/offload/live/alarms.json

image: setup ## Builds the container image with docker, podman or buildah
	$(BIN)/python -m dev.image.build

dist: setup ## Builds sdist and wheel, installs the wheel into an empty environment elsewhere, and uses it
	$(BIN)/python -m dev.release.build dist
	$(BIN)/python -m dev.release.use dist

LOCK := $(BIN)/python -m uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header

lock: setup ## Resolves requirements.lock anew, and the parts of it that the Dockerfile installs
	$(LOCK) pyproject.toml --extra dev --upgrade -o requirements.lock
	$(LOCK) pyproject.toml --extra bookkeeper --extra systemtopic --extra gcs --extra azure --extra gateway --constraints requirements.lock -o requirements-runtime.lock
	printf 'hatchling\ngrpcio-tools\n' | $(LOCK) - --constraints requirements.lock -o requirements-build.lock

clean: ## Removes the environment and what builds leave
	rm -rf $(VENV) build dist offloader/_proto .mypy_cache .ruff_cache .pytest_cache .hypothesis
