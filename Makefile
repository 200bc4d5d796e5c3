# Every target installs what it needs; a second run starts in seconds.
#   make          build the library, the program and the Python extension in place
#   make demo     train, checkpoint, get killed, resume; then an evolutionary search on one store
#   make test     house rules, C tests, Python tests        make tidy   house rules alone
#   make asan     the C tests under ASan and UBSan          make tsan   under TSan
#   make fuzz     a short campaign (FUZZ_SECONDS a target)  make soak   the long campaigns
#   make bench    the benchmarks                            make wheel  dist/*.whl
#   make test-gpu the tests that need a GPU, and bench/gpu*.py --quick
#   make test-engines  the tests of rados:// and s3:// against a Ceph cluster that it starts (root)
#   make format   format C and Python                       make types  mypy --strict on the package
SHELL := /bin/bash
JOBS ?= $(shell nproc)
WERROR ?= OFF
FUZZ_SECONDS ?= 20
SOAK_SECONDS ?= 600
PYTHON := .venv/bin/python
# The C tests spend most of their time waiting for timeouts and child processes.
CTEST = ctest --test-dir build --output-on-failure -j $$((2 * $(JOBS)))
# A worker runs neighbouring tests, which share fixtures, and takes over tests of others when it is done.
PYTEST = $(PYTHON) -m pytest -n $(JOBS) --dist worksteal
GENERATOR = $(shell command -v ninja >/dev/null && echo -G Ninja)
# With address space randomisation, an image may overlap TSan's shadow memory.
FIXED_MAP = $(shell setarch -R true 2>/dev/null && echo setarch -R)

# $(call configure,folder,options): fast if nothing changed; applies changed options.
configure = mkdir -p $(1) && cmake -S . -B $(1) $(if $(wildcard $(1)/CMakeCache.txt),,$(GENERATOR)) -DLIG_WERROR=$(WERROR) \
	-DPython_EXECUTABLE=$(CURDIR)/$(PYTHON) $(2) > $(1)/configure.log 2>&1 || { cat $(1)/configure.log; exit 1; }; \
	grep -E 'was not found|no archive' $(1)/configure.log || true
# One build at a time per folder; continues after errors, so that one run reports all of them.
compile = flock $(1)/lock cmake --build $(1) -j $(JOBS) $(if $(VERBOSE),-v) \
	$(if $(wildcard $(1)/build.ninja),-- -k 0)

.PHONY: all build setup demo test test-engines engine-tests test-gpu tidy format types ctest pytest asan tsan fuzz soak bench wheel install clean
all: build

setup:
	@tools/bootstrap

build: setup
	@$(call configure,build,-DLIG_DEVELOP=ON)
	@$(call compile,build)

demo: build
	@$(PYTHON) examples/python/demo.py
	@$(PYTHON) examples/python/evolve.py

tidy: build
	@$(PYTHON) tools/tidy.py

format: setup
	@git ls-files -co --exclude-standard '*.c' '*.h' '*.cc' | xargs -r .venv/bin/clang-format -i
	@.venv/bin/ruff format -q .

types: setup
	@$(PYTHON) -m mypy

ctest: build
	@$(CTEST) -LE engines

pytest: build
	@$(PYTEST)

test: build
	@$(PYTHON) tools/tidy.py
	@$(CTEST) -LE engines
	@$(PYTEST)
	@echo "skipped: the tests of rados:// and s3:// against Ceph (as root: make test-engines)"

# Installs packages first, because the engines need their headers. The cluster is stopped when the tests end.
test-engines:
	@tools/engines install
	@$(MAKE) --no-print-directory build
	@tools/engines run $(MAKE) --no-print-directory engine-tests

# With a cluster that is already running: eval "$$(tools/engines env)"; make engine-tests
engine-tests:
	@flock build/lock cmake --build build -j $(JOBS) --target engine_programs
	@ctest --test-dir build -L engines --output-on-failure -j $(JOBS)
	@$(PYTHON) -m pytest -m 'engines and not soak' tests/engines

