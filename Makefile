# make demo    set up everything, then find the animals on an image with YOLOv2 in INT8
# make test    set up everything, then run the tests, on all cores; docs/explanation/testing.md
# make test-slow        what takes long, and the tests of random examples with new ones; the seed is printed
# make test-isa         the tests of numbers under each instruction set that this processor can pretend to be limited to
# make test-surroundings    on one core, in other languages and time zones, without a home folder, in a path like "ä b"
# make test-sanitizers  the native part and plugins in C++, compiled with g++'s sanitizers of addresses and undefined behaviour
# make mutation    errors put into the code, one at a time, which the tests should find; SAMPLE=200 SEED=1 ONLY="passes vision"
# make native  plugins in C++: what joins them and Python, and the package's own layers
# make wheels  dist/: the source archive, the wheel of pure Python, and the wheel of this Python with the native part
# make lint    style and types        make bench   the benchmarks, with table and chart in docs/
# make docs    the site of docs/ in build/site, which needs no server; ends with an error where a link leads nowhere, or a notebook fails
# make constraints      .ci/constraints.txt: the versions that .venv has, which .ci/run installs
# make test-tensorrt    plugins in the plugin registries of TensorRT 10 and 11; with TENSORRT_INCLUDE=/path/to/10:/path/to/11,
#                       the headers that NVIDIA publishes, driven from C++ too; networks in the parser and builder of TensorRT for RTX
# make test-triton      exported models in a real Triton server, on the CPU, and its answers beside ours
# make test-protocol    KServe's client and schemathesis against the server; OPEN_INFERENCE_REST=/path/to/open_inference_rest.yaml
SHELL := /bin/bash
unexport PYTHONDONTWRITEBYTECODE  # hundreds of tests start Python
unexport PYTHONUNBUFFERED  # it would hide what is printed too late into a pipe
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal
READY := $(VENV)/.ready
# scikit-image brings the first two; the third is Debian's, where its package darknet is installed
IMAGES ?= chelsea astronaut $(wildcard /usr/share/darknet/data/dog.jpg)

# how long `make fuzz` takes
SECONDS ?= 60

# NVIDIA's plugin registry as it is on PyPI: packages that run engines, about 100 MB each, one environment per version
TENSORRT ?= 10.16.1.11 11.4.0.106
TENSORRT_READY := $(TENSORRT:%=$(VENV)-tensorrt-%/.ready)
RTX ?= 1.7.1.116

.PHONY: demo test docs native wheels test-minimal test-tensorrt test-triton test-protocol tensorrt test-slow fuzz test-isa test-surroundings test-sanitizers lint bench clean mutation constraints
.DELETE_ON_ERROR:

demo: $(READY)
	$(BIN)/python samples/yolov2.py --int8 --output predictions.png $(IMAGES)

test: $(READY)
	@$(BIN)/python -m pytrtplugins.native --if-possible
	@command -v cc >/dev/null || echo "No C compiler: comparisons with darknet are skipped. Do: apt-get install g++"
	@test -e /usr/lib/darknet/libdarknet.so || echo "No libdarknet: comparisons with it are skipped. Do: apt-get install darknet"
	$(PYTEST) -m "not slow" $(OPTIONS)

docs: $(READY)
	@$(BIN)/python -c 'import mkdocs, mkdocstrings, nbclient, ipykernel' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --config-file .ci/docs/mkdocs.yml
	@echo "Open build/site/index.html"

native: $(READY)
	$(BIN)/python -m pytrtplugins.native

wheels: $(READY)
	$(BIN)/python .ci/wheels.py
	$(BIN)/python .ci/wheels.py --native

test-minimal:
	rm -rf build/minimal && $(PYTHON) -m venv build/minimal
	build/minimal/bin/python -m pip install --quiet --disable-pip-version-check .
	cd build && minimal/bin/python -W error ../tests/minimal_install.py

