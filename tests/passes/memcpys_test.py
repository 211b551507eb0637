# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Slices that XLA moves by memcpys are recognized in a schedule.

Compiled modules show which ones they are: in JAX 0.10.2, custom fusions named
"dynamic_slice_fusion"; later versions start them ahead already in schedules.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
import pathlib

import pytest

import compiles
import hlo_text
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import load
from lagom_xla.compile import pool as pool_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import contention
from lagom_xla.costs import kernel as kernel_lib
from lagom_xla.costs import step as step_lib
from lagom_xla.flags import options as xla_options
from lagom_xla.passes import hlo
from lagom_xla.passes import kernels as kernels_lib
from lagom_xla.passes import memory_access
from lagom_xla.passes import overlap

_GPU = compiles.H100S.gpu
_EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
_DOUBLED = "xla_gpu_enable_while_loop_double_buffering"
_PIPELINED = "xla_gpu_enable_pipelined_all_gather"

# Bytes that a layer of the handwritten loop reads and writes.
_LAYER_BYTES = 1024 * 512 * 4


# A fusion that is a memcpy: its computation, its name, and bytes.
_Memcpy = tuple[str, str, int]


def _predicted(module: hlo.Module) -> set[_Memcpy]:
  """The memcpys of a module by our rules, which use no starts and no names."""
  analysis = overlap.analyze(module)
  found = {
    (kernel.computation, kernel.name, kernel.num_bytes)
    for kernel in analysis.kernels.values()
    if kernel.pattern == "memcpy"
  }
  for computation, start in _started_fusions(analysis):
    wrapped = _called(module, start)
    moved = memory_access.memcpy_bytes(module, wrapped, wrapped.root)
    if moved is not None:
      found.add((computation.name, start.name, 2 * hlo.shape_bytes(moved)))
  return found


def _made(module: hlo.Module) -> set[_Memcpy]:
  """The memcpys that XLA made in a compiled module."""
  analysis = overlap.analyze(module)
  found = set()
  for computation in analysis.sequences:
    for instruction in computation.instructions:
      config = module.backend_config(instruction)
      custom = config.get("fusion_backend_config", {})
      name = custom.get("custom_fusion_config", {}).get("name")
      if name == "dynamic_slice_fusion":
        fused = _called(module, instruction)
        (copy,) = (i for i in fused.instructions if i.opcode == "copy")
        num_bytes = 2 * hlo.shape_bytes(copy.shape)
        found.add((computation.name, instruction.name, num_bytes))
  for computation, start in _started_fusions(analysis):
    fused = _called(module, _called(module, start).root)
    slice_ = fused.behind(fused.root, ("bitcast",))
    if slice_.opcode == "dynamic-update-slice":
      _, slice_, *_ = fused.operands(slice_)
    num_bytes = 2 * hlo.shape_bytes(slice_.shape)
    found.add((computation.name, start.name, num_bytes))
  return found


def _started_fusions(
  analysis: overlap.Analysis,
) -> Iterator[tuple[hlo.Computation, hlo.Instruction]]:
  """Each `async-start` of a fusion, and its computation.

  Excludes XLA's own kernels for collectives, which are fusions, too.
  """
  for computation in analysis.sequences:
    for instruction in computation.instructions:
      if instruction.opcode != "async-start":
        continue
      root = _called(analysis.module, instruction).root
      if root.opcode == "fusion" and instruction.id not in analysis.started_by:
        yield computation, instruction


def _called(module: hlo.Module, caller: hlo.Instruction) -> hlo.Computation:
  (called_id,) = caller.called_computation_ids
  return module.computations[called_id]


@pytest.fixture(scope="module")
def without_code() -> Iterator[pool_lib.Pool]:
  """Compiles up to code generation, which is most of a complete compile."""
  with pool_lib.Pool(1, generates_code=False) as pool:
    yield pool


def _check(
  target: target_lib.Target,
  config: config_lib.XlaConfig,
  without_code: pool_lib.Pool,
  *,
  some: bool = True,
) -> None:
  compiled = target.with_workers(without_code).compile(config).module
  made = _made(compiled)
  assert bool(made) == some
  assert _predicted(target.schedule(config)) == made
  assert _predicted(compiled) == made


