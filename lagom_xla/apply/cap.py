# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The cap on NCCL's channels: NCCL's variable, and what it does to the rest.

It bounds a table's channels, and NCCL takes it in place of XLA's cap.
"""

from __future__ import annotations

from collections.abc import Mapping
import os

from lagom_xla.flags import nccl_channels

# The most channels (CTAs) that a communicator may use.
VARIABLE = "NCCL_MAX_CTAS"

# Shell lines for jobs whose table sets channels: of a cap and the table NCCL
# would take the smaller number.
UNSET_FOR_TABLE = f"""\
if [ -n "${{{VARIABLE}:-}}${{NCCL_MAX_NCHANNELS:-}}" ]; then
  echo "lagom_xla: {VARIABLE} and NCCL_MAX_NCHANNELS are unset: they would" \\
    "cap the channels that this plan's table gives to collectives." >&2
fi
unset {VARIABLE} NCCL_MAX_NCHANNELS"""

_UNSET_FOR_OPTION = f"""\
if [ -n "${{{VARIABLE}:-}}" ]; then
  echo "lagom_xla: {VARIABLE} is unset: NCCL would take it in place of this" \\
    "plan's {nccl_channels.OPTION}." >&2
fi
unset {VARIABLE}"""


def variables(max_channels: int | None) -> Mapping[str, str]:
  """The variables that make NCCL keep to a cap.

  Args:
    max_channels: of any communicator; None for no cap, and no variable.
  """
  return {} if max_channels is None else {VARIABLE: str(max_channels)}


def inherited() -> int | None:
  """The cap of NCCL's variable in this process's environment; None for none.

  NCCL takes what is no positive number for none (src/init.cc).
  """
  text = os.environ.get(VARIABLE, "").strip()
  return int(text) if text.isdecimal() and int(text) else None


def missing(options: Mapping[str, object]) -> str:
  """The cap that XLA options have and XLA_FLAGS of this process lack.

  Args:
    options: of a plan.

  Returns:
    The cap as a flag; "" where XLA_FLAGS has it, or the options have none.
  """
  if nccl_channels.most(options) == nccl_channels.most({}):
    return ""
  return f"--{nccl_channels.OPTION}={options[nccl_channels.OPTION]}"


def lines_beside(options: Mapping[str, object]) -> list[str]:
  """Shell lines that XLA options need beside them to act; most need none."""
  return [_UNSET_FOR_OPTION] if options.get(nccl_channels.OPTION) else []
