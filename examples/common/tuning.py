# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tuning of any of the steps: one flag, and a report at the end."""

from __future__ import annotations

from typing import Any

from absl import flags
import jax

FLAGS = flags.FLAGS


def define_flags() -> None:
  """Defines the flags; importing this file leaves a program's own alone."""
  flags.DEFINE_bool("tune", False, "Tune the step while it trains.")
  flags.DEFINE_string(
    "cluster", "", "GPUs that these CPUs stand for, such as 1x8xh100."
  )


def tuned(step: Any, *, tune: bool, cluster: str = "") -> Any:
  """The step, which is tuned while it trains if `tune` says so.

  Args:
    step: What `jax.jit` or `nnx.jit` returned.
    tune: Whether to.
    cluster: GPUs that these CPUs stand for; empty for the devices themselves.
  """
  if not tune:
    return step
  import lagom_xla

  return lagom_xla.tune(step, cluster=cluster or None)


def tuned_as_flags_say(step: Any) -> Any:
  """The step, as `--tune` and `--cluster` have it."""
  return tuned(step, tune=FLAGS.tune, cluster=FLAGS.cluster)


def print_report(step: Any) -> None:
  """Says what tuning came to, in the first process of a job."""
  if FLAGS.tune and jax.process_index() == 0:
    print(step.report(), flush=True)
