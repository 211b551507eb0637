# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""HLO passes through the CUDA plugin's C API, for ahead-of-time compiles.

`jax.extend.xla` of JAX 0.10.2 reaches a plugin only through a live client, so
a machine without a GPU never gets its passes called. The plugin exports the
same extension of the PJRT C API to any caller: PJRT_Xla_Transform_Extension
(openxla/xla, xla/pjrt/c/pjrt_c_api_xla_transform_extension.h), extension type
24, version 1. The structures below are that header's. JAX 0.11 and later do
this themselves; `registry.py` decides which way to go.
"""

from __future__ import annotations

from collections.abc import Callable
import ctypes
import functools
import importlib.util
import pathlib

from lagom_xla import errors

NO_PLUGIN = (
  "JAX's CUDA plugin is not installed. In a checkout of lagom_xla, `pip install"
  " '.[aot]'` (compiling without a GPU) or `pip install '.[cuda13]'` (on GPUs)"
  " installs it."
)

_EXTENSION_TYPE = 24
_EXTENSION_VERSION = 1
_INTERNAL_ERROR = 13  # PJRT_Error_Code_INTERNAL.

Callback = Callable[[bytes], bytes | None]


class _String(ctypes.Structure):
  _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class _VersionAndError(ctypes.Structure):
  _fields_ = [
    ("api_version", ctypes.c_int64),
    ("data", ctypes.c_void_p),
    ("cleanup_fn", ctypes.c_void_p),
    ("has_error", ctypes.c_bool),
    ("code", ctypes.c_int),
    ("error_msg", _String),
  ]


class _TransformArgs(ctypes.Structure):
  _fields_ = [
    ("struct_size", ctypes.c_size_t),
    ("header", _VersionAndError),
    ("hlo_module", _String),
    ("transformed_hlo_module", _String),
    ("changed", ctypes.c_bool),
  ]


_TransformFn = ctypes.CFUNCTYPE(
  None, ctypes.c_void_p, ctypes.POINTER(_TransformArgs)
)


class _Callbacks(ctypes.Structure):
  _fields_ = [
    ("version", ctypes.c_int64),
    ("dtor", ctypes.c_void_p),
    ("transform_hlo_module", _TransformFn),
  ]


class _RegisterArgs(ctypes.Structure):
  _fields_ = [
    ("struct_size", ctypes.c_size_t),
    ("name", ctypes.c_char_p),
    ("name_size", ctypes.c_size_t),
    ("stage", ctypes.c_int),
    ("callbacks", ctypes.POINTER(_Callbacks)),
  ]


class _ClearArgs(ctypes.Structure):
  _fields_ = [
    ("struct_size", ctypes.c_size_t),
    ("stage", ctypes.c_int),
    ("name", ctypes.c_char_p),
    ("name_size", ctypes.c_size_t),
    ("callbacks", ctypes.POINTER(_Callbacks)),
    ("cleared", ctypes.c_bool),
  ]


class _ExtensionBase(ctypes.Structure):
  pass


_ExtensionBase._fields_ = [
  ("struct_size", ctypes.c_size_t),
  ("type", ctypes.c_int),
  ("next", ctypes.POINTER(_ExtensionBase)),
]

_RegisterFn = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_RegisterArgs))
_ClearFn = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_ClearArgs))


class _Extension(ctypes.Structure):
  _fields_ = [
    ("base", _ExtensionBase),
    ("register_xla_transform", _RegisterFn),
    ("clear_xla_transform", _ClearFn),
  ]


class _Api(ctypes.Structure):
  _fields_ = [
    ("struct_size", ctypes.c_size_t),
    ("extension_start", ctypes.POINTER(_ExtensionBase)),
  ]


# What the plugin points to must outlive its use, so it lives as long as the
# registration: (name, stage) -> objects.
_registered: dict[tuple[str, int], tuple[object, ...]] = {}


def plugin_path() -> pathlib.Path | None:
  """The CUDA plugin's shared library, or None where none is installed."""
  for package in ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12"):
    try:
      spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
      continue
    for folder in (spec.submodule_search_locations or ()) if spec else ():
      path = pathlib.Path(folder) / "xla_cuda_plugin.so"
      if path.exists():
        return path
  return None


def register(callback: Callback, *, name: str, stage: int) -> None:
  """Has the CUDA plugin call `callback` in every compile from now on.

  Args:
    callback: takes a serialized HloModuleProto and returns a changed one, or
      None. An exception in it fails the compile.
    name: names the pass for `clear`.
    stage: 0 before the scheduler, 1 after it.

  Raises:
    UnsupportedError: there is no CUDA plugin, or it lacks the extension.
  """
  extension = _extension()
  keep: list[object] = []
  function = _TransformFn(functools.partial(_call, callback, keep))
  callbacks = _Callbacks(_EXTENSION_VERSION, None, function)
  encoded = name.encode()
  args = _RegisterArgs(
    ctypes.sizeof(_RegisterArgs),
    encoded,
    len(encoded),
    stage,
    ctypes.pointer(callbacks),
  )
  if extension.register_xla_transform(ctypes.byref(args)):
    raise errors.UnsupportedError("The CUDA plugin refused to register a pass.")
  _registered[name, stage] = (function, callbacks, keep)


def clear(*, name: str, stage: int) -> None:
  """Takes a registered pass out again."""
  encoded = name.encode()
  args = _ClearArgs(
    ctypes.sizeof(_ClearArgs), stage, encoded, len(encoded), None, False
  )
  _extension().clear_xla_transform(ctypes.byref(args))
  _registered.pop((name, stage), None)


def _call(
  callback: Callback, keep: list[object], unused_callbacks: int, args_pointer
) -> None:
  """Bridges one call of the plugin to Python; must not raise."""
  args = args_pointer.contents
  args.changed = False
  module = ctypes.string_at(args.hlo_module.data, args.hlo_module.size)
  try:
    changed = callback(module)
  except BaseException as error:  # It would be lost on its way through C++.
    message = f"{type(error).__name__}: {error}".encode()
    args.header.has_error = True
    args.header.code = _INTERNAL_ERROR
    args.header.error_msg = _string(message, keep)
    return
  if changed is not None:
    args.transformed_hlo_module = _string(changed, keep)
    args.changed = True


def _string(data: bytes, keep: list[object]) -> _String:
  buffer = ctypes.create_string_buffer(data, len(data))
  keep[:] = [buffer]  # The plugin has copied the previous one by now.
  return _String(ctypes.cast(buffer, ctypes.c_void_p), len(data))


@functools.cache
def _extension() -> _Extension:
  path = plugin_path()
  if path is None:
    raise errors.UnsupportedError(NO_PLUGIN)
  plugin = ctypes.CDLL(str(path))
  plugin.GetPjrtApi.restype = ctypes.POINTER(_Api)
  node = plugin.GetPjrtApi().contents.extension_start
  while node:
    if node.contents.type == _EXTENSION_TYPE:
      return ctypes.cast(node, ctypes.POINTER(_Extension)).contents
    node = node.contents.next
  raise errors.UnsupportedError(
    f"{path} does not let programs add HLO passes; it needs jaxlib 0.10.2 or"
    " newer."
  )
