# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""NCCL's environment variables: one choice for all collectives of a process."""

from __future__ import annotations

from collections.abc import Mapping
import shlex

from lagom_xla.search.nccl import channel_cap

# The most channels (thread blocks) of a communicator.
CAP = "NCCL_MAX_CTAS"


def variables(cap: channel_cap.Cap) -> Mapping[str, str]:
  """The environment that makes NCCL keep to a cap; {} for none."""
  if cap.max_channels is None:
    return {}
  return {CAP: str(cap.max_channels)}


def export_lines(env: Mapping[str, str]) -> str:
  """Shell lines that set the variables."""
  if not env:
    return "# NCCL's own choices are as good as any cap on its channels."
  return "\n".join(
    f"export {name}={shlex.quote(value)}" for name, value in env.items()
  )
