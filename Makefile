# make demo and make test set up everything they need, in .venv; nothing else on the machine is touched.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt
MODEL := examples/models/tiny-gpt.onnx
WIDE := build/tiny-gpt.wide.onnx
export OMP_NUM_THREADS ?= 1
unexport PYTHONDONTWRITEBYTECODE # every process that a test starts would compile growc again

# Runs tests, and writes down how many passed.
SUITE := $(PYTHON) tests/full_suite.py

.PHONY: site demo examples plans test check zoo starters coverage agreement budgets cov soak cluster hostile faults fuzz editor corpus libraries pages pythons oldest bench models fmt clean

demo: .venv/run.stamp
	@mkdir -p build
	$(BIN)/growc apply examples/demo.grow $(MODEL) -o $(WIDE)
	@echo
	@echo "What was applied is examples/demo.grow; how $(WIDE) was made stands in build/tiny-gpt.wide.grown.json."
	@echo "Look next at"
	@echo
	@echo "  $(BIN)/growc inspect $(WIDE)"
	@echo "      the axes that it has now"
	@echo "  $(BIN)/growc explain $(MODEL) hidden"
	@echo "      why these weights change together"
	@echo "  $(BIN)/growc plan -e 'widen hidden to 128 with neighbor copy' $(MODEL)"
	@echo "      a change that is not exact, where, and what would be"

examples: .venv/run.stamp
	@mkdir -p build/examples
	@sed -n 's/^#   growc apply //p' examples/[0-9]*/recipe.grow | while read -r recipe model; do \
	  echo "== $$recipe"; \
	  $(BIN)/growc apply $$recipe $$model --force -o build/examples/$$(basename $$(dirname $$recipe)).onnx || exit 1; \
	done

plans: .venv/dev.stamp
	$(BIN)/python -m pytest -q tests/examples/test_examples.py --update-golden

test: check
	$(BIN)/python -m pytest -q -n 2 -m "not soak"

check: .venv/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

zoo: .venv/dev.stamp
	$(BIN)/python tests/zoo/build.py build/zoo

starters: zoo
	$(BIN)/python tests/starters/starter_sweep.py --jobs 2 --json docs/starters.json

coverage: zoo
	$(BIN)/python benchmarks/coverage.py build/zoo --jobs 2
	$(BIN)/python tests/checkpoint/sweep.py --json build/checkpoints.json --page docs/checkpoints.md

agreement: zoo
	$(BIN)/python tests/torch/agreement.py --page docs/agreement.md

site: .venv/dev.stamp
	$(BIN)/mkdocs build --strict
	@echo "The first page is build/site/index.html."

budgets: zoo
	$(BIN)/python tests/budgets/budgets.py build/zoo --json docs/budgets.json --page docs/budgets.md

cov: .venv/dev.stamp
	$(BIN)/python -m pytest -q -n 2 -m "not soak" --cov --cov-report=term-missing:skip-covered

soak: .venv/dev.stamp
	$(SUITE) soak --json docs/suites.json $(BIN)/python -q -n 2 -m soak

cluster: .venv/dev.stamp
	@mkdir -p build
	PYTHONPATH=tests $(BIN)/python tests/cluster/full.py --json docs/cluster.json

hostile: .venv/dev.stamp
	@mkdir -p build
	$(BIN)/python tests/fuzz/hostile/run.py --graphs 0 8000 --modules 0 2000 --jobs 2 --json build/hostile.json \
	  --record docs/hostile.json

faults: .venv/dev.stamp
	$(BIN)/python tests/faults/run.py --json docs/faults.json

fuzz: .venv/dev.stamp
	$(BIN)/python tests/fuzz/fuzz.py --corpus --json docs/fuzz.json

editor: .venv/dev.stamp
	PYTHONPATH=tests/editor $(BIN)/python tests/editor/edits.py --edits 10000
	PYTHONPATH=tests/editor $(BIN)/python benchmarks/editor.py --json docs/editor.json

corpus: zoo
	$(BIN)/python tests/corpus/corpus.py build/zoo --jobs 2

libraries: build/libraries.stamp
	PYTHONPATH=build/libraries $(BIN)/python benchmarks/libraries/run.py --json docs/libraries.json
	PYTHONPATH=build/libraries $(BIN)/python benchmarks/libraries/pruning.py --json docs/pruning.json
	$(BIN)/python benchmarks/libraries/page.py docs/libraries.json --pruned docs/pruning.json

pages: build/pages.stamp
	PYTHONPATH=build/pages $(SUITE) pages --json docs/suites.json $(BIN)/python -q tests/pages -m ""

bench: build/peers.stamp build/libraries.stamp
	$(BIN)/python benchmarks/speed/run.py --peers build/peers/bin/python --json docs/performance.json
	$(BIN)/python benchmarks/speed/page.py docs/performance.json

# The tests that need no torch, with other Pythons, and with the oldest packages that pyproject.toml names.
TESTING := pytest pytest-xdist hypothesis ipykernel nbclient pygls scikit-learn
FOLDERS := algebra cli control examples faults language layers norms operators plan types verify
ALONE := -q -n 2 -m "not soak" $(addprefix tests/,$(FOLDERS))

pythons:
	for version in 3.12 3.13; do \
	  python$$version -m venv --clear build/python$$version && \
	  build/python$$version/bin/python -m pip install --quiet -c constraints.txt -e . $(TESTING) && \
	  $(SUITE) "Python $$version" --json docs/suites.json build/python$$version/bin/python $(ALONE) || exit 1; \
	done

oldest:
	$(PYTHON) -m venv --clear build/oldest
	$(PYTHON) -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" \
	  | sed 's/>=/==/' > build/oldest.txt
	build/oldest/bin/python -m pip install --quiet -r build/oldest.txt $(TESTING)
	build/oldest/bin/python -m pip install --quiet --no-deps -e .
	$(SUITE) "oldest packages" --json docs/suites.json build/oldest/bin/python $(ALONE)

build/peers.stamp: .venv/dev.stamp benchmarks/speed/requirements.txt
	rm -rf build/peers
	$(PYTHON) -m venv build/peers
	build/peers/bin/python -m pip --disable-pip-version-check install --quiet -r benchmarks/speed/requirements.txt
	touch $@

build/pages.stamp: .venv/dev.stamp tests/pages/requirements.txt
	rm -rf build/pages
	$(PIP) --no-deps --target build/pages -r tests/pages/requirements.txt
	@touch $@

build/libraries.stamp: .venv/dev.stamp benchmarks/libraries/requirements.txt
	rm -rf build/libraries
	$(PIP) --no-deps --target build/libraries -r benchmarks/libraries/requirements.txt
	@touch $@

models: .venv/dev.stamp
	$(BIN)/python examples/make_models.py --out build/models --anon

fmt: .venv/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov
	find growc grammar passes examples tests benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

.venv/python.stamp:
	@echo "setting up .venv, once"
	$(PYTHON) -m venv --clear .venv
	@touch $@

.venv/run.stamp: .venv/python.stamp pyproject.toml constraints.txt
	$(PIP) -e .
	@touch $@

.venv/dev.stamp: .venv/python.stamp pyproject.toml constraints.txt
	$(PIP) -e '.[dev,pretrained,torch,train]'
	@touch .venv/run.stamp $@