test-tensorrt: $(TENSORRT_READY) $(VENV)-rtx/.ready
	@for version in $(TENSORRT); do for substrate in lean stubs; do \
	  echo "TensorRT $$version, $$substrate:"; \
	  TENSORRT_SUBSTRATE=$$substrate $(VENV)-tensorrt-$$version/bin/python -m pytest -q tests/engines/tensorrt || exit 1; \
	done; \
	  $(VENV)-tensorrt-$$version/bin/python -m pytest -q tests/driver || exit 1; \
	done
	@echo "TensorRT for RTX $(RTX):"
	TENSORRT_SUBSTRATE=rtx $(VENV)-rtx/bin/python -m pytest -q tests/engines/tensorrt/test_rtx*.py tests/engines/tensorrt/test_onnx_file.py

test-triton: $(READY) $(VENV)-triton/.ready
	TRITON_VENV=$(VENV)-triton $(BIN)/python -m pytest -q tests/export/test_triton_server.py tests/serving/protocol/test_triton.py

test-protocol: $(READY) $(VENV)-kserve/.ready $(VENV)-schemathesis/.ready
	KSERVE_VENV=$(VENV)-kserve SCHEMATHESIS=$(abspath $(VENV)-schemathesis/bin/schemathesis) \
		$(BIN)/python -m pytest -q tests/serving/protocol/test_kserve.py tests/serving/protocol/test_schemas.py

tensorrt: $(TENSORRT_READY) $(VENV)-rtx/.ready

test-slow: $(READY)
	HYPOTHESIS_PROFILE=randomized $(PYTEST) -m "slow or hypothesis" $(OPTIONS)

test-isa: $(READY)
	$(BIN)/python -m tests.matrix isa $(OPTIONS)

test-surroundings: $(READY)
	$(BIN)/python -m tests.matrix surroundings

# without what runs OpenVINO: its TBB loads libraries as AddressSanitizer does not allow (RTLD_DEEPBIND)
SANITIZE := -fsanitize=address,undefined -fno-omit-frame-pointer
test-sanitizers: $(READY)
	$(BIN)/cmake -S . -B build/sanitized -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS="$(SANITIZE)" >/dev/null
	$(BIN)/cmake --build build/sanitized --target _native
	CXXFLAGS="$(SANITIZE)" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1 PYTHONMALLOC=malloc \
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so)" $(BIN)/python -m pytest -q \
	-p no:faulthandler -p tests.sanitized -k "not check_plugin" $(OPTIONS) \
	tests/native/test_load_library.py tests/native/test_as_native.py tests/engines/cuda/run/test_upload.py

# every parser, from the inputs in tests/fuzz/corpus on; SECONDS of all together
fuzz: $(READY)
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest --collect-only -qq >/dev/null  # names that tests take from each other

constraints: $(READY)
	$(BIN)/python .ci/constraints.py

mutation: $(READY)
	$(BIN)/python -m tests.mutation $(ONLY) --sample $(or $(SAMPLE),200) --seed $(or $(SEED),1) $(OPTIONS)

bench: $(READY)
	$(BIN)/python -m benchmarks

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed, found: $$($(PYTHON) --version 2>&1). Do: apt-get install python3, or make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "Python's venv module is missing. Do: apt-get install python3-venv"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(VENV)-tensorrt-%/.ready:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check numpy onnx onnx-ir pyyaml typer rich pytest pytest-timeout hypothesis tensorrt-lean-cu13==$*
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps tensorrt-cu13-bindings==$*
	@touch $@

# a real parser and builder, which need no GPU (110 MB)
$(VENV)-rtx/.ready:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check numpy onnx onnx-ir pyyaml typer rich pytest pytest-timeout hypothesis tensorrt-rtx-cu13-libs==$(RTX) tensorrt-rtx-cu13-bindings==$(RTX)
	@touch $@

# Triton's core is in the wheel of PyTriton (55 MB); its Python backend wants NumPy 1
$(VENV)-triton/.ready:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check 'numpy<2' onnxruntime
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps nvidia-pytriton
	@touch $@

$(VENV)-kserve/.ready $(VENV)-schemathesis/.ready: $(VENV)-%/.ready:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check $*
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-tensorrt-* $(VENV)-rtx $(VENV)-triton $(VENV)-kserve $(VENV)-schemathesis build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
