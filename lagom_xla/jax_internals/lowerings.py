# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lowered steps of JAX: which module each has, for whom, and what it shares.

Also what they are lowered without: debug callbacks, and memory kinds, as
compile-only devices cannot say which memories they have: a sharding over them
that asks for pinned_host is made without it, and nothing says so. And who asks
which platform this is: a program may choose kernels by the answer, which is
"cpu" where there is no GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import copy
import hashlib
import re
import sys
from typing import Any
import warnings

import jax
from jax._src import debugging
from jax._src import named_sharding
from jax._src import source_info_util
from jax._src.interpreters import mlir
from jax._src.lib import xla_client
from jaxlib.mlir import ir

from lagom_xla import errors


def client_of(lowered: jax.stages.Lowered) -> Any:
  """The client of the backend that a step was lowered for."""
  return lowered._lowering.compile_args["backend"]


def with_module(
  lowered: jax.stages.Lowered, module: ir.Module
) -> jax.stages.Lowered:
  """A lowered step with another module in place of its own.

  Shardings, donation and the trees of arguments and results are kept, so the
  module must take and return what its own one does.

  Raises:
    UnsupportedError: JAX lowers in another way.
  """
  if getattr(lowered._lowering, "_hlo", None) is None:
    raise errors.UnsupportedError(
      f"This lagom_xla cannot replace the module of a step that JAX"
      f" {jax.__version__} lowered."
    )
  return _changed(lowered, _hlo=module)


def with_client(lowered: jax.stages.Lowered, client: Any) -> jax.stages.Lowered:
  """A lowered step that is compiled by another client."""
  known = lowered._lowering.compile_args
  return _changed(lowered, compile_args={**known, "backend": client})


def _changed(
  lowered: jax.stages.Lowered, **attributes: Any
) -> jax.stages.Lowered:
  """A lowered step whose lowering has other attributes, and is not compiled."""
  lowering: Any = copy.copy(lowered._lowering)
  for name, value in {**attributes, "_executable": None}.items():
    setattr(lowering, name, value)
  changed = copy.copy(lowered)
  changed._lowering = lowering
  return changed


def copied(lowered: jax.stages.Lowered) -> jax.stages.Lowered:
  """A lowered step with a copy of its module.

  JAX remembers executables by module and options, whatever passes took part.
  """
  module: Any = lowered.compiler_ir("stablehlo")
  with module.context, ir.Location.unknown():
    cloned = ir.Module.create()
    for name, attribute in module.operation.attributes.items():
      cloned.operation.attributes[name] = attribute
    for operation in module.body.operations:
      cloned.body.append(operation.operation.clone())
  return with_module(lowered, cloned)


def serialized_hlo(lowered: jax.stages.Lowered) -> bytes:
  """The HloModuleProto of a lowered step, serialized."""
  computation: Any = lowered.compiler_ir("hlo")
  return computation.as_serialized_hlo_module_proto()


def identity_of(lowered: jax.stages.Lowered) -> object:
  """What signatures share that jit would compile only once."""
  return lowered._lowering, lowered.in_tree, lowered.out_tree


def changes_refs(lowered: jax.stages.Lowered) -> bool:
  """Whether a step works on refs, which it takes or was traced with."""
  return lowered._lowering.compile_args.get("mut") is not None


def digest(module: ir.Module) -> str:
  """A hash of what a module computes, and how, but for source lines."""
  return hashlib.sha256(_text(module).encode()).hexdigest()


# Calls that name functions of this process by what only it knows them by.
_OF_PROCESS = re.compile(r'(?:callback|CustomSPMDPartitioning)\b"?[ (]')
_CONFIG = re.compile(r'backend_config = (?:"[^"]*"|\{[^}]*\})')
# More lines of a program count as the last of them.
_MOST_LINES = 16 * 1024


def lines_digests(lowered: jax.stages.Lowered, num_lines: int) -> list[str]:
  """Short hashes of a step's program, of so many lines of its text each.

  Processes that lower the same step have the same ones. The text is that of
  `lowered.as_text()`.
  """
  module: Any = lowered.compiler_ir("stablehlo")
  lines = [
    _CONFIG.sub("", line) if _OF_PROCESS.search(line) else line
    for line in _text(module).split("\n")
  ]
  starts = range(0, min(len(lines), _MOST_LINES), num_lines)
  ends = [*starts[1:], len(lines)]
  return [
    hashlib.sha256("\n".join(lines[start:end]).encode()).hexdigest()[:8]
    for start, end in zip(starts, ends, strict=True)
  ]


def _text(module: ir.Module) -> str:
  return str(
    module.operation.get_asm(enable_debug_info=False, assume_verified=True)
  )


