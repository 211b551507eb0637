# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Every target does its own set-up: it makes a virtual environment in .venv and
# installs lagom_xla into it, editable, with the extras that the target uses. It
# uses the Python that .venv already has, else python3. PYTHON=python3.12 selects
# another one, and VENV=.venv-3.12 another environment.

VENV ?= .venv
PYTHON ?= $(firstword $(wildcard $(VENV)/bin/python) python3)
PYTHON_VERSION := $(or $(shell $(PYTHON) -c \
  'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null),-unknown)
BIN := $(VENV)/bin
INSTALLED := $(VENV)/python$(PYTHON_VERSION)-with

.DELETE_ON_ERROR:
.PRECIOUS: $(INSTALLED)-%
.PHONY: help tune test lint format docs proto clean

help:
	@echo "make tune    tune the Llama example for eight H100s, into plan/"
	@echo "make test    run every test"
	@echo "make lint    check style, types and imports"
	@echo "make format  format all files"
	@echo "make docs    build the site from docs/ into build/docs"
	@echo "make proto   regenerate passes/hlo_pb2.py from passes/hlo.proto"
	@echo "make clean   remove .venv*, builds and caches (plan/ stays)"

tune: $(INSTALLED)-aot,examples,report
	@$(BIN)/lagom-xla tune examples/llama/train.py:train_step \
	  --cluster=1x8xh100 --out=plan

test: $(INSTALLED)-aot,test
	@$(BIN)/pytest --quiet --numprocesses=3 --dist=loadfile \
	  --no-loadscope-reorder

lint: $(INSTALLED)-aot,test,dev docs
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/pyrefly check
	@$(BIN)/lint-imports --no-logo --no-cache

format: $(INSTALLED)-aot,test,dev
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

# Any problem with a page, a link or a docstring is an error. All pages are read
# anew, because Sphinx reports a problem only when it reads the page.
docs: $(INSTALLED)-docs
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env \
	  docs build/docs

# The compiler is pinned, in an environment of its own. Generated code requires a
# protobuf at least as new as its compiler, so a newer compiler would raise the
# minimum in pyproject.toml.
proto: $(VENV)/protoc/bin/python-grpc-tools-protoc
	@$< --proto_path=passes --python_out=passes --pyi_out=passes hlo.proto

clean:
	rm -rf .venv .venv-* build dist .hypothesis .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An installation stays valid until pyproject.toml or the Python version changes:
# stamps contain the version, and a new .venv clears the old stamps.
$(INSTALLED)-%: pyproject.toml | $(VENV)/bin/python$(PYTHON_VERSION)
	@echo "Installing lagom_xla[$*] and what it needs into $(VENV)" \
	  "(minutes the first time) ..."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check \
	  --editable '.[$*]'
	@touch $@

$(VENV)/bin/python$(PYTHON_VERSION):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  2>/dev/null || { echo "lagom_xla needs Python 3.11 or newer, and" \
	  "$(PYTHON) is not: try PYTHON=python3.11 make test" >&2; \
	  exit 1; }
	@echo "Making $(VENV) with Python $(PYTHON_VERSION) ..."
	@$(PYTHON) -m venv --clear $(VENV)

$(VENV)/protoc/bin/python-grpc-tools-protoc: | $(VENV)/bin/python$(PYTHON_VERSION)
	@echo "Installing the protobuf compiler into $(VENV)/protoc ..."
	@$(PYTHON) -m venv $(VENV)/protoc
	@$(VENV)/protoc/bin/python -m pip install -qq --disable-pip-version-check \
	  grpcio-tools==1.74.0 'setuptools<81'
