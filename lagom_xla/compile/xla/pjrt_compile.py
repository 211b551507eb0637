# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles of HLO through the CUDA plugin's C API, for compile-only devices.

JAX compiles StableHLO, which has no fusions. The PJRT C API takes HLO, too
(openxla/xla, xla/pjrt/c/pjrt_c_api.h, version 0: fields are only ever added at
its end). The structures below are that header's.
"""

from __future__ import annotations

import ctypes
import functools

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import devices as devices_lib
from lagom_xla.passes import pjrt_transform

_SIZE, _POINTER = ctypes.c_size_t, ctypes.c_void_p
_MAJOR_VERSION = 0
_STRING = 0  # PJRT_NamedValue_kString.
# Where PJRT_Api has these functions, counted in pointers from the first.
_ERROR_DESTROY, _ERROR_MESSAGE, _TOPOLOGY_CREATE, _COMPILE = 0, 1, 82, 89


class _Api(ctypes.Structure):
  _fields_ = [
    ("struct_size", _SIZE),
    ("extension_start", _POINTER),
    ("version_size", _SIZE),
    ("version_extension", _POINTER),
    ("major_version", ctypes.c_int),
    ("minor_version", ctypes.c_int),
    ("functions", _POINTER * (_COMPILE + 1)),
  ]


class _Arguments(ctypes.Structure):
  """What all arguments of the C API begin with."""

  _fields_ = [("struct_size", _SIZE), ("extension_start", _POINTER)]


class _NamedValue(_Arguments):
  _fields_ = [
    ("name", ctypes.c_char_p),
    ("name_size", _SIZE),
    ("type", ctypes.c_int),
    ("value", ctypes.c_char_p),
    ("value_size", _SIZE),
  ]


class _Error(_Arguments):
  _fields_ = [
    ("error", _POINTER),
    ("message", _POINTER),
    ("message_size", _SIZE),
  ]


class _Topology(_Arguments):
  _fields_ = [
    ("name", ctypes.c_char_p),
    ("name_size", _SIZE),
    ("options", ctypes.POINTER(_NamedValue)),
    ("num_options", _SIZE),
    ("topology", _POINTER),
  ]


class _Program(_Arguments):
  _fields_ = [
    ("code", ctypes.c_char_p),
    ("code_size", _SIZE),
    ("format", ctypes.c_char_p),
    ("format_size", _SIZE),
  ]


class _Compile(_Arguments):
  _fields_ = [
    ("topology", _POINTER),
    ("program", ctypes.POINTER(_Program)),
    ("options", ctypes.c_char_p),
    ("options_size", _SIZE),
    ("client", _POINTER),
    ("executable", _POINTER),
  ]


def compile_hlo(
  cluster: cluster_lib.Cluster, module: bytes, options: bytes
) -> None:
  """Compiles a module; what is wanted of it, a pass has to take.

  Args:
    cluster: what to compile for.
    module: an HloModuleProto.
    options: a CompileOptionsProto.

  Raises:
    UnsupportedError: the plugin has another C API.
    CompileError: XLA refused, or a pass raised.
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
    option.struct_size, option.type = ctypes.sizeof(_NamedValue), _STRING
    option.name, option.name_size = name.encode(), len(name)
    option.value, option.value_size = value.encode(), len(value.encode())
  arguments = _Topology(name=b"", options=options, num_options=len(options))
  _call(_TOPOLOGY_CREATE, arguments)
  return arguments.topology


def _call(index: int, arguments: _Arguments) -> None:
  arguments.struct_size = ctypes.sizeof(arguments)
  error = _function(index)(ctypes.addressof(arguments))
  if not error:
    return
  failed = _Error(error=error)
  failed.struct_size = ctypes.sizeof(failed)
  _function(_ERROR_MESSAGE)(ctypes.addressof(failed))
  message = ctypes.string_at(failed.message, failed.message_size).decode()
  # It takes the structure's first three fields only.
  _function(_ERROR_DESTROY)(ctypes.addressof(failed))
  raise errors.CompileError(message)


def _function(index: int):
  return ctypes.CFUNCTYPE(_POINTER, _POINTER)(_api().functions[index])


@functools.cache
def _api() -> _Api:
  path = pjrt_transform.plugin_path()
  if path is None:
    raise errors.UnsupportedError(pjrt_transform.NO_PLUGIN)
  plugin = ctypes.CDLL(str(path))
  plugin.GetPjrtApi.restype = ctypes.POINTER(_Api)
  api = plugin.GetPjrtApi().contents
  if api.major_version != _MAJOR_VERSION:
    raise errors.UnsupportedError(
      f"{path} has version {api.major_version} of the PJRT C API, and this"
      f" lagom_xla knows version {_MAJOR_VERSION}."
    )
  return api