# Without a .venv, the tree was built elsewhere, and the system's Python is used.
GPU_PYTHON = $(or $(wildcard $(PYTHON)),python3)
GPU_RESULTS = bench/results/gpu
test-gpu: $(if $(wildcard $(PYTHON)),build)
	@$(GPU_PYTHON) -c 'import torch, sys; sys.exit(0 if torch.cuda.is_available() else "no GPU found")'
	@mkdir -p $(GPU_RESULTS); set -o pipefail; PYTHONPATH=python:$$PYTHONPATH $(GPU_PYTHON) -m pytest --noconftest \
		tests/python/frameworks/test_gpu.py tests/mesh/test_mesh_gpu.py tests/params/devices/test_params_gpu.py tests/pipe/test_pipe_gpu.py 2>&1 | tee $(GPU_RESULTS)/tests.txt
	@set -o pipefail; PYTHONPATH=python:$$PYTHONPATH PYTHONUNBUFFERED=1 $(GPU_PYTHON) bench/gpu.py --quick \
		--json $(GPU_RESULTS)/bench.json 2>&1 | tee $(GPU_RESULTS)/bench.txt
	@set -o pipefail; PYTHONPATH=python:$$PYTHONPATH PYTHONUNBUFFERED=1 $(GPU_PYTHON) bench/gpu_params.py --quick \
		--json $(GPU_RESULTS)/params.json 2>&1 | tee $(GPU_RESULTS)/params.txt
	@set -o pipefail; PYTHONPATH=python:$$PYTHONPATH $(GPU_PYTHON) bench/gpu_mesh.py --quick \
		--json $(GPU_RESULTS)/mesh.json 2>&1 | tee $(GPU_RESULTS)/mesh.txt

# The sanitizers guess where libraries loaded later keep thread-local storage. A wrong guess, about once in a
# hundred runs, kills a correct test with a signal.
NO_GUESSES = intercept_tls_get_addr=0

asan: setup
	@$(call configure,build-asan,-DLIG_SANITIZE=address -DLIG_PYTHON=OFF)
	@$(call compile,build-asan)
	@ASAN_OPTIONS=detect_stack_use_after_return=1:$(NO_GUESSES) \
		ctest --test-dir build-asan -LE engines --output-on-failure -j $(JOBS)

tsan: setup
	@$(call configure,build-tsan,-DLIG_SANITIZE=thread -DLIG_PYTHON=OFF)
	@$(call compile,build-tsan)
	@TSAN_OPTIONS=second_deadlock_stack=1:$(NO_GUESSES) $(FIXED_MAP) \
		ctest --test-dir build-tsan -LE engines --output-on-failure -j $(JOBS)

# The inputs of a target, if any, are in tests/corpus/<target>/.
fuzz: setup
	@$(call configure,build-asan,-DLIG_SANITIZE=address -DLIG_PYTHON=OFF)
	@$(call compile,build-asan)
	@set -e; mkdir -p build-asan/found; for target in build-asan/fuzz/*_fuzz; do \
		[ -x "$$target" ] || continue; name=$$(basename $$target); \
		corpus=tests/corpus/$$name; [ -d $$corpus ] || corpus=build-asan/found; \
		echo "$$name: $(FUZZ_SECONDS) s"; \
		$$target -runs=1000000000 -seed=$$RANDOM -max_total_time=$(FUZZ_SECONDS) $$corpus; \
	done

soak: build
	@$(PYTHON) -m pytest -m soak -n 1 --timeout=7200
	@build/tests/store_kill_test soak
	@build/tests/log_model_test soak
	@build/tests/remote_model_test 5000000
	@build/tests/remote_scale_test soak
	@build/tests/store_power_test soak
	@build/tests/store_damage_test soak
	@build/tests/params_long_test soak
	@build/tests/net_conformance_test all soak
	@build/tests/params_storm_test soak
	@build/tests/params_startup_test soak
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=$(SOAK_SECONDS)

bench: build
	@$(PYTHON) bench/run.py

wheel: setup
	@tools/wheel

# make install PREFIX=~/.local: a Release build, without asserts
install: setup
	@$(call configure,build-release,-DCMAKE_BUILD_TYPE=Release -DLIG_TESTS=OFF)
	@$(call compile,build-release)
	@cmake --install build-release --prefix "$(or $(PREFIX),$(error set PREFIX: make install PREFIX=...))"

clean:
	@rm -rf build build-* dist python/ligament/_core.abi3.so python/ligament/lib python/ligament/bin
