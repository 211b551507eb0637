# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's compiles of HLO, and compiles that end before code generation.

JAX compiles only StableHLO, which has no fusions. For compile-only devices, the
CUDA plugin's PJRT C API also accepts HLO (`compile_hlo`).

Most of the time of a compile to the end is code generation, which is useless
without a GPU. Before it, XLA rematerializes and assigns buffers, and dumps the
results if asked to. Then it opens its kernel cache: an unreadable cache ends
the compile (`options_before_code`).

Some options make XLA read or write files, or run passes, that are different in
a partial compile. If one of these is set, XLA compiles everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
import ctypes
import dataclasses
import functools
import os
import pathlib
import re
from typing import Any

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import devices as devices_lib
from lagom_xla.passes import hlo_pb2
from lagom_xla.passes import registry

# Prefix of the options that make XLA dump files.
DUMPS = "xla_dump_"
# Selects the modules to dump.
DUMPED_MODULES = "xla_dump_hlo_module_re"


def may_name(words: Iterable[str], options: Iterable[str]) -> bool:
  """Whether an option's name, here or in XLA_FLAGS, may contain a word."""
  flags = os.environ.get("XLA_FLAGS", "").strip()
  if flags and not flags.startswith("--"):
    return True  # The flags are in a file.
  set_anywhere = [*options, flags]
  return any(word in text for word in words for text in set_anywhere)


_FREE, _SHARE_WITH = 1, 2  # HeapSimulatorTrace.Event.Kind of XLA.


def peak_bytes(memory: Any) -> int:
  """Peak device memory of a `CompiledMemoryStats`."""
  peak = getattr(memory, "peak_memory_in_bytes", 0)
  return peak or (
    memory.argument_size_in_bytes
    + memory.output_size_in_bytes
    - memory.alias_size_in_bytes
    + memory.temp_size_in_bytes
  )


def peak_bytes_of(assignment: hlo_pb2.BufferAssignmentProto) -> int:
  """Peak device memory of a buffer assignment.

  As XLA's `peak_memory_in_bytes` (ComputePeakMemory in
  xla/service/buffer_assignment.cc): arguments, constants and results, which
  last for the whole step, plus the most that is live at once.
  """
  sizes = {b.id: b.size for b in assignment.logical_buffers}
  uses = dict.fromkeys(_there_all_the_time(assignment, sizes), 1)
  now = peak = sum(sizes[id_] for id_ in uses)
  shared: dict[int, int] = {}  # Buffer -> the one whose memory it shares.
  for trace in assignment.heap_simulator_traces:
    for event in trace.events:
      if event.kind == _SHARE_WITH:
        held = _held(event.share_with_canonical_id, shared)
        shared[event.buffer_id] = held
      elif event.kind == _FREE:
        held = _held(event.buffer_id, shared)
        shared.pop(event.buffer_id, None)
      else:
        held = event.buffer_id
      before = uses.get(held, 0)
      uses[held] = before + (-1 if event.kind == _FREE else 1)
      now += sizes[held] * ((uses[held] > 0) - (before > 0))
      peak = max(peak, now)
  return peak


def _there_all_the_time(
  assignment: hlo_pb2.BufferAssignmentProto, sizes: dict[int, int]
) -> list[int]:
  """The largest buffer of each allocation that lasts for the whole step."""
  found = []
  for allocation in assignment.buffer_allocations:
    lasts = (
      allocation.is_entry_computation_parameter
      or allocation.is_constant
      or allocation.maybe_live_out
    )
    if lasts and not allocation.is_thread_local:
      ids = [a.logical_buffer_id for a in allocation.assigned]
      found += [max(ids, key=sizes.__getitem__)] if ids else []
  return found


def _held(buffer_id: int, shared: dict[int, int]) -> int:
  """The buffer whose memory this one shares, or itself."""
  while buffer_id in shared:
    buffer_id = shared[buffer_id]
  return buffer_id


_SIZE, _POINTER, _STRING = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
_MAJOR_VERSION = 0
_IS_STRING = 0  # PJRT_NamedValue_kString.
# Indices of functions in PJRT_Api.
_ERROR_DESTROY, _ERROR_MESSAGE, _TOPOLOGY_CREATE, _COMPILE = 0, 1, 82, 89


def _struct(**fields: Any) -> Any:
  """A structure of the C API, with the fields that all of them start with."""
  head = {"struct_size": _SIZE, "extension_start": _POINTER}
  fields = {"_fields_": [*head.items(), *fields.items()]}
  return type("_Struct", (ctypes.Structure,), fields)


_Api = _struct(
  version_size=_SIZE,
  version_extension=_POINTER,
  major_version=ctypes.c_int,
  minor_version=ctypes.c_int,
  functions=_POINTER * (_COMPILE + 1),
)
_NamedValue = _struct(
  name=_STRING,
  name_size=_SIZE,
  type=ctypes.c_int,
  value=_STRING,
  value_size=_SIZE,
)
_Error = _struct(error=_POINTER, message=_POINTER, message_size=_SIZE)
_Topology = _struct(
  name=_STRING,
  name_size=_SIZE,
  options=ctypes.POINTER(_NamedValue),
  num_options=_SIZE,
  topology=_POINTER,
)
_Program = _struct(
  code=_STRING, code_size=_SIZE, format=_STRING, format_size=_SIZE
)
_Compile = _struct(
  topology=_POINTER,
  program=ctypes.POINTER(_Program),
  options=_STRING,
  options_size=_SIZE,
  client=_POINTER,
  executable=_POINTER,
)


