# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Registers passes with XLA; no other module does.

XLA calls a registered pass in every compile of the process. So a registration
lasts only for a `with` block, and one thread at a time may have registrations:
one before the scheduler and one after it. Callers must filter by module name.

    with registry.transformation(
        callback, stage=registry.Stage.POST_SCHEDULER, platform="cuda"
    ):
      lowered.compile()

In JAX 0.10.2, `jax.extend.xla` reaches a plugin only through a live client. To
compile without a GPU, this calls the plugin's own extension of the PJRT C API,
with the structures of PJRT_Xla_Transform_Extension (openxla/xla,
xla/pjrt/c/pjrt_c_api_xla_transform_extension.h, version 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import ctypes
import enum
import functools
import importlib.util
import itertools
import pathlib
import threading
from typing import Any

import jax
from jax.extend import xla

from lagom_xla import errors
from lagom_xla.passes import hlo

NO_PLUGIN = (
  "JAX's CUDA plugin is not installed. In a checkout of lagom_xla, `pip install"
  " '.[aot]'` (compiling without a GPU) or `pip install '.[cuda13]'` (on GPUs)"
  " installs it."
)

_EXTENSION_TYPE = 24
_EXTENSION_VERSION = 1
_INTERNAL_ERROR = 13  # PJRT_Error_Code_INTERNAL.

Callback = Callable[[bytes], bytes | None]


def _struct(**fields: Any) -> Any:
  """A C structure with these fields."""
  return type("_Struct", (ctypes.Structure,), {"_fields_": [*fields.items()]})


_Size = ctypes.c_size_t
_String = _struct(data=ctypes.c_void_p, size=_Size)
_VersionAndError = _struct(
  api_version=ctypes.c_int64,
  data=ctypes.c_void_p,
  cleanup_fn=ctypes.c_void_p,
  has_error=ctypes.c_bool,
  code=ctypes.c_int,
  error_msg=_String,
)
_TransformArgs = _struct(
  struct_size=_Size,
  header=_VersionAndError,
  hlo_module=_String,
  transformed_hlo_module=_String,
  changed=ctypes.c_bool,
)
_TransformFn = ctypes.CFUNCTYPE(
  None, ctypes.c_void_p, ctypes.POINTER(_TransformArgs)
)
_Callbacks = _struct(
  version=ctypes.c_int64,
  dtor=ctypes.c_void_p,
  transform_hlo_module=_TransformFn,
)
_RegisterArgs = _struct(
  struct_size=_Size,
  name=ctypes.c_char_p,
  name_size=_Size,
  stage=ctypes.c_int,
  callbacks=ctypes.POINTER(_Callbacks),
)
_ClearArgs = _struct(
  struct_size=_Size,
  stage=ctypes.c_int,
  name=ctypes.c_char_p,
  name_size=_Size,
  callbacks=ctypes.POINTER(_Callbacks),
  cleared=ctypes.c_bool,
)
_RegisterFn = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_RegisterArgs))
_ClearFn = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_ClearArgs))
# Extensions of other types have only the first three fields.
_Extension = _struct(
  struct_size=_Size,
  type=ctypes.c_int,
  next=ctypes.c_void_p,
  register_xla_transform=_RegisterFn,
  clear_xla_transform=_ClearFn,
)
_Api = _struct(struct_size=_Size, extension_start=ctypes.c_void_p)


class Stage(enum.Enum):
  """Where in XLA's pipeline a pass runs."""

  # After partitioning, before the collective passes, combiners and fusion.
  PRE_SCHEDULER = 0
  # After scheduling and copy insertion, before code generation.
  POST_SCHEDULER = 1


_lock = threading.RLock()
_serial = itertools.count()


def plugin_path() -> pathlib.Path | None:
  """The CUDA plugin's shared library; None if no plugin is installed."""
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


@contextlib.contextmanager
def _registered_with_plugin(
  callback: Callback, name: bytes, stage: Stage
) -> Iterator[None]:
  """Makes the CUDA plugin call `callback` in every compile."""
  extension = _extension()
  # Keeps objects alive that the plugin points to during the registration.
  keep: list[object] = []
  function = _TransformFn(functools.partial(_call, callback, keep))
  callbacks = _Callbacks(_EXTENSION_VERSION, None, function)
  register = _RegisterArgs(
    ctypes.sizeof(_RegisterArgs),
    name,
    len(name),
    stage.value,
    ctypes.pointer(callbacks),
  )
  if extension.register_xla_transform(ctypes.byref(register)):
    raise errors.UnsupportedError("The CUDA plugin refused to register a pass.")
  try:
    yield
  finally:
    clear = _ClearArgs(
      ctypes.sizeof(_ClearArgs), stage.value, name, len(name), None, False
    )
    extension.clear_xla_transform(ctypes.byref(clear))


