# `make demo` and `make test` set everything up by themselves; all they need is make, Python 3.11 or newer, and its venv module.

PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11,$(shell command -v $(p) >/dev/null 2>&1 && $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
VENV := .venv
BIN := $(VENV)/bin
QUIET := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
export ISTHMUS_CACHE_DIR ?= $(CURDIR)/build/cache

.PHONY: test-gpu sanitize-gpu demo test test-simulated test-long test-core test-pythons bench lint clean

demo: $(VENV)/examples.done
	$(BIN)/python examples/digits.py

test: $(VENV)/test.done lint
	$(BIN)/python -m pytest -n 2 -m "not long"
	$(MAKE) test-simulated
	$(MAKE) test-core

# The CUDA path of the same programs, on a GPU that is not there: the interpreter runs the kernels (backends/cuda/simulate.py).
test-simulated: $(VENV)/test.done
	ISTHMUS_GPU=simulated $(BIN)/python -m pytest -q -n 2 -m "not long" --durations=0 --durations-min=5 tests/schedule/test_run.py tests/laws/test_value.py tests/laws/test_bits.py

# The hot files compiled by mypyc, where a C compiler is found; the tests of what they do run again on that build.
test-core: $(VENV)/test.done
	rm -rf build/mypyc build/lib* build/temp* build/bdist*
	$(QUIET) $(BIN)/python -m pip install -q --no-deps --target build/mypyc .
	PYTHONPATH=build/mypyc $(BIN)/python -c "import isthmus, shutil, sys; c = isthmus.stats()['compiled']; print('compiled by mypyc:', c, isthmus.__file__); sys.exit(0 if c or not shutil.which('gcc') else 'there is a C compiler, but mypyc refused: see pip wheel -v .')"
	PYTHONPATH=build/mypyc $(BIN)/python -m pytest -o pythonpath= -q -n 2 -m "not long" --durations=0 --durations-min=5 tests/schedule tests/transforms tests/ops tests/graph tests/backends/cuda/test_simulated.py

# Also compares with torch, which is too large a download for every test run.
test-long: $(VENV)/test.done $(VENV)/bench.done
	$(BIN)/python -m pytest -n 2 -m long

test-pythons:
	for p in python3.12 python3.13; do if command -v $$p >/dev/null; then $(MAKE) test VENV=.venv-$$p PYTHON=$$p || exit 1; else echo "$$p is not installed: skipped"; fi; done

# On a machine with an NVIDIA GPU: laws, forms of kernels, products, scatters, copies, the case bank, with the interpreter as it
# is (no venv, no network): make test-gpu PYTHON=python3. The report is printed, and kept in build/gpu.
test-gpu:
	$(PYTHON) tests/gpu/run.py

# compute-sanitizer on the kernels written by hand.
sanitize-gpu:
	@command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not on PATH; it comes with NVIDIA's CUDA toolkit"; exit 1; }
	compute-sanitizer --tool memcheck $(PYTHON) tests/gpu/sanitize.py
	compute-sanitizer --tool racecheck $(PYTHON) tests/gpu/sanitize.py

lint: $(VENV)/test.done
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/bench.done
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(BIN)/python benchmarks/run.py

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "isthmus needs Python 3.11 or newer; on Debian and Ubuntu: apt install python3 python3-venv"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) lacks its venv module; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/%.done: $(BIN)/python pyproject.toml
	ISTHMUS_MYPYC=0 $(QUIET) $(BIN)/python -m pip install -q -e '.[$*]'
	@touch $@

clean:
	rm -rf build demo $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
