# headrace: every command a developer or an operator needs. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
JOBS ?= 3
# Empty is off. Tests start hundreds of processes: without the compiled files each of them would compile what it loads.
export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(BIN)/python -m pytest
HOT_SUITES := tests/unit/log tests/unit/records tests/unit/doors tests/unit/blob tests/unit/broker tests/unit/pipeline/decoder \
  tests/conformance/kafka/test_produce.py tests/conformance/kafka/test_fetch.py tests/conformance/kafka/test_idempotence.py \
  tests/conformance/kafka/test_hostile_batches.py

.DEFAULT_GOAL := help
.PHONY: help setup run test slow again shuffled pure kernels sanitized fuzz-kernels fuzz-strangers mutants check fmt gen lock unit conformance interop same-as-kafka access-as-kafka chaos chaos-cluster simulate simulate-mutants damage misbehaving-store retention-soak pipeline pipeline-kills pipeline-soak bench quic-bars hostile-bars access-bars console-bars coverage coverage-of-spec clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

# --no-deps: the lock is complete. Were pip to resolve it, a newer release of `package[extra]` than the pinned one would stop it.
$(STAMP): requirements.lock pyproject.toml setup.py $(wildcard src/headrace/*.h src/headrace/*/*.[ch] src/headrace/*/*/*.[ch])
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(STAMP) ## the virtual environment and pinned dependencies

run: setup ## one node with every door, on the embedded default
	$(BIN)/headrace up

test: setup ## the test suite, within 15 minutes on two cores; `make slow` has the rest
	$(PYTEST) tests -m "not slow and not long" -n $(JOBS) --dist loadgroup -p no:randomly -r fEs --durations=15

slow: setup ## tests that take too long for `make test`: more kills, power cuts, Spark, Java and object stores
	$(PYTEST) tests -m "slow and not long" -n $(JOBS) --dist loadgroup -p no:randomly -r fEs --durations=15

again: setup ## what failed in the last runs, once more and with nothing beside it
	$(PYTEST) tests -m "not long" --last-failed --last-failed-no-failures none -p no:randomly -r fEs

shuffled: setup ## the same in random order, which finds tests that lean on each other
	$(PYTEST) tests -m "not long" -n $(JOBS) --dist loadgroup -r fEs

pure: setup ## the hot suites without the C kernels
	HEADRACE_PURE=1 $(PYTEST) $(HOT_SUITES) -p no:randomly

kernels: setup ## fails unless every C kernel is built from its present source
	$(BIN)/python tools/kernels.py built

sanitized: setup ## the kernels' tests on kernels built with the address and undefined behaviour sanitizers
	$(BIN)/python tools/kernels.py sanitized

fuzz-kernels: setup ## strangers' bytes for every kernel that reads them, a minute each, with the sanitizers
	HEADRACE_FUZZ_SECONDS=60 $(BIN)/python tools/kernels.py sanitized tests/fuzz/test_kernels.py

fuzz-strangers: setup ## ten million frames before any login (FRAMES=), with the sanitizers; writes docs/benchmarks/strangers.md (long)
	HEADRACE_FUZZ_FRAMES=$(or $(FRAMES),10000000) HEADRACE_FUZZ_REPORT=$(CURDIR)/docs/benchmarks/strangers.md \
	  nice -n 10 $(BIN)/python tools/kernels.py sanitized tests/fuzz/test_strangers_in_bulk.py -s

mutants: setup ## takes one check after the other out of the kernels; a test must notice each (long)
	nice -n 10 $(BIN)/python tools/kernels.py mutants

unit: setup ## unit and contract tests only
	$(PYTEST) tests/unit tests/contracts

conformance: setup ## every outside contract, by requirement id
	$(PYTEST) tests/conformance

interop: setup ## real clients against a real node
	$(PYTEST) tests/interop -r fEs

same-as-kafka: setup ## random requests to a real Apache Kafka and to a node; what is not listed as different is the same (long)
	SAME_AS_KAFKA_SEEDS=$${SAME_AS_KAFKA_SEEDS:-20} nice -n 10 $(PYTEST) tests/interop/test_same_as_kafka.py -r fEs -s

access-as-kafka: setup ## random requests under random access rules to a real Apache Kafka and to a node; SEEDS of them (long)
	ACCESS_AS_KAFKA_SEEDS=$(or $(SEEDS),20) nice -n 10 $(PYTEST) tests/interop/test_access_against_kafka.py -p no:randomly -r fEs -s

