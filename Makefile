# Every verb a newcomer or a maintainer needs. `make help` lists them.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help
help: ## list the verbs
	@awk -F':.*## ' '/^[a-z][a-z-]*:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev,intercept,redis]'
	@touch $@

.PHONY: venv
venv: $(VENV)/.installed ## make the environment
