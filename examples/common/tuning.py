# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tuning of all steps: its flags, and a report at the end."""

from __future__ import annotations

from typing import Any

from absl import flags
import jax

FLAGS = flags.FLAGS


def define_flags() -> None:
  """Defines the flags; a mere import does not add flags to a program."""
  flags.DEFINE_bool("tune", False, "Tune the step while it trains.")
  flags.DEFINE_string(
    "cluster", "", "GPUs that these CPUs stand for, such as 1x8xh100."
  )


def tuned(step: Any, *, tune: bool, cluster: str = "") -> Any:
  """Wraps a step in `lagom_xla.tune`, if `tune` is true.

  Args:
    step: A step from `jax.jit` or `nnx.jit`.
    tune: Whether to wrap it.
    cluster: GPUs that these CPUs stand for; empty for the devices themselves.
  """
  if not tune:
    return step
  import lagom_xla

  return lagom_xla.tune(step, cluster=cluster or None)


def tuned_as_flags_say(step: Any) -> Any:
  """The step with the wrapper of `--tune` and `--cluster`."""
  return tuned(step, tune=FLAGS.tune, cluster=FLAGS.cluster)


def print_report(step: Any) -> None:
  """Prints the report of tuning, in the first process of a job."""
  if FLAGS.tune and jax.process_index() == 0:
    print(step.report(), flush=True)
