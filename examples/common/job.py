# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Devices of a program: those of this host, of a job, or CPU devices."""

from __future__ import annotations

from absl import flags
import jax

FLAGS = flags.FLAGS


def define_flags() -> None:
  """Defines the flags; a mere import does not add flags to a program."""
  flags.DEFINE_integer("cpu_devices", 0, "Train on this many CPU devices.")
  flags.DEFINE_integer("processes", 1, "Number of processes of the job.")
  flags.DEFINE_integer("process", 0, "Number of this process.")
  flags.DEFINE_string(
    "coordinator", "127.0.0.1:12321", "Address of process 0 of a job."
  )


def join() -> None:
  """Makes JAX use the devices of the flags; call it before any use of JAX."""
  if FLAGS.cpu_devices:
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", FLAGS.cpu_devices)
  if FLAGS.processes > 1:
    if FLAGS.cpu_devices:
      jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
      FLAGS.coordinator, FLAGS.processes, FLAGS.process
    )
