# Every target sets up what it needs: `make demo` and `make test` work on a fresh machine with Python >= 3.11.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.PHONY: demo test test-all check crash lint types bench reproduce-morosini2026 reproduce-tan2026 reproduce-a reproduce-b clean

demo: $(VENV)/user
	$(BIN)/surefoot demo

test: $(VENV)/dev
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

test-all: $(VENV)/dev
	$(BIN)/python -m pytest -n auto --dist worksteal

# Every crash point of every step rule, and kill -9 at random moments; minutes.
crash: $(VENV)/dev
	SUREFOOT_CRASH=all $(BIN)/python -m pytest -n auto --dist worksteal tests/training

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev
	$(BIN)/mypy

check: lint types test

bench: $(VENV)/dev
	$(BIN)/python benchmarks/metrics.py --out results/benchmarks
	$(BIN)/python benchmarks/evaluate.py --out results/benchmarks
	$(BIN)/python benchmarks/study.py --out results/benchmarks
	$(BIN)/python benchmarks/report.py --out results/benchmarks
	$(BIN)/python benchmarks/serve.py --out results/benchmarks
	$(BIN)/python benchmarks/losses.py --out results/benchmarks
	$(BIN)/python benchmarks/data_memory.py --out results/benchmarks
	$(BIN)/python benchmarks/scale.py $(if $(DATA),--data $(DATA)) --out results/benchmarks
	$(BIN)/python benchmarks/shift.py $(if $(IMAGES),--data $(IMAGES)) --out results/benchmarks
	$(BIN)/python benchmarks/posthoc.py $(if $(LOGITS),--data $(LOGITS)) --out results/benchmarks
	$(if $(DATA),$(BIN)/python benchmarks/curvature.py --data $(DATA) --out results/benchmarks,@echo "curvature: make bench DATA=cifar10_5k.npz")
	$(if $(DATA),$(BIN)/python benchmarks/optim.py --data $(DATA) --out results/benchmarks,@echo "optim: make bench DATA=cifar10_5k.npz")
	$(if $(DATA),$(BIN)/python benchmarks/margins.py --data $(DATA) --out results/benchmarks,@echo "margins: make bench DATA=cifar10_5k.npz")
	$(if $(DATA),$(BIN)/python benchmarks/theory.py --data $(DATA) --out results/benchmarks,@echo "theory: make bench DATA=cifar10_5k.npz")
	$(if $(DATA),$(BIN)/python benchmarks/training.py --data $(DATA) --out results/benchmarks,@echo "training: make bench DATA=cifar10_5k.npz")

# Every study of a paper with its tables and figures; make reproduce-tan2026 SCALE=digits takes minutes and fetches nothing.
# The targets reproduce-a and reproduce-b, and the scale cores2, are former names (docs/MIGRATING.md).
SCALE ?= cpu-small
RUNS ?= runs/reproduce-$(SCALE)
reproduce-a: reproduce-morosini2026
reproduce-b: reproduce-tan2026
reproduce-morosini2026 reproduce-tan2026: reproduce-%: $(VENV)/user
	PATH="$(abspath $(BIN)):$$PATH" studies/reproduce.sh $* $(SCALE) $(RUNS) $(or $(DATA),data)

clean:
	rm -rf $(VENV)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# The marks are files inside the environment; a change of the dependencies installs again.
$(VENV)/user: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e .
	touch $@

$(VENV)/dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e '.[dev]'
	touch $(VENV)/user $@