def _call(
  callback: Callback, keep: list[object], unused_callbacks: int, args_pointer
) -> None:
  """Bridges one call of the plugin to Python; must not raise."""
  args = args_pointer.contents
  args.changed = False
  module = ctypes.string_at(args.hlo_module.data, args.hlo_module.size)
  try:
    changed = callback(module)
  except BaseException as error:  # C++ would drop it.
    message = f"{type(error).__name__}: {error}".encode()
    args.header.has_error = True
    args.header.code = _INTERNAL_ERROR
    args.header.error_msg = _string(message, keep)
    return
  if changed is not None:
    args.transformed_hlo_module = _string(changed, keep)
    args.changed = True


def _string(data: bytes, keep: list[object]) -> ctypes.Structure:
  buffer = ctypes.create_string_buffer(data, len(data))
  keep[:] = [buffer]  # The plugin has already copied the previous one.
  return _String(ctypes.cast(buffer, ctypes.c_void_p), len(data))


@functools.cache
def _extension() -> Any:
  address = plugin_api(_Api).extension_start
  while address:
    extension = _Extension.from_address(address)
    if extension.type == _EXTENSION_TYPE:
      return extension
    address = extension.next
  raise errors.UnsupportedError(
    f"{plugin_path()} does not let programs add HLO passes; it needs jaxlib"
    " 0.10.2 or newer."
  )


def plugin_api(layout: type[ctypes.Structure]) -> Any:
  """The PJRT C API of the CUDA plugin, with the fields of `layout`.

  Raises:
    UnsupportedError: no plugin is installed.
  """
  path = plugin_path()
  if path is None:
    raise errors.UnsupportedError(NO_PLUGIN)
  plugin = ctypes.CDLL(str(path))
  plugin.GetPjrtApi.restype = ctypes.POINTER(layout)
  return plugin.GetPjrtApi().contents


def keeps_donation() -> bool:
  """Whether inputs stay donated in a module that a pass returns.

  XLA copies input_output_alias and buffer_donor since openxla/xla 815875fd3c,
  which is in JAX from 0.11 on.
  """
  return jax.__version_info__ >= (0, 11)


@contextlib.contextmanager
def transformation(
  callback: Callback, *, stage: Stage, platform: str
) -> Iterator[None]:
  """Adds an HLO pass to every compile inside the `with` block.

  Args:
    callback: takes a serialized HloModuleProto; returns a changed one, or None
      to leave the module alone. Newer XLA also compiles a small module per
      kernel, so check the module's name. An exception fails the compile.
    stage: when to run.
    platform: "cpu", or "cuda" for live GPUs and ahead-of-time compiles.

  Raises:
    UnsupportedError: this installation cannot add passes.
  """
  with _lock:
    name = f"lagom_xla_{next(_serial)}"
    if platform == "cuda" and jax.__version_info__ < (0, 11):
      with _registered_with_plugin(callback, name.encode(), stage):
        yield
      return
    xla_stage = xla.PipelineStage[stage.name]
    xla.register_hlo_module_transformation(
      callback, name=name, stage=xla_stage, platforms=platform
    )
    try:
      yield
    finally:
      xla.clear_hlo_module_transformation(
        name, stage=xla_stage, platforms=platform
      )


def check_donation(module: hlo.Module, rewrite: str) -> None:
  """Checks that inputs stay donated after a pass rewrites a module.

  Raises DonationLostError if the module donates and this JAX would drop that.
  `rewrite` says what the pass does, such as "sets combine groups".
  """
  proto = module.proto
  donates = proto.input_output_alias.entries or proto.buffer_donor.entries
  if donates and not keeps_donation():
    raise errors.DonationLostError(
      f"{module.name} donates inputs, which JAX {jax.__version__} forgets when"
      f" a pass {rewrite}: the executable would need memory for both the old"
      " and the new state. Use JAX 0.11 or newer (Python 3.12)."
    )
