# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Calls the software GPU's driver and collectives through ctypes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
import contextlib
import ctypes

# Names of kernels, to which `TIMES` gives these times in ms.
SHORT, LONG, FAILING = "short", "long", "failing"
TIMES = "10000 short\n30000 long\nfail failing\n"
SHORT_MS, LONG_MS = 10.0, 30.0
OUT_OF_MEMORY, LAUNCH_FAILED = 2, 719

FLOAT32, SUM = 7, 0  # NCCL's numbers of types and operations.

_Handle = ctypes.c_void_p


class CudaError(Exception):
  """A call of the driver failed; the argument is the error's number."""


class Gpu:
  """One device of this process."""

  def __init__(self, device: int = 0):
    self._cuda = ctypes.CDLL("libcuda.so.1")
    self.call("cuInit", 0)
    self._context = self._new("cuDevicePrimaryCtxRetain", device)
    self.use()
    self._module = self._new("cuModuleLoadData", b"no code")

  def call(self, name: str, *arguments: object) -> None:
    """Calls the driver.

    Raises:
      CudaError: it returned an error.
    """
    if error := getattr(self._cuda, name)(*arguments):
      raise CudaError(error)

  def _new(self, name: str, *arguments: object) -> _Handle:
    made = _Handle()
    self.call(name, ctypes.byref(made), *arguments)
    return made

  def use(self) -> None:
    """Makes this device current for this thread's calls."""
    self.call("cuCtxSetCurrent", self._context)

  def another(self) -> Gpu:
    """The process's second device."""
    return Gpu(device=1)

  def stream(self) -> _Handle:
    """A new stream."""
    self.use()
    return self._new("cuStreamCreate", 1)

  def event(self, stream: _Handle) -> _Handle:
    """An event, recorded in a stream."""
    event = self._new("cuEventCreate", 0)
    self.call("cuEventRecord", event, stream)
    return event

  def wait(self, stream: _Handle, event: _Handle) -> None:
    """Makes a stream wait for an event."""
    self.call("cuStreamWaitEvent", stream, event, 0)

  def launch(self, kernel: str, stream: _Handle, num_blocks: int = 1) -> None:
    """Launches a kernel by name."""
    function = self._new("cuModuleGetFunction", self._module, kernel.encode())
    sizes = (num_blocks, 1, 1, 32, 1, 1, 0)
    self.call("cuLaunchKernel", function, *sizes, stream, None, None)

  def memory(self, num_bytes: int) -> _Handle:
    """New memory of the device."""
    return self._new("cuMemAlloc_v2", ctypes.c_size_t(num_bytes))

  @contextlib.contextmanager
  def held(self, stream: _Handle) -> Iterator[None]:
    """Holds a stream and all that waits for it until the end of the block."""
    flag = (ctypes.c_uint32 * 1)(0)
    address = ctypes.c_uint64(ctypes.addressof(flag))
    self.call("cuStreamWaitValue32_v2", stream, address, 1, 1)
    yield
    flag[0] = 1
    self.call("cuStreamSynchronize", stream)

  def elapsed_ms(self, before: _Handle, after: _Handle) -> float:
    """The time between two events, after both have completed."""
    self.call("cuEventSynchronize", after)
    found = ctypes.c_float()
    self.call("cuEventElapsedTime_v2", ctypes.byref(found), before, after)
    return found.value


class _Id(ctypes.Structure):
  _fields_ = [("internal", ctypes.c_char * 128)]


class Ranks:
  """A communicator of several devices of this process."""

  def __init__(self, gpus: Sequence[Gpu]):
    self._nccl = ctypes.CDLL("libnccl.so.2")
    self._gpus = gpus
    self._communicators = []
    unique = _Id()
    self._call("ncclGetUniqueId", ctypes.byref(unique))
    for rank, gpu in enumerate(gpus):
      gpu.use()
      made = _Handle()
      self._call(
        "ncclCommInitRank", ctypes.byref(made), len(gpus), unique, rank
      )
      self._communicators.append(made)

  def _call(self, name: str, *arguments: object) -> None:
    assert not getattr(self._nccl, name)(*arguments), name

  @contextlib.contextmanager
  def group(self) -> Iterator[None]:
    """Makes NCCL group the calls of the block."""
    self._call("ncclGroupStart")
    yield
    self._call("ncclGroupEnd")

  def all_reduce(self, rank: int, stream: _Handle, num_bytes: int) -> None:
    """A rank's part in an all-reduce."""
    self._gpus[rank].use()
    self._call(
      *("ncclAllReduce", None, None, ctypes.c_size_t(num_bytes // 4)),
      *(FLOAT32, SUM, self._communicators[rank], stream),
    )
