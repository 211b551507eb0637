# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""An earlier plan in the same shell: what of it a later env.sh takes away.

Its NCCL table would act under the later plan's flags. Its own flags and cap
cannot be told from the user's, and stay, which is said.
"""

from __future__ import annotations

from lagom_xla.apply.nccl import state


def lines(digest: str) -> str:
  """Lines for where another plan was sourced before.

  Args:
    digest: of the plan that these lines are of.
  """
  return f"""\
case "${{{state.ENV}:-}}" in
  "" | {digest}:*) ;;
  *)
    echo "lagom_xla: another plan was sourced here, whose XLA_FLAGS and cap" \\
      "on channels stay; start a new shell to have this one alone." >&2
    if [ -n "${{LAGOM_XLA_NCCL_TABLE:-}}" ]; then
      unset NCCL_TUNER_PLUGIN LAGOM_XLA_NCCL_TABLE LAGOM_XLA_NCCL_CHECKSUM
    fi
    unset {state.ENV}
    ;;
esac"""