chaos: setup ## kill -9, pauses, full disks, power cuts: the long ones too
	$(PYTEST) tests/chaos -r fEs

chaos-cluster: setup ## three machines in network namespaces: cuts, kills, pauses, etcd and disks taken away; ROUNDS of each; writes docs/benchmarks/cluster-faults.md (long)
	HEADRACE_TEST_ROUNDS=$(or $(ROUNDS),10) HEADRACE_TEST_PAGE=$(CURDIR)/docs/benchmarks/cluster-faults.md \
	  nice -n 10 $(PYTEST) tests/chaos/cluster -m long -p no:randomly -r fEs -s; status=$$?; cat docs/benchmarks/cluster-faults.md; exit $$status

simulate: setup ## the real node under virtual time, with faults: many seeds (SEEDS=1000), or one with its trace (SEED=7); three brokers with SHARED=1
	nice -n 10 $(BIN)/python -m tests.simulation $(if $(SHARED),--shared) $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),200))

simulate-mutants: setup ## nodes with one rule broken each: the seeds must notice every one (long)
	nice -n 10 $(BIN)/python -m tests.simulation --mutant all --seeds $(or $(SEEDS),2000)

misbehaving-store: setup ## a store that misbehaves by a script, for hours of virtual time (long)
	nice -n 10 $(PYTEST) tests/chaos/tier/test_misbehaving_store.py -m long -r fEs -s

retention-soak: setup ## hours of virtual time with mixed retentions: how much of the bucket is dead, what freeing it copies (long)
	nice -n 10 $(PYTEST) tests/unit/tier/test_dead_bytes.py -m long -r fEs -s

damage: setup ## every file of a node damaged in every way, with a judge (long)
	nice -n 10 $(PYTEST) tests/chaos/test_damage.py -m long -r fEs -s

pipeline: setup ## the Spark pipeline's tests
	$(PYTEST) tests/pipeline -r fEs

pipeline-kills: setup ## kill -9 of driver, JVM and broker in the midst of micro-batches, with a checker (long)
	nice -n 10 $(PYTEST) tests/pipeline/test_kills.py -m long -r fEs -s

pipeline-soak: setup ## a thousand micro-batches; writes docs/benchmarks/pipeline-soak.md (long)
	nice -n 10 $(PYTEST) tests/pipeline/test_soak.py -m long -r fEs

check: setup ## format, lint, types, import contracts, generated code
	$(BIN)/ruff format --check src tests tools setup.py
	$(BIN)/ruff check src tests tools setup.py
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/generate.py --check

fmt: setup ## format and fix
	$(BIN)/ruff format src tests tools setup.py
	$(BIN)/ruff check --fix src tests tools setup.py

gen: setup ## regenerate wire messages, protobuf code and reference docs
	$(BIN)/python tools/generate.py

lock: setup ## resolve pyproject.toml into requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra dev --generate-hashes --no-header --no-emit-index-url \
	  --python-version 3.11 --quiet --output-file requirements.lock

bench: setup ## every benchmark beside Apache Kafka; writes docs/benchmarks.md
	$(BIN)/headrace bench all --against kafka

quic-bars: setup ## QUIC beside TCP, on a good line and a bad one (long; the bad line needs root)
	nice -n 10 $(PYTEST) tests/bench/test_quic_bars.py -m long -p no:randomly -s

hostile-bars: setup ## what a good client notices of hostile Wasm modules and hostile datagrams (long)
	nice -n 10 $(PYTEST) tests/bench/test_hostile_bars.py -m long -p no:randomly -s

access-bars: setup ## what access rules, TLS (beside Apache Kafka) and logins cost; writes docs/benchmarks/access.md (long)
	HEADRACE_TEST_REPORT=docs/benchmarks/access.md $(PYTEST) tests/bench/test_access_bars.py -m long -p no:randomly -s

console-bars: setup ## what the console costs a node with 10,000 partitions: pages, first paint, search, a producer beside people (long)
	nice -n 10 $(PYTEST) tests/bench/test_console_bars.py -m long -p no:randomly -s

coverage: setup ## which lines of the product the unit and contract tests run
	$(PYTEST) tests/unit tests/contracts tests/test_architecture.py -p no:randomly --cov=headrace --cov-report=term:skip-covered

coverage-of-spec: setup ## which acceptance lines no passing test proves
	$(BIN)/python tools/coverage_of_spec.py

clean: ## remove what was built, keep data
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis
