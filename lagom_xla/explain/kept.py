# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The file of an explanation, kept beside a plan.

kept.write(explanation, folder)  # folder/explain.json.gz
kept.read(folder)
"""

from __future__ import annotations

from lagom_xla.explain import explanation as explanation_lib
from lagom_xla.plan import beside

NAME = beside.EXPLANATION
_FILE = beside.File(
  name=NAME,
  noun="step's explanation",
  of=explanation_lib.Explanation,
  format_version=explanation_lib.FORMAT_VERSION,
  instead=", or give --cluster to explain a target",
)
write = _FILE.write
read = _FILE.read