@pytest.mark.parametrize(
  "options",
  [
    {},
    {_DOUBLED: True},
    {_PIPELINED: True},
    {_DOUBLED: True, _PIPELINED: True},
  ],
  ids=["default", "doubled", "pipelined", "both"],
)
def test_memcpys_predicted_from_a_schedule_are_the_ones_xla_compiles(
  fsdp_step, options, without_code
):
  target = compiles.target(fsdp_step())
  fitted = xla_options.fit(options).options
  _check(target, config_lib.XlaConfig(options=fitted), without_code)


def test_memcpys_are_predicted_with_tensor_parallel_or_unrolled_layers(
  fsdp_step, tp_step, without_code
):
  _check(compiles.target(tp_step), config_lib.DEFAULT, without_code)
  # XLA makes no memcpys of unrolled layers.
  unrolled = compiles.target(fsdp_step(unroll=True))
  _check(unrolled, config_lib.DEFAULT, without_code, some=False)


def test_memcpys_are_predicted_in_the_mixture_of_experts_example(
  h100s, without_code
):
  del h100s  # Only says whether there is anything to compile with.
  place = f"{_EXAMPLES / 'moe' / 'train.py'}:train_step"
  target = load.load(place, compiles.H100S, arguments={"model": "tiny"})
  _check(target, config_lib.DEFAULT, without_code)


def _loop(body: str, *, noted: bool = True) -> kernels_lib.Kernel:
  """The kernel, or memcpy, of a fusion that writes a layer of a stack."""
  note = '{"dynamic_slice_config":{"loop_index":"0","byte_stride":"2097152"}}'
  config = f", backend_config={note}" if noted else ""
  module = hlo_text.load(
    """
      i = s32[] parameter(0)
      stack = f32[8,1024,512]{2,1,0} parameter(1)
      layer = f32[1024,512]{1,0} parameter(2)
      ROOT out = f32[8,1024,512]{2,1,0} fusion(i, stack, layer), kind=kLoop,
        calls=f
    """,
    computations=f"""
      f {{
        i = s32[] parameter(0)
        stack = f32[8,1024,512]{{2,1,0}} parameter(1)
        layer = f32[1024,512]{{1,0}} parameter(2)
        zero = s32[] constant(0)
        {body}
        ROOT out = f32[8,1024,512]{{2,1,0}} dynamic-update-slice(stack, update,
          at, zero, zero){config}
      }}
    """,
  )
  (kernel,) = overlap.analyze(module).kernels.values()
  return kernel


_UPDATE = "update = f32[1,1024,512]{2,1,0}"
_MOVES = f"""
  at = s32[] add(i, zero)
  layer.1 = f32[1,1024,512]{{2,1,0}} bitcast(layer)
  {_UPDATE} bitcast(layer)
"""


def test_a_memcpy_reads_and_writes_each_byte_of_the_slice_once():
  kernel = _loop(_MOVES)
  assert (kernel.pattern, kernel.category) == ("memcpy", "copy")
  assert kernel.num_bytes == 2 * _LAYER_BYTES


@pytest.mark.parametrize(
  ("body", "noted"),
  [
    (_MOVES, False),  # Where the slice begins is not known ahead.
    # XLA does not evaluate this offset.
    (_MOVES.replace("add", "maximum"), True),
    (
      _MOVES.replace(f"{_UPDATE} bitcast(layer)", f"{_UPDATE} negate(layer.1)"),
      True,
    ),
  ],
)
def test_a_slice_with_more_than_a_plain_copy_is_a_kernel(body, noted):
  kernel = _loop(body, noted=noted)
  assert (kernel.pattern, kernel.category) == ("elementwise", "fusion")


def test_a_memcpy_and_a_collective_share_memory_bandwidth_but_no_sms(fsdp_scan):
  step = step_lib.of_module(fsdp_scan, compiles.H100S)
  key = max(step.keys, key=lambda key: key.num_bytes)
  collective = dataclasses.replace(
    step.predict(key, step.default[key]),
    memory_gbps=_GPU.hbm_gbps / 2,
    num_channels=_GPU.num_sms - 1,
  )
  large = dataclasses.replace(_loop(_MOVES), num_bytes=1 << 30)
  alone = kernel_lib.predict(large, _GPU)
  both = contention.beside(alone, collective, _GPU)
  # Half of the bandwidth is left; no wave is lost, and the collective does not
  # wait for one.
  assert both.kernel_us == pytest.approx(2 * alone.run_us, rel=0.02)
  assert both.wait_us == 0
  assert both.collective_factor > 1
