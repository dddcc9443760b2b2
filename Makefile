# The commands of the project. Each sets up what it needs in .venv: a machine with Python (venv and pip included) and make will do.

PYTHON ?= python3
VENV ?= .venv
# Processes of tests: one more than two processors, because many tests wait.
WORKERS ?= 3
# More options for pytest; SUITE=all adds the heavy tests, as .ci/run does.
ARGS ?=
SUITE ?= light
SUITE_light := -m "not heavy" --hypothesis-profile=light
SUITE_all := -m ""
RUN := $(VENV)/bin/python
# Tests start many processes, which take four times as long where modules are compiled again.
export PYTHONDONTWRITEBYTECODE :=
# What is installed: the package alone, with the extra 'docs', with 'test', with 'bench', with 'fuzz'.
BASE := $(VENV)/.base
DOCS := $(VENV)/.docs
READY := $(VENV)/.ready
PEERS := $(VENV)/.peers
FUZZER := $(VENV)/.fuzzer
# What `make fuzz` runs, and for how long.
TARGET ?= index
MINUTES ?= 10
# The interpreters of `make test-matrix`.
PYTHONS ?= python3.11 python3.12 python3.13 python3.14

.PHONY: help demo test test-quick test-lowest test-matrix docs versions bench paper fuzz clean

help:
	@echo "make demo    show what aggarray does, on the sample data"
	@echo "make test    style, types, tests; SUITE=all adds the heavy ones"
	@echo "make test-quick    tests of a second or less each, for the loop of work: ARGS='-x -k tiles'"
	@echo "make test-lowest, test-matrix    the tests with the lowest versions of dependencies, with each interpreter"
	@echo "make docs    the documentation, in build/docs"
	@echo "make versions  the documentation of every tag, in build/versions"
	@echo "make bench   measure"
	@echo "make paper   the figures and numbers of the paper; the paper as HTML where there is pandoc"
	@echo "make fuzz    feed a reader with odd input: TARGET=index MINUTES=10"
	@echo "make clean   remove .venv and everything made by the tools"

demo: $(BASE)
	$(RUN) -m sample_data.demo

# pytest comes last: its summary is the last line.
test: $(READY)
	$(if $(SUITE_$(SUITE)),,$(error SUITE=$(SUITE): give light or all))
	$(RUN) -m ruff check .
	$(RUN) -m mypy
	$(RUN) -m pytest -n $(WORKERS) $(SUITE_$(SUITE)) $(ARGS)

# Only the files of quick tests are imported.
test-quick: $(READY)
	$(RUN) -m pytest -n $(WORKERS) -m quick --hypothesis-profile=light $(ARGS) $$(grep -rl --include='test_*.py' 'mark\.quick' tests)

# A warning is an error, a link that leads nowhere too.
docs: $(DOCS)
	$(RUN) -m sphinx -b html -n -W --keep-going -q docs build/docs
	@echo "build/docs/index.html"

# What is built already stays: remove a folder to build its tag again.
versions: $(DOCS)
	$(RUN) docs/versions.py build/versions
	@echo "build/versions/index.html"

bench: $(PEERS)
	$(RUN) -m tests.bench

paper: $(READY)
	$(RUN) -m paper.figures
	@if command -v pandoc >/dev/null; then mkdir -p build && cd paper && \
	  pandoc paper.md --standalone --citeproc --embed-resources -o ../build/paper.html && echo "build/paper.html"; \
	else echo "no pandoc: the paper is not converted"; fi

fuzz: $(FUZZER)
	$(RUN) -m tests.fuzz $(TARGET) --minutes $(MINUTES)

# Install the package with some extras, and make the environment where there is none.
# Tools run as modules of the interpreter, never as scripts: scripts hold absolute paths and break when the folder moves.
define INSTALL
	@$(PYTHON) -c 'import sys; sys.exit("aggarray needs Python 3.11 or newer: make PYTHON=python3.12 ..." if sys.version_info < (3, 11) else 0)'
	@$(RUN) -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable
endef

$(BASE): pyproject.toml
	$(INSTALL) .
	@touch $@

$(DOCS): pyproject.toml
	$(INSTALL) '.[docs]'
	@touch $(BASE) $@

$(READY): pyproject.toml
	$(INSTALL) '.[test]'
	@touch $(BASE) $(DOCS) $@

# The lowest versions of dependencies that pyproject.toml admits; tests of other libraries than these skip.
test-lowest:
	$(PYTHON) -m venv --clear build/lowest
	build/lowest/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r tests/lowest/requirements.txt --editable .
	build/lowest/bin/python -m pytest -n $(WORKERS) --ignore tests/project

# `make test` with every interpreter that is there.
test-matrix:
	@for python in $(PYTHONS); do \
	    if $$python -c '' 2> /dev/null; then $(MAKE) test PYTHON=$$python VENV=build/$$python || exit 1; \
	    else echo "$$python is not there" >&2; fi; done

# What cannot be installed here is left out of the benchmarks, which say so.
$(PEERS): $(READY)
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[bench]' && touch $@ || echo "some peers are missing" >&2

# It needs a compiler where there is no wheel of it.
$(FUZZER): $(READY)
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
