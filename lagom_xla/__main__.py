# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The entry point of `python -m lagom_xla`, the same as `lagom-xla`."""

from __future__ import annotations

from lagom_xla import cli

if __name__ == "__main__":
  cli.run()
