# Every verb a newcomer or a maintainer needs. `make help` lists them.
SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
# What is installed, a stamp for each set; each verb brings its own (scripts/install.py).
SERVE := $(VENV)/.serve
EXTRAS := $(VENV)/.extras
FAST := $(VENV)/.test
DEV := $(VENV)/.dev
DOCS := $(VENV)/.docs
CONFIG ?= config/redrive.yaml
FUZZ_SECONDS ?= 60
CHAOS_SECONDS ?= 120
SEED ?= 1
# The tests that `make check` runs; .ci/run has them among all others.
CHECK_TESTS ?= tests/deploy
# Tests wait for processes and clocks longer than they compute: five for two processors keep them busy.
TESTERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1); echo $$((5 * n / 2)))
# Where Python shall write nothing beside its sources: else each process would compile pytest and its plugins anew, which
# are imported before tests/conftest.py sees to this.
COMPILED_ONCE := $(if $(PYTHONDONTWRITEBYTECODE),env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX="$(CURDIR)/.pytest_cache/bytecode" )
# Any Python from 3.11 on; `make PYTHON=/path/to/python …` names one.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && exit; done; \
	uv python find '>=3.11' 2>/dev/null)

.PHONY: help
help: ## list the verbs
	@awk -F':.*## ' '/^[a-z][a-z-]*:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(SERVE): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "redrive needs Python 3.11 or newer: none was found (make PYTHON=/path/to/python …)" >&2; exit 2; }
	@"$(PYTHON)" scripts/install.py $@ serve

# What installs waits for whoever else does, so that -j and a second terminal do no harm.
$(EXTRAS) $(FAST) $(DEV) $(DOCS): $(VENV)/.%: pyproject.toml constraints.txt | $(SERVE)
	@"$(PYTHON)" scripts/install.py $@ $*

.PHONY: venv
venv: $(SERVE) ## install what serving needs into .venv; the command is .venv/bin/redrive

.PHONY: extras
extras: $(EXTRAS) ## install what interception, buckets in Redis and OpenTelemetry need

.PHONY: dev
dev: $(DEV) ## install what tests and checks need

.PHONY: run
run: $(SERVE) ## serve config/redrive.yaml (CONFIG=FILE for another), with a small flaky upstream next to it
	@$(BIN)/python -m proxy.lab.flaky --parent $$$$ & exec $(BIN)/redrive run -c "$(CONFIG)"

.PHONY: core
core: $(DEV) ## compile the core for this checkout (needs a C compiler; REDRIVE_PURE=1 runs Python alone)
	@env -u REDRIVE_PURE $(BIN)/python setup.py -q build_ext --inplace
	@env -u REDRIVE_PURE $(BIN)/redrive --version | grep -q compiled || { echo "nothing was compiled: a C compiler is missing (Debian: gcc)" >&2; exit 2; }

# The core, the vectors, policies, the wire, the configuration, the command line, and the real command in front of real
# upstreams: what needs nothing but Python, and takes two minutes of CPU time.
FAST_TESTS := tests/retry tests/vectors tests/policy tests/wire tests/config tests/cli tests/lab/test_policy_test_files.py \
	tests/docs/test_snippets.py $(addprefix tests/e2e/test_,e2e_retries.py e2e_streaming.py e2e_process.py reload_live.py workers.py exec.py)

.PHONY: test
test: $(if $(wildcard $(DEV)),$(DEV),$(FAST)) ## run the fast tests: two minutes of CPU time, on as many cores as there are (ARGS="-k name" for some)
	@$(COMPILED_ONCE)$(BIN)/python -m pytest -n $(TESTERS) --maxprocesses 8 --dist worksteal -rsfE $(FAST_TESTS) $(ARGS)

.PHONY: test-all
test-all: $(DEV) ## run all tests, as CI does; as root with apt it also installs curl, node, chromium, promtool, redis
	@sh scripts/system-packages
	@$(COMPILED_ONCE)$(BIN)/python -m pytest -n $(TESTERS) --maxprocesses 8 --dist worksteal -rsfE $(ARGS)

.PHONY: stalls
stalls: $(DEV) ## run tests while their processes stand still at random moments (ARGS="tests/lab", SEED=1)
	@REDRIVE_STALLS=$(SEED) $(COMPILED_ONCE)$(BIN)/python -m pytest -n $(TESTERS) --maxprocesses 8 --dist worksteal -rsfE $(ARGS)

