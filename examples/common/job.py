# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The devices of a program: this host's, CPUs in place of GPUs, or a job's."""

from __future__ import annotations

from absl import flags
import jax

FLAGS = flags.FLAGS


def define_flags() -> None:
  """Defines the flags; importing this file leaves a program's own alone."""
  flags.DEFINE_integer("cpu_devices", 0, "Train on this many CPU devices.")
  flags.DEFINE_integer("processes", 1, "Processes of the job, one at least.")
  flags.DEFINE_integer("process", 0, "Number of this process.")
  flags.DEFINE_string(
    "coordinator", "127.0.0.1:12321", "Address of process 0, for a job."
  )


def join() -> None:
  """Has JAX use the devices that the flags name; call it before any other."""
  if FLAGS.cpu_devices:
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", FLAGS.cpu_devices)
  if FLAGS.processes > 1:
    if FLAGS.cpu_devices:
      jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
      FLAGS.coordinator, FLAGS.processes, FLAGS.process
    )
