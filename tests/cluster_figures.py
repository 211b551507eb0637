# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Figures of clusters as tests take them apart, and errors about them."""

from __future__ import annotations

from typing import Any

import pytest

from lagom_xla import cluster
from lagom_xla import errors


def leaves(raw: object, path: str = "") -> dict[str, Any]:
  """Every value in nested objects, by its dotted path."""
  if not isinstance(raw, dict):
    return {path: raw}
  nested = (leaves(v, f"{path}.{k}" if path else k) for k, v in raw.items())
  return {k: v for part in nested for k, v in part.items()}


def error_of(text: str) -> str:
  """What is said of a --cluster that is refused."""
  with pytest.raises(errors.ClusterError) as caught:
    cluster.parse(text)
  return str(caught.value)
