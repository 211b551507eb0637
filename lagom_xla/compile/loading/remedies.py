# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Remedies for what targets raise that run into a machine without GPUs."""

from __future__ import annotations

_NOTHING_RUNS = (
  "the devices are compile-only: nothing runs on them, nor inside jax.set_mesh"
  " of them, and no array can be put there; give jax.ShapeDtypeStructs, which"
  " jax.eval_shape makes of parameters and random keys, and for what"
  " jax.new_ref makes a jax.ref.AbstractRef(jax.core.ShapedArray(SHAPE, DTYPE))"
)
_ONE_PROCESS = (
  "there is one process here: leave jax.distributed.initialize() to the program"
  ' itself, below `if __name__ == "__main__"`'
)
# What JAX says where something about a machine without GPUs is in the way, and
# what to do about it.
_REMEDIES = {
  "not available with compile-only client": _NOTHING_RUNS,
  # Of jaxlib._jax in 0.12.
  "Executable' object has no attribute": _NOTHING_RUNS,
  "Received incompatible devices": (
    "some arguments are on CPUs and others on the `devices` that the function"
    " gets: give jax.ShapeDtypeStructs sharded over those"
  ),
  "only AbstractMesh exists": (
    "make the mesh of the `devices` that the function gets: an AbstractMesh has"
    " none to compile for"
  ),
  "must be >= the product of mesh_shape": (
    "the mesh is of more devices than the cluster has GPUs: name a larger"
    " --cluster, or make the mesh of all the `devices` that the function gets,"
    " or at import of all jax.devices()"
  ),
  "Number of slices 1 must equal": (
    "devices that are not here are all of one slice: call"
    " create_hybrid_device_mesh with process_is_granule=True"
  ),
  "coordinator_address should be defined": _ONE_PROCESS,
  "jax.distributed.initialize() must be called before": _ONE_PROCESS,
  "Unknown backend: 'gpu' requested": (
    "what calls into Python, as jax.pure_callback and io_callback do, is"
    " lowered only where the GPUs are: leave it out of the step that you name"
  ),
  "Not supported on cpu.": (
    "Tokamax looks for the GPUs that are here: have the step lowered inside"
    " `with tokamax.config.cross_compile(True)`, as a function that returns a"
    " context manager can"
  ),
  "cuDNN not found": (
    "JAX asks for cuDNN when it traces its attention: `pip install"
    " nvidia-cudnn-cu13` is enough, without a GPU"
  ),
}


def added(what: str) -> str:
  """What an error says, with what to do about it, where that is known."""
  for symptom, remedy in _REMEDIES.items():
    if symptom in what:
      what += f" [{remedy}]"
  return what
