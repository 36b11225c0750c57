PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/installed
# by path: a finder would lose to the folder itself where Python starts beside a clone called secagg
EDITABLE := --config-settings editable_mode=compat -e .
# two more than cores: some tests wait for deadlines
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 + (os.cpu_count() or 1))')
# in an environment of its own: nothing of secagg needs it
SBOM := cyclonedx-bom==7.5.0
# what a thousand processes would compile anew
unexport PYTHONDONTWRITEBYTECODE
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

.PHONY: setup demo quick test coverage check bench protos lock clean wheel sbom help

setup: $(STAMP)  ## create .venv with the secagg command in it
	@:

$(STAMP): requirements.lock pyproject.toml Makefile
	@command -v $(PYTHON) >/dev/null || { echo "secagg needs Python 3.11 or newer; $(PYTHON) was not found" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("secagg needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0] + "; name another one: make setup PYTHON=python3.12")'
	@echo "setting up .venv (the first time takes a few minutes)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install -qq --disable-pip-version-check --require-hashes --no-deps -r requirements.lock
	@$(BIN)/pip install -qq --disable-pip-version-check torch  # is there; where it is the CUDA build, this adds the libraries that it names
	@$(BIN)/pip install -qq --disable-pip-version-check --no-deps --no-build-isolation $(EDITABLE)
	@touch $@

demo: setup  ## a secure sum of one server and five clients on this machine (PROTECTION=..., ARGS=...)
	@$(BIN)/secagg demo $(if $(PROTECTION),--protection $(PROTECTION)) $(ARGS)

quick: setup  ## at most a minute: lint, format, rules, types (where mypy has its cache), tests of what changed
	@$(BIN)/python -m tests.architecture.quick

test: setup  ## the tests, without those marked long, on every core
	@$(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal $(ARGS)

coverage: setup  ## the tests, and how much of the code they run
	@$(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal --cov --cov-report=term:skip-covered $(ARGS)

check: setup  ## lint, format, types, architecture, generated code
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/mypy
	@$(BIN)/python -m tests.architecture.regenerate --check
	@$(BIN)/pytest --quiet tests/architecture

bench: setup  ## measure speed and size; writes bench.json (ARGS=--smoke: seconds, checks alone)
	@$(BIN)/python -m tests.benchmarks $(ARGS)

protos: setup  ## regenerate secagg/wire/generated from protos/
	@$(BIN)/python -m tests.architecture.regenerate

lock: setup  ## install what pyproject.toml newly asks for and write requirements.lock
	@$(BIN)/pip install -qq --disable-pip-version-check --no-build-isolation $(EDITABLE)'[all,dev]'
	@$(BIN)/python -m tests.architecture.lock
	@touch $(STAMP)

clean:  ## remove .venv, caches and what the commands wrote
	@rm -rf .venv build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache .coverage bench.json secagg-demo demo-*/ audit.html
	@find secagg methods threat_models tests -name __pycache__ -prune -exec rm -rf {} +

wheel: setup  ## dist/secagg-*.whl, the same bytes from the same commit
	@rm -rf build
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

sbom:  ## dist/secagg.cdx.json: what requirements.lock names, as CycloneDX, valid by its schema
	@test -x build/sbom/bin/cyclonedx-py || { $(PYTHON) -m venv build/sbom && build/sbom/bin/pip install -qq --disable-pip-version-check $(SBOM); }
	@mkdir -p dist
	@PYTHONWARNINGS=ignore build/sbom/bin/cyclonedx-py requirements --pyproject pyproject.toml --mc-type library \
		--output-reproducible --validate --output-file dist/secagg.cdx.json requirements.lock

help:  ## show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | expand -t 10
