# Everything is installed into .venv; nothing else on the machine is touched.
PYTHON ?= python3
BIN := .venv/bin
# perfkit itself has no hash, so it is installed apart, and what builds it by hashes before it.
PERFKIT := $(BIN)/pip install -qq --no-deps --no-build-isolation --editable .
PYTEST := $(BIN)/python -m pytest --numprocesses logical --maxprocesses 4 --dist worksteal

PEERS := paddle2 torch-old mxnet

.PHONY: report check test test-slow test-paddle2 peers gpu lab lint bench kills docs constraints clean

## report: measure ResNet-50 on this machine's CPU and write the site, outputs/index.html
report: .venv/cpu
	$(BIN)/perfkit samples
	$(BIN)/perfkit run resnet50 -p device cpu -p protocol quick
	$(BIN)/perfkit report
	@echo "Open outputs/index.html"

## check: lint, and the tests without processes, frameworks and simulations (under a minute)
check: lint .venv/check
	$(PYTEST) --quick -m 'not slow'

## test: all tests except the slow ones, on all cores (three minutes on two)
test: .venv/test
	$(PYTEST) -m 'not slow'

## test-slow: the tests over 3 s each: clusters, kills, JAX (13 minutes on two cores)
test-slow: .venv/test
	$(BIN)/python -m pytest --numprocesses 4 --dist worksteal -m slow

## test-paddle2: the tests of strategies and data-parallel training under Paddle 2.6.2
test-paddle2: .venv-paddle2/test
	.venv-paddle2/bin/python -m pytest tests/test_strategies.py tests/test_ranks.py

## peers: environments for -p python .venv-NAME/bin/python: other versions and frameworks (6 GB)
peers: $(PEERS:%=.venv-%/peer)

## gpu: check this machine's GPU and perfkit on it (installs nothing)
gpu: python = $(if $(filter-out base,$(CONDA_DEFAULT_ENV)),python,$(or \
	$(wildcard $(BIN)/python),$(PYTHON)))
gpu:
	@$(python) -c "import pytest" || { echo "Type: $(python) -m pip install pytest"; exit 1; }
	@$(python) -m pytest -c tests/gpu/pytest.ini --confcutdir tests/gpu tests/gpu

## lab: open JupyterLab on the checkout (localhost only, with a token)
lab: .venv/lab
	$(BIN)/jupyter lab --ip 127.0.0.1 $(shell [ "$$(id -u)" != 0 ] || echo --allow-root) \
		--ServerApp.root_dir="$(CURDIR)" --LabApp.default_url=/lab/tree/notebooks/resnet50.ipynb

## lint: ruff, mypy, nbstripout
lint: .venv/check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/nbstripout --verify notebooks/*.ipynb

## bench: the suite's own figures (about 45 minutes; PAIRS=1 make bench is a trial)
bench: .venv/cpu
	$(BIN)/perfkit samples
	$(BIN)/python benchmarks/figures.py

## kills: kill sweeps of real training with kill -9 and resume them, here and on Slurm (an hour)
kills: .venv/cpu
	$(BIN)/perfkit samples
	$(BIN)/python benchmarks/kills.py 50
	$(BIN)/python benchmarks/kills.py 20 --slurm

## docs: write docs/reference/, docs/result.schema.json and the parameters cells from the code
docs: .venv/cpu
	$(BIN)/python docs/reference.py

## constraints: write the newest versions that pyproject.toml allows, and the hashes of their files
constraints: .venv-uv/bin/uv
	.venv-uv/bin/python requirements/renew.py $<

## clean: remove .venv and the environments of make peers
clean:
	rm -rf .venv .venv-uv $(PEERS:%=.venv-%)

.venv/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
		{ echo "Paddle needs Python 3.11 to 3.13: make PYTHON=python3.11 …"; exit 2; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; \
		echo "No venv module: apt-get install python3-venv"; exit 2; }

.venv-uv/bin/uv:
	$(PYTHON) -m venv .venv-uv
	.venv-uv/bin/pip install -qq uv

.venv/cpu: .venv/bin/pip pyproject.toml requirements/cpu.txt
	@echo "Installing Paddle, DALI and papermill into .venv (about 2.3 GB, a minute or two)"
	$(BIN)/pip install -qq --require-hashes --requirement requirements/cpu.txt
	$(PERFKIT)
	@$(BIN)/python -c 'import ctypes; ctypes.CDLL("libgomp.so.1")' 2>/dev/null || \
		{ echo "Paddle needs libgomp: apt-get install libgomp1"; exit 2; }
	@touch $@

# Only what workers import.
.venv-%/peer: environments/%.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
		{ echo "$< needs Python 3.11: make PYTHON=python3.11 …"; exit 2; }
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/pip install -qq --requirement $<
	@touch $@

.venv-paddle2/test: .venv-paddle2/peer pyproject.toml
	.venv-paddle2/bin/pip install -qq --constraint environments/paddle2.txt \
		--editable '.[report,test]' 'nvidia-dali-cuda120==2.4.0'
	@touch $@

.venv/check: .venv/cpu requirements/check.txt
	$(BIN)/pip install -qq --require-hashes --requirement requirements/check.txt
	@touch $@

# With PyTorch, JAX and TensorFlow, which on PyPI bring CUDA's libraries (10 GB).
.venv/test: .venv/check requirements/test.txt
	$(BIN)/pip install -qq --require-hashes --requirement requirements/test.txt
	@touch $@

# For the accessibility tests of pages in Chromium, which are skipped without it.
.venv/axe:
	npm install --silent --no-audit --no-fund --prefix $@ axe-core@4.10.3

.venv/lab: .venv/cpu requirements/lab.txt
	$(BIN)/pip install -qq --require-hashes --requirement requirements/lab.txt
	@touch $@
