# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The software GPU keeps CUDA's order, and takes the configured times.

Each test runs in its own process with the software driver. Times are the
device's, between events, so that they do not depend on the host's load.
"""

from __future__ import annotations

from collections.abc import Callable
import ctypes
import threading

import pytest

from driver_calls import FAILING
from driver_calls import LAUNCH_FAILED
from driver_calls import LONG
from driver_calls import LONG_MS
from driver_calls import OUT_OF_MEMORY
from driver_calls import SHORT
from driver_calls import SHORT_MS
from driver_calls import TIMES
from driver_calls import CudaError
from driver_calls import Gpu
from driver_calls import Ranks

_NUM_SMS = 132
_NUM_CHANNELS = 24  # The default channels of a collective.
_BYTES = 64 * 2**20


def _all_reduce_ms(gpu: Gpu) -> float:
  other = gpu.another()
  ranks = Ranks((gpu, other))
  one, two = gpu.stream(), other.stream()
  with gpu.held(one):
    before = gpu.event(one)
    other.wait(two, before)
    ranks.all_reduce(0, one, _BYTES)
    ranks.all_reduce(1, two, _BYTES)
    after = gpu.event(one)
  return gpu.elapsed_ms(before, after)


def kernels_of_a_stream_run_one_after_the_other() -> None:
  gpu = Gpu()
  stream = gpu.stream()
  with gpu.held(stream):
    before = gpu.event(stream)
    gpu.launch(SHORT, stream)
    gpu.launch(LONG, stream)
    after = gpu.event(stream)
  assert gpu.elapsed_ms(before, after) == pytest.approx(SHORT_MS + LONG_MS)


def kernels_of_two_streams_run_at_once() -> None:
  gpu = Gpu()
  one, other = gpu.stream(), gpu.stream()
  with gpu.held(one):
    before = gpu.event(one)
    gpu.wait(other, before)
    gpu.launch(LONG, one)
    gpu.launch(SHORT, other)
    gpu.wait(one, gpu.event(other))
    after = gpu.event(one)
  assert gpu.elapsed_ms(before, after) == pytest.approx(LONG_MS)


def a_stream_that_waits_for_an_event_goes_on_after_it() -> None:
  gpu = Gpu()
  one, other = gpu.stream(), gpu.stream()
  with gpu.held(one):
    before = gpu.event(one)
    gpu.launch(LONG, one)
    gpu.wait(other, gpu.event(one))
    gpu.launch(SHORT, other)
    after = gpu.event(other)
  assert gpu.elapsed_ms(before, after) == pytest.approx(LONG_MS + SHORT_MS)


def host_functions_run_where_they_are_in_the_stream() -> None:
  gpu = Gpu()
  stream = gpu.stream()
  cells = (ctypes.c_uint32 * 1)(0)
  memory = gpu.memory(4)
  seen: list[int] = []
  host = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
    lambda _: seen.append(cells[0])
  )
  with gpu.held(stream):
    gpu.launch(SHORT, stream)
    gpu.call("cuMemsetD32Async", memory, 7, ctypes.c_size_t(1), stream)
    gpu.call("cuMemcpyDtoHAsync_v2", cells, memory, ctypes.c_size_t(4), stream)
    gpu.call("cuLaunchHostFunc", stream, host, None)
    gpu.call("cuMemsetD32Async", memory, 8, ctypes.c_size_t(1), stream)
    gpu.call("cuMemcpyDtoHAsync_v2", cells, memory, ctypes.c_size_t(4), stream)
  assert seen == [7]
  assert cells[0] == 8


def a_captured_graph_runs_as_the_streams_that_it_was_captured_of() -> None:
  gpu = Gpu()
  one, other = gpu.stream(), gpu.stream()
  gpu.call("cuStreamBeginCapture_v2", one, 0)
  gpu.launch(SHORT, one)
  gpu.wait(other, gpu.event(one))
  gpu.launch(LONG, one)
  gpu.launch(SHORT, other)
  gpu.wait(one, gpu.event(other))
  gpu.launch(SHORT, one)
  graph, launched = ctypes.c_void_p(), ctypes.c_void_p()
  gpu.call("cuStreamEndCapture", one, ctypes.byref(graph))
  gpu.call(
    "cuGraphInstantiateWithFlags",
    *(ctypes.byref(launched), graph, ctypes.c_ulonglong(0)),
  )
  for _ in range(2):
    with gpu.held(one):
      before = gpu.event(one)
      gpu.call("cuGraphLaunch", launched, one)
      after = gpu.event(one)
    expected_ms = SHORT_MS + LONG_MS + SHORT_MS
    assert gpu.elapsed_ms(before, after) == pytest.approx(expected_ms)


def what_threads_launch_on_one_stream_all_runs() -> None:
  gpu = Gpu()
  stream = gpu.stream()
  graph, launched = ctypes.c_void_p(), ctypes.c_void_p()
  gpu.call("cuStreamBeginCapture_v2", stream, 0)
  for _ in range(100):
    gpu.launch("kernel", stream)
  gpu.call("cuStreamEndCapture", stream, ctypes.byref(graph))
  gpu.call(
    "cuGraphInstantiateWithFlags",
    *(ctypes.byref(launched), graph, ctypes.c_ulonglong(0)),
  )
  is_over = threading.Event()

  def record_events() -> None:
    event = gpu.event(stream)
    while not is_over.is_set():
      gpu.call("cuEventRecord", event, stream)
      gpu.call("cuEventSynchronize", event)

  recording = threading.Thread(target=record_events)
  recording.start()
  for _ in range(500):
    gpu.call("cuGraphLaunch", launched, stream)
    gpu.call("cuStreamSynchronize", stream)
  is_over.set()
  recording.join()


def memory_is_what_the_device_has() -> None:
  gpu = Gpu()
  kept = gpu.memory(60 * 10**9)
  with pytest.raises(CudaError) as error:
    gpu.memory(60 * 10**9)
  assert error.value.args == (OUT_OF_MEMORY,)
  gpu.call("cuMemFree_v2", kept)
  gpu.memory(60 * 10**9)


def a_launch_fails_where_it_is_told_to() -> None:
  gpu = Gpu()
  stream = gpu.stream()
  with pytest.raises(CudaError) as error:
    gpu.launch(FAILING, stream)
  assert error.value.args == (LAUNCH_FAILED,)
  gpu.launch(SHORT, stream)
  gpu.call("cuStreamSynchronize", stream)


def ranks_of_a_collective_wait_for_the_last() -> None:
  gpu = Gpu()
  other = gpu.another()
  ranks = Ranks((gpu, other))
  early, late = gpu.stream(), other.stream()
  with gpu.held(late):
    before = other.event(late)
    gpu.wait(early, before)
    ranks.all_reduce(0, early, _BYTES)
    other.launch(LONG, late)
    ranks.all_reduce(1, late, _BYTES)
    gpu.wait(late, gpu.event(early))
    after = other.event(late)
  took_ms = gpu.elapsed_ms(before, after) - LONG_MS
  assert took_ms == pytest.approx(_all_reduce_ms(gpu), abs=1e-3)


def kernels_have_the_sms_that_collectives_leave() -> None:
  gpu = Gpu()
  ranks = Ranks((gpu, gpu.another()))
  stream, beside = gpu.stream(), gpu.stream()
  with gpu.held(stream):
    before = gpu.event(stream)
    gpu.wait(beside, before)
    ranks.all_reduce(0, beside, _BYTES)  # It waits for the other rank.
    gpu.launch(LONG, stream)
    after = gpu.event(stream)
  share_left = 1 - _NUM_CHANNELS / _NUM_SMS
  expected_ms = LONG_MS / share_left
  assert gpu.elapsed_ms(before, after) == pytest.approx(expected_ms)


_STATEMENTS: tuple[Callable[[], None], ...] = (
  kernels_of_a_stream_run_one_after_the_other,
  kernels_of_two_streams_run_at_once,
  a_stream_that_waits_for_an_event_goes_on_after_it,
  host_functions_run_where_they_are_in_the_stream,
  a_captured_graph_runs_as_the_streams_that_it_was_captured_of,
  what_threads_launch_on_one_stream_all_runs,
  memory_is_what_the_device_has,
  a_launch_fails_where_it_is_told_to,
  ranks_of_a_collective_wait_for_the_last,
  kernels_have_the_sms_that_collectives_leave,
)


@pytest.mark.parametrize("statement", _STATEMENTS, ids=lambda s: s.__name__)
def test_driver(
  on_gpus: Callable[..., str], statement: Callable[[], None]
) -> None:
  on_gpus(statement, kernels=TIMES)
