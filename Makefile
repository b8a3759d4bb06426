# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEMO   := $(VENV)/.demo

.PHONY: help demo test test-servers test-browser test-research test-all check format bench bench-train bench-index bench-tasks bench-applications bench-serve bench-plan bench-sharding clean

help:
	@echo "make demo      the search page over a small Korean/English sample, in the browser"
	@echo "make test      the tests (a few minutes on two cores)"
	@echo "make test-servers  the tests that start PostgreSQL, Milvus and Ray"
	@echo "make test-browser  the tests of the pages in Chromium; installs it with apt where that is possible"
	@echo "make test-research  the tests of models/ko_en and research/"
	@echo "make test-all  all of these and the slow tests, with new random examples"
	@echo "make check     ruff, mypy --strict, the import layers"
	@echo "make format    ruff, applied"
	@echo "make bench     Munjang beside sentence-transformers; writes docs/benchmarks.md"
	@echo "make bench-train  the same for training (a GPU is worth it)"
	@echo "make bench-index  the index beside plain FAISS"
	@echo "make bench-tasks  mining and communities beside sentence-transformers"
	@echo "make bench-applications DATA=DIR  mining, clustering, classification beside scikit-learn; writes their pages"
	@echo "make bench-serve  the service beside a plain sentence-transformers one"
	@echo "make bench-plan  what munjang plan predicts beside what happens"
	@echo "make bench-sharding  two encoding workers beside one"

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=24"
	$(BIN)/python -m pip install --quiet -c constraints.txt torch numpy
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $(STAMP) $(DEMO)

# What the page needs; the tests need ten times as much.
$(DEMO): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=24"
	$(BIN)/python -m pip install --quiet -c constraints.txt torch numpy
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[serve,search,korean,tasks]"
	touch $(DEMO)

demo: $(DEMO)
	$(BIN)/munjang demo

# One thread for each of the two workers: two that share two cores wait for each other (three times the CPU time).
test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m "not slow and not gpu and not server and not browser and not research" -n 2 --dist loadfile

# One after another: a server beside a server on two cores is late with everything.
test-servers: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m "server and not slow"

# CI=true: fail instead of skipping where there is no Chromium.
test-browser: $(STAMP)
	.ci/chromium
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m "browser and not slow" -n 2 --dist loadfile

# How the bundled models were made (models/ko_en_0_1) and the paper's studies (research).
test-research: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m "not gpu" -n 2 --dist loadfile tests/models tests/studies

test-all: $(STAMP)
	OMP_NUM_THREADS=1 MUNJANG_SEARCH=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m benchmarks.encode --write docs/benchmarks.md

bench-train: $(STAMP)
	$(BIN)/python -m benchmarks.train --write docs/benchmarks.md

bench-index: $(STAMP)
	$(BIN)/python -m benchmarks.index --write docs/benchmarks.md

bench-tasks: $(STAMP)
	$(BIN)/python -m benchmarks.tasks mining
	$(BIN)/python -m benchmarks.tasks communities

# DATA: the folder of the public sets.
bench-applications: $(STAMP)
	$(BIN)/python -m benchmarks.applications --data $(DATA) --write

bench-serve: $(STAMP)
	$(BIN)/python -m benchmarks.serve

bench-plan: $(STAMP)
	$(BIN)/python -m benchmarks.planning

bench-sharding: $(STAMP)
	$(BIN)/python -m benchmarks.sharding

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
