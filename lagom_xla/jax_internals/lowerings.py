# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reads and changes lowered steps, and detects what lowering loses.

Without GPUs, JAX may lower another program than with them:

- Debug callbacks for GPUs cannot be compiled. `without_callbacks` omits them.
- Compile-only devices do not report their memories, so JAX silently drops
  memory kinds such as pinned_host from their shardings. See
  `lost_memory_kinds`.
- JAX's devices are CPUs, and programs choose kernels and shardings by the
  platform. See `platform_told`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import contextlib
import copy
import dataclasses
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


def kept_arguments(lowered: jax.stages.Lowered) -> Sequence[int]:
  """The flat arguments that a step's module has; JAX drops unused ones."""
  return sorted(lowered._lowering.compile_args.get("kept_var_idx", ()))


def with_module(
  lowered: jax.stages.Lowered, module: ir.Module
) -> jax.stages.Lowered:
  """A lowered step with another module in place of its own.

  The step keeps its shardings, donation and pytrees, so the module must have
  the same arguments and results as the original.

  Raises:
    UnsupportedError: this JAX has other internals.
  """
  if getattr(lowered._lowering, "_hlo", None) is None:
    raise errors.UnsupportedError(
      f"This lagom_xla cannot replace the module of a step that JAX"
      f" {jax.__version__} lowered."
    )
  return _changed(lowered, _hlo=module)


def with_client(lowered: jax.stages.Lowered, client: Any) -> jax.stages.Lowered:
  """A lowered step that another client compiles."""
  known = lowered._lowering.compile_args
  return _changed(lowered, compile_args={**known, "backend": client})


def _changed(
  lowered: jax.stages.Lowered, **attributes: Any
) -> jax.stages.Lowered:
  """A copy of a lowered step with other attributes and no cached executable."""
  lowering: Any = copy.copy(lowered._lowering)
  for name, value in {**attributes, "_executable": None}.items():
    setattr(lowering, name, value)
  changed = copy.copy(lowered)
  changed._lowering = lowering
  return changed


def copied(lowered: jax.stages.Lowered) -> jax.stages.Lowered:
  """A lowered step with a copy of its module.

  JAX caches executables by module and options, and ignores our passes.
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
  """A key that is equal for signatures that jit would compile only once."""
  return lowered._lowering, lowered.in_tree, lowered.out_tree


def changes_refs(lowered: jax.stages.Lowered) -> bool:
  """Whether a step uses refs, as arguments or captured by tracing."""
  return lowered._lowering.compile_args.get("mut") is not None


def digest_of(lowered: jax.stages.Lowered) -> str:
  """A digest that is equal for signatures with the same program for XLA."""
  module: Any = lowered.compiler_ir("stablehlo")
  return digest(module)


def digest(module: ir.Module) -> str:
  """A hash of a module without its source locations."""
  return hashlib.sha256(_text(module).encode()).hexdigest()


# Calls whose config identifies a Python function of this process.
_OF_PROCESS = re.compile(r'(?:callback|CustomSPMDPartitioning)\b"?[ (]')
_CONFIG = re.compile(r'backend_config = (?:"[^"]*"|\{[^}]*\})')
# The last hash covers all lines beyond these.
_MOST_LINES = 16 * 1024


def lines_digests(lowered: jax.stages.Lowered, num_lines: int) -> list[str]:
  """Short hashes of a step's program, one per `num_lines` lines of its text.

  Processes that lower the same step get the same hashes. The text is that of
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
  """The number of devices in a serialized OpSharding; 1 if it has none.

  Raises:
    HloError: it is damaged.
  """
  proto = xla_client.OpSharding()
  proto.ParseFromString(serialized)
  # A sharding that names axes counts their devices, whatever its type; one
  # without devices counts 0.
  return max(
    _sharding(part).num_devices() or 1
    for part in proto.tuple_shardings or [proto]
  )


def is_named_sharding(serialized: bytes) -> bool:
  """Whether a serialized OpSharding names mesh axes, as from JAX 0.12 on.

  GSPMD aborts on such shardings.

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
  """Omits `jax.debug.print` and `jax.debug.callback` from lowerings for GPUs.

  They call into the process that has the GPUs, which may be another one. Warns
  if any were omitted.
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
      f"{len(left_out)} {what} left out: they can be compiled only where the"
      " GPUs are. In the job they may add collectives.",
      RuntimeWarning,
      stacklevel=3,
    )


_NamedSharding: Any = jax.sharding.NamedSharding
# Where programs, and the class's own methods, look the class up.
_PLACES: Any = (jax, jax.sharding, named_sharding)
# Global, because programs keep the class that they imported.
_lost: set[str] = set()


class _Noticing(type):
  """Forwards to JAX's class, and notes memory kinds that it drops."""

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
  """Stands in for JAX's class; its instances are those of JAX's class."""


@contextlib.contextmanager
def lost_memory_kinds() -> Iterator[set[str]]:
  """Yields a set that collects the memory kinds that JAX drops in the block.

  JAX makes shardings in C++, which cannot be patched, so the block replaces the
  class `NamedSharding`.
  """
  _lost.clear()
  for place in _PLACES:
    place.NamedSharding = _Stand
  try:
    yield _lost
  finally:
    for place in _PLACES:
      place.NamedSharding = _NamedSharding


@dataclasses.dataclass
class Told:
  """What programs are told of the platform.

  Attributes:
    answer: their answer where JAX's is "cpu".
    places: the (file, line) that got it, in order.
  """

  answer: str = "gpu"
  places: dict[tuple[str, int], None] = dataclasses.field(default_factory=dict)


@contextlib.contextmanager
def platform_told() -> Iterator[Told]:
  """Tells a program in the block that its platform is "gpu", not "cpu".

  JAX's own files, and those excluded by `source_info_util.register_exclusion`,
  are told the truth.
  """
  told = Told()
  device: Any = xla_client.Device
  of_device, default_backend = device.platform, jax.default_backend

  def tell(truth: str) -> str:
    frame = sys._getframe(2)
    file = frame.f_code.co_filename
    if truth != "cpu" or not source_info_util.is_user_filename(file):
      return truth
    told.places[file, frame.f_lineno] = None
    return told.answer

  device.platform = property(lambda self: tell(of_device.fget(self)))
  jax.default_backend = lambda: tell(default_backend())
  try:
    yield told
  finally:
    device.platform = of_device
    jax.default_backend = default_backend