.PHONY: fuzz
fuzz: $(DEV) ## search the connection protocols for what breaks their rules (FUZZ_SECONDS=60)
	@$(BIN)/python tests/conformance/fuzz_protocols.py --seconds $(FUZZ_SECONDS) $(ARGS)
	@$(BIN)/python tests/wire/test_wire_compiled.py $(FUZZ_SECONDS) $$$$
	@$(BIN)/python tests/wire/http2/frame_mutants.py --cases 1000000 --seconds $(FUZZ_SECONDS) --seed $$$$
	@sh scripts/asan $(BIN)/python $(FUZZ_SECONDS)

.PHONY: random-play
random-play: $(DEV) ## play whole calls by chance, and show what breaks a law in the smallest script that does (SEEDS=0:20000)
	@$(BIN)/python tests/lab/random_play.py --seeds $(or $(SEEDS),0:20000) $(ARGS)

.PHONY: chaos
chaos: $(DEV) ## calls, faults, reloads, kills; then balance the books (CHAOS_SECONDS=120, CHAOS_SEED=N)
	@$(BIN)/python tests/chaos/chaos_run.py --seconds $(CHAOS_SECONDS) $(if $(CHAOS_SEED),--seed $(CHAOS_SEED)) $(ARGS)

.PHONY: check
check: $(DEV) ## style, types, floors, circles, deployment files, and whether generated files are current
	@git diff --check $$(git hash-object -t tree /dev/null) -- . ':!docs/reference/what-your-app-sees.md'
	@! git ls-files | grep '\.so$$' || { echo "nothing that was compiled belongs into the repository" >&2; exit 1; }
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check -q .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python tools/house.py
	@schema=$$(REDRIVE_PURE=1 $(BIN)/redrive schema) \
		&& { printf '%s\n' "$$schema" | diff -u config/redrive.schema.json - \
		|| { echo "config/redrive.schema.json is not current: make schema" >&2; exit 1; }; }
	@$(BIN)/python tools/third_party.py --check
	@$(if $(CHECK_TESTS),$(BIN)/python -m pytest $(CHECK_TESTS))

.PHONY: format
format: $(DEV) ## format the code
	@$(BIN)/ruff check -q --fix .
	@$(BIN)/ruff format -q .

.PHONY: schema
schema: $(SERVE) ## write config/redrive.schema.json again
	@REDRIVE_PURE=1 $(BIN)/redrive schema > config/redrive.schema.json.new && mv config/redrive.schema.json.new config/redrive.schema.json

.PHONY: third-party
third-party: $(DEV) ## write THIRD_PARTY.md again
	@$(BIN)/python tools/third_party.py --write

.PHONY: lock
lock: $(DEV) ## write the hashed locks of the image again (deploy/image/locks; needs uv)
	@$(BIN)/python tools/lock.py

.PHONY: release-check
release-check: $(DEV) ## build sdist and wheels, install and use them on each Python found (ARGS="--pythons 3.11")
	@$(BIN)/python tools/release_check.py $(ARGS)

.PHONY: helm
helm: $(DEV) ## provide helm for the tests of the chart: from the path, else fetched into build/helm
	@$(BIN)/python tools/helm.py

.PHONY: image-test
image-test: $(DEV) ## build the container image with buildah, run it read-only, send calls through it (needs root)
	@$(BIN)/python tools/image/build.py

.PHONY: bench
bench: $(EXTRAS) ## measure redrive against its peers (ARGS="--rounds 3 --only redrive,envoy"); installs the peers
	@sh bench/install $(BIN)/python
	@$(MAKE) --no-print-directory core || echo "bench: redrive runs in Python alone" >&2
	@$(BIN)/python bench/run.py $(ARGS)

.PHONY: docs
docs: $(DOCS) $(DEV) ## write the generated pages of docs/ again, and build the site from them (build/site)
	@$(BIN)/python tools/modules.py --write
	@$(BIN)/python tools/transitions.py --write
	@$(BIN)/python tools/app_sees.py --write
	@$(BIN)/python tools/config_keys.py --write
	@$(BIN)/python tools/sdk_repeats.py --write
	@$(BIN)/python tools/survives.py --write
	@$(BIN)/python tools/command_pages.py --write
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # -q would leave the warnings uncounted

.PHONY: pictures
pictures: $(DEV) ## photograph the dashboard for its guide again (needs chromium; takes six minutes)
	@$(BIN)/python tools/pictures.py $(ARGS)

.PHONY: clean
clean: ## remove the environment and everything that was generated
	@find proxy -name '*.so' -delete
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
