# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Every target does the set-up it needs: a virtual environment in .venv and
# lagom_xla installed into it, editable, with the extras the target uses. The
# Python is the one .venv already has, else python3; PYTHON=python3.12 chooses,
# and VENV=.venv-3.12 keeps it in an environment of its own.

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
	@echo "make lint    check style, types and which room imports which"
	@echo "make format  rewrite the files in the house style"
	@echo "make docs    build the site of docs/ into build/docs"
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

# Anything that is wrong with a page, a link or a docstring is an error. All pages
# are read anew: what is wrong with one is not said twice otherwise.
docs: $(INSTALLED)-docs
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env \
	  docs build/docs

# The compiler has an environment of its own, at a fixed version: generated code
# asks for a protobuf at least as new as the compiler that wrote it, so a newer
# one here would raise the floor in pyproject.toml.
proto: $(VENV)/protoc/bin/python-grpc-tools-protoc
	@$< --proto_path=passes --python_out=passes --pyi_out=passes hlo.proto

clean:
	rm -rf .venv .venv-* build dist .hypothesis .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An installation is fresh until pyproject.toml changes, or the Python does:
# names carry its version, and making a new .venv clears the old one's stamps.
$(INSTALLED)-%: pyproject.toml | $(VENV)/bin/python$(PYTHON_VERSION)
	@echo "Installing lagom_xla[$*] and what it needs into $(VENV)" \
	  "(minutes the first time) ..."
	@$(BIN)/python -m pip install -qq --disable-pip-version-check \
	  --editable '.[$*]'
	@touch $@

$(VENV)/bin/python$(PYTHON_VERSION):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  2>/dev/null || { echo "lagom_xla needs Python 3.11 or newer, which" \
	  "$(PYTHON) is not: name one, as in PYTHON=python3.11 make test" >&2; \
	  exit 1; }
	@echo "Making $(VENV) with Python $(PYTHON_VERSION) ..."
	@$(PYTHON) -m venv --clear $(VENV)

$(VENV)/protoc/bin/python-grpc-tools-protoc: | $(VENV)/bin/python$(PYTHON_VERSION)
	@echo "Installing the protobuf compiler into $(VENV)/protoc ..."
	@$(PYTHON) -m venv $(VENV)/protoc
	@$(VENV)/protoc/bin/python -m pip install -qq --disable-pip-version-check \
	  grpcio-tools==1.74.0 'setuptools<81'
