# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The costs of kernels, of collectives, and of their overlap."""

from __future__ import annotations

import json
import pathlib
from typing import Any

FITTED = pathlib.Path(__file__).with_name("fitted")


def read_fitted(name: str) -> dict[str, Any]:
  """The parameters in `FITTED`/`name`.json."""
  return json.loads((FITTED / f"{name}.json").read_text(encoding="utf-8"))