def num_devices_of_sharding(serialized: bytes) -> int:
  """Devices that a serialized OpSharding splits an array over; 1 for none.

  Raises:
    HloError: it is damaged.
  """
  proto = xla_client.OpSharding()
  proto.ParseFromString(serialized)
  # One that names axes counts them, whatever its type; one without devices, 0.
  return max(
    _sharding(part).num_devices() or 1
    for part in proto.tuple_shardings or [proto]
  )


def is_named_sharding(serialized: bytes) -> bool:
  """Whether a serialized OpSharding names the axes of a mesh, as of JAX 0.12.

  GSPMD aborts where it finds one.

  Raises:
    HloError: it is damaged.
  """
  proto = xla_client.OpSharding()
  proto.ParseFromString(serialized)
  return "mesh[" in str(_sharding(proto))


def _sharding(proto: Any) -> Any:
  try:
    return xla_client.HloSharding.from_proto(proto)
  except Exception as error:
    raise errors.HloError(
      f"A sharding is damaged: {errors.first_line(error)}."
    ) from error


@contextlib.contextmanager
def without_callbacks() -> Iterator[None]:
  """Lowers for GPUs without `jax.debug.print` and `jax.debug.callback`.

  They call into a process that has the GPUs, which this one may not. Warns
  where something is left out.
  """
  left_out: list[str] = []
  rules = mlir._platform_specific_lowerings["cuda"]
  primitives = (debugging.debug_callback_p, debugging.debug_print_p)
  known = {primitive: rules[primitive] for primitive in primitives}

  def leave_out(context: Any, *args: Any, **params: Any) -> list[Any]:
    del args, params
    left_out.append(str(context.primitive))
    return []

  for primitive in primitives:
    mlir.register_lowering(primitive, leave_out, platform="cuda")
  try:
    yield
  finally:
    rules.update(known)
  if left_out:
    is_one = len(left_out) == 1
    what = "jax.debug call was" if is_one else "jax.debug calls were"
    warnings.warn(
      f"{len(left_out)} {what} left out, as they can be compiled only where the"
      " GPUs are. The job may run collectives for them.",
      RuntimeWarning,
      stacklevel=3,
    )


_NamedSharding: Any = jax.sharding.NamedSharding
# Where programs find the class, and where its own methods do.
_PLACES: Any = (jax, jax.sharding, named_sharding)
# Programs keep the class that they imported, so what it notices is here.
_lost: set[str] = set()


class _Noticing(type):
  """All that JAX's class is asked for, by whoever has the other one."""

  def __call__(cls, *args: Any, **kwargs: Any) -> Any:
    made = _NamedSharding(*args, **kwargs)
    kind = kwargs.get("memory_kind", args[2] if len(args) > 2 else None)
    if made.memory_kind is None and kind not in (None, "device"):
      _lost.add(kind)
    return made

  def __getattr__(cls, name: str) -> Any:
    return getattr(_NamedSharding, name)

  def __instancecheck__(cls, instance: Any) -> bool:
    return isinstance(instance, _NamedSharding)

  def __subclasscheck__(cls, other: type) -> bool:
    return issubclass(other, _NamedSharding)


class _Stand(metaclass=_Noticing):
  """What has the name of JAX's class, and makes objects of JAX's."""


@contextlib.contextmanager
def lost_memory_kinds() -> Iterator[set[str]]:
  """Yields the kinds that are lost inside, as they are.

  JAX makes the objects in C++, where nobody can look on, so inside another
  class has the name of its own.
  """
  _lost.clear()
  for place in _PLACES:
    place.NamedSharding = _Stand
  try:
    yield _lost
  finally:
    for place in _PLACES:
      place.NamedSharding = _NamedSharding


@contextlib.contextmanager
def told_cpu() -> Iterator[dict[tuple[str, int], None]]:
  """Yields where a program asks for the platform inside and is told "cpu".

  Each is a file and a line, once; JAX's own are left out, and those that
  `source_info_util` was told to exclude.
  """
  places: dict[tuple[str, int], None] = {}
  device: Any = xla_client.Device
  of_device, default_backend = device.platform, jax.default_backend

  def notice(answer: str) -> str:
    frame = sys._getframe(2)
    file = frame.f_code.co_filename
    if answer == "cpu" and source_info_util.is_user_filename(file):
      places[file, frame.f_lineno] = None
    return answer

  device.platform = property(lambda self: notice(of_device.fget(self)))
  jax.default_backend = lambda: notice(default_backend())
  try:
    yield places
  finally:
    device.platform = of_device
    jax.default_backend = default_backend
