# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs pytest on its arguments.

Bazel runs a test as a program and reads its exit status. A test file run as a
program would define its test functions, call none and pass. So every `py_test`
in BUILD has this file as its main and the test file as its argument.
"""

from __future__ import annotations

import sys

import pytest

if __name__ == "__main__":
  sys.exit(pytest.main(sys.argv[1:]))
