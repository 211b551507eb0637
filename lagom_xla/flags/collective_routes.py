# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA options that run collectives other than by NCCL's tuned kernels.

*Symmetric buffers.* XLA registers the buffers of collectives as NCCL windows,
by one option for all, or from JAX 0.12 on by a list of kinds with a maximum
size each (`allgather:8388608,reducescatter`). The option, and a list with
`all`, also makes NCCL use no SM where it can (NCCL_CTA_POLICY_ZERO,
nccl_collectives.cc); a list of single kinds does not. XLA reads that policy
from XLA_FLAGS when an executable first needs a communicator, which then keeps
it. So these options belong in XLA_FLAGS, as does the cap on channels. XLA first
copies arguments and constants into windows, as schedules show.

*Copies within a process.* With `xla_gpu_use_memcpy_local_p2p`, set per
executable, the GPUs of one process exchange by memcpys. A permute does if its
whole communicator is in one process.

*Separate permutes.* By default permutes use one communicator of all devices.
With `xla_gpu_collective_permute_connected_components`, also per executable,
they use communicators of the devices that their pairs connect.
"""

from __future__ import annotations

from collections.abc import Mapping
import importlib.metadata
import re

from lagom_xla.flags import environment
from lagom_xla.flags import syntax

SYMMETRIC = "xla_gpu_experimental_enable_nccl_symmetric_buffers"
SYMMETRIC_KINDS = "xla_enable_nccl_symmetric_buffers_for_collectives"
LOCAL_COPIES = "xla_gpu_use_memcpy_local_p2p"

CONNECTED = "xla_gpu_collective_permute_connected_components"

# The gain of registered buffers is not modeled.
REGISTERED = "xla_gpu_enable_nccl_user_buffers"

# Options that act only in XLA_FLAGS.
OF_PROCESS = (SYMMETRIC, SYMMETRIC_KINDS)

# Kinds that NCCL runs differently if their buffers are windows.
_KINDS = ("all-gather", "all-reduce", "reduce-scatter")
# DebugOptions.CollectiveOpType of xla.proto, in small letters.
_ALL = ("all", "allcollectives")
_UNBOUNDED_BYTES = 2**62

# The NCCL whose source the costs are from, assumed if none is installed.
READ_NCCL = (2, 30, 7)
_PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")


def symmetric(options: Mapping[str, object]) -> tuple[tuple[str, int], ...]:
  """Kinds whose buffers are windows, each with its maximum bytes.

  Args:
    options: options set besides XLA_FLAGS.
  """
  if is_on(SYMMETRIC, options):
    return tuple((kind, _UNBOUNDED_BYTES) for kind in _KINDS)
  found: dict[str, int] = {}
  for kind, most_bytes in _filters(options):
    for named in _KINDS if kind in _ALL else (kind,):
      found[named] = max(found.get(named, 0), most_bytes)
  by_letters = {kind.replace("-", ""): kind for kind in _KINDS}
  return tuple(
    sorted(
      (by_letters.get(kind, kind), most_bytes)
      for kind, most_bytes in found.items()
      if kind in _KINDS or kind in by_letters
    )
  )


def has_windows(kind: str, options: Mapping[str, object]) -> bool:
  """Whether buffers of a kind are windows, at any size."""
  own = (*_ALL, kind, kind.replace("-", ""))
  named = any(named in own for named, _ in _filters(options))
  return named or is_on(SYMMETRIC, options)


def asks_for_no_sm(options: Mapping[str, object]) -> bool:
  """Whether XLA may ask NCCL to use no SM where it can."""
  is_all = any(kind in _ALL for kind, _ in _filters(options))
  return is_on(SYMMETRIC, options) or is_all


def copies_locally(options: Mapping[str, object]) -> bool:
  """Whether GPUs of one process exchange by memcpys."""
  return is_on(LOCAL_COPIES, options)


def permutes_apart(options: Mapping[str, object]) -> bool:
  """Whether permutes have communicators of only the devices that exchange."""
  return is_on(CONNECTED, options)


def registers_buffers() -> bool:
  """Whether XLA_FLAGS make XLA register the buffers of collectives."""
  return is_on(REGISTERED, {})


def nccl_version() -> tuple[int, ...]:
  """The version of the installed NCCL, or `READ_NCCL`."""
  return installed_nccl() or READ_NCCL


def installed_nccl() -> tuple[int, ...] | None:
  """The version of the NCCL installed with JAX, if any."""
  for package in _PACKAGES:
    try:
      found = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      continue
    return tuple(int(number) for number in re.findall(r"\d+", found)[:3])
  return None


def missing(options: Mapping[str, object]) -> str:
  """A plan's options that XLA_FLAGS lacks, as flags."""
  return " ".join(
    f"--{name}={syntax.spelled(options[name])}"
    for name in OF_PROCESS
    if name in options and not _is_alike(_given(name), options[name])
  )


def _is_alike(there: str | None, wanted: object) -> bool:
  if isinstance(wanted, bool):
    return _is_true(there) == wanted
  return (there or "") == str(wanted)


def _given(name: str) -> str | None:
  """The last value in XLA_FLAGS; None for none, "" for the name alone."""
  flags, _ = syntax.parse(environment.xla_flags())
  found = [flag.value or "" for flag in flags if flag.name == name]
  return found[-1] if found else None


def is_on(name: str, options: Mapping[str, object]) -> bool:
  """Whether an option is true, in `options` or else in XLA_FLAGS."""
  value = options.get(name, _given(name))
  return value if isinstance(value, bool) else _is_true(value)


def _is_true(value: object) -> bool:
  # A flag without a value is true (tsl/util/command_line_flags.cc).
  return value is not None and str(value).lower() in ("", "true", "1")


def _filters(options: Mapping[str, object]) -> list[tuple[str, int]]:
  """Kinds in lower case, with the maximum bytes of each."""
  text = options.get(SYMMETRIC_KINDS)
  if text is None:
    flags, _ = syntax.parse(environment.xla_flags())
    found = [flag.value for flag in flags if flag.name == SYMMETRIC_KINDS]
    text = ",".join(value for value in found if value)
  filters = []
  for entry in str(text).split(","):
    kind, _, rest = entry.strip().partition(":")
    most, _, _ = rest.partition(":")
    if kind:
      most_bytes = int(most) if most.isdecimal() else _UNBOUNDED_BYTES
      filters.append((kind.lower().replace("_", ""), most_bytes))
  return filters