def compile_hlo(
  cluster: cluster_lib.Cluster, module: bytes, options: bytes
) -> None:
  """Compiles an HloModuleProto with a CompileOptionsProto.

  Returns nothing: a pass must take the result.

  Raises:
    UnsupportedError: there is no plugin, or it has another C API.
    CompileError: XLA failed, or a pass raised.
  """
  program = _Program(code=module, code_size=len(module), format=b"hlo")
  program.struct_size, program.format_size = ctypes.sizeof(_Program), 3
  arguments = _Compile(
    topology=_topology(cluster.target_config(), devices_lib.shape(cluster)),
    program=ctypes.pointer(program),
    options=options,
    options_size=len(options),
  )
  _call(_COMPILE, arguments)


@functools.cache
def _topology(target_config: str, shape: str) -> int:
  values = {"target_config": target_config, "topology": shape}
  options = (_NamedValue * len(values))()
  for option, (name, value) in zip(options, values.items(), strict=True):
    option.struct_size, option.type = ctypes.sizeof(_NamedValue), _IS_STRING
    option.name, option.name_size = name.encode(), len(name)
    option.value, option.value_size = value.encode(), len(value.encode())
  arguments = _Topology(name=b"", options=options, num_options=len(options))
  _call(_TOPOLOGY_CREATE, arguments)
  return arguments.topology


def _call(function: int, arguments: Any) -> None:
  arguments.struct_size = ctypes.sizeof(arguments)
  error = _function(function)(ctypes.addressof(arguments))
  if not error:
    return
  failed = _Error(error=error)
  failed.struct_size = ctypes.sizeof(failed)
  _function(_ERROR_MESSAGE)(ctypes.addressof(failed))
  message = ctypes.string_at(failed.message, failed.message_size).decode()
  # PJRT_Error_Destroy uses only the structure's first three fields.
  _function(_ERROR_DESTROY)(ctypes.addressof(failed))
  raise errors.CompileError(message)


def _function(index: int):
  return ctypes.CFUNCTYPE(_POINTER, _POINTER)(_api().functions[index])


@functools.cache
def _api() -> Any:
  api = registry.plugin_api(_Api)
  if api.major_version != _MAJOR_VERSION:
    raise errors.UnsupportedError(
      f"{registry.plugin_path()} has version {api.major_version} of the PJRT C"
      f" API; this lagom_xla supports version {_MAJOR_VERSION}."
    )
  return api


_KERNEL_CACHE = "xla_gpu_kernel_cache_file"
_WRITTEN = "*_gpu_after_optimizations.hlo.pb"
# No protocol buffer begins with a tag of wire type 7.
_UNREADABLE = b"\x07"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Assigned:
  """A module with assigned buffers, and its peak device memory."""

  module: hlo_pb2.HloModuleProto
  peak_bytes: int


def can_end_before_code(options: Collection[str]) -> bool:
  """Whether compiles with these XLA options can end before code generation.

  Dumps that XLA_FLAGS ask for do not matter: they are for the training job.
  """
  return not (
    may_name([_KERNEL_CACHE], options) or any(DUMPS in name for name in options)
  )


def options_to_dump(name: str, folder: pathlib.Path) -> dict[str, bool | str]:
  """XLA options that dump the module of this name to a folder."""
  return {
    "xla_dump_to": str(folder),
    "xla_dump_hlo_as_proto": True,
    "xla_dump_compress_protos": False,
    DUMPED_MODULES: f"^{re.escape(name)}$",
  }


def options_before_code(
  name: str, folder: pathlib.Path
) -> dict[str, bool | str]:
  """Adds to `options_to_dump` one that ends the compile before code."""
  cache = folder / "kernels"
  cache.write_bytes(_UNREADABLE)
  return {**options_to_dump(name, folder), _KERNEL_CACHE: str(cache)}


def assigned(executable: Any) -> Assigned:
  """The module and peak memory of one of jaxlib's executables."""
  (module,) = executable.hlo_modules()
  serialized = module.as_serialized_hlo_module_proto()
  return Assigned(
    module=hlo_pb2.HloModuleProto.FromString(serialized),
    peak_bytes=peak_bytes(executable.get_compiled_memory_stats()),
  )


def until_assigned(
  folder: pathlib.Path, compile_fn: Callable[[], Any]
) -> Assigned:
  """Runs a compile with `options_before_code` for this folder.

  Raises XLA's error if it fails before that point.
  """
  refusal: Exception | None = None
  try:
    compile_fn()
  except Exception as error:
    refusal = error
  written = list(folder.glob(_WRITTEN))
  if len(written) != 1:
    raise refusal or FileNotFoundError(f"XLA wrote no {_WRITTEN}")
  proto = hlo_pb2.HloProto.FromString(written[0].read_bytes())
  return Assigned(
    module=proto.hlo_module,
    peak_bytes=peak_bytes_of(proto.buffer_assignment),
  )


# A field of GpuBackendConfig in JSON; a ReificationCost has no lists.
_ESTIMATES = re.compile(rb'"reification_cost":\[[^\]]*\]')
_NO_ESTIMATES = b'"reification_cost":[]'


def take_out_estimates(module: hlo_pb2.HloModuleProto) -> None:
  """Removes XLA's estimates from a module.

  The result equals a module compiled without them, except for backend configs
  that had nothing else, which stay empty, and for XLA's own fingerprint from
  before scheduling.
  """
  for computation in module.computations:
    for instruction in computation.instructions:
      if instruction.backend_config:
        instruction.backend_config = _without(instruction.backend_config)
      payload = instruction.backend_config_payload
      if payload.WhichOneof("payload_source") == "value":
        payload.value = _without(payload.value)
  for index, shared in enumerate(module.payloads):
    module.payloads[index] = _without(shared)


def _without(config: bytes) -> bytes:
  return _ESTIMATES.sub(_NO_ESTIMATES, config)
