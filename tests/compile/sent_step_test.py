# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A step that is sent to another process compiles there as it would here."""

from __future__ import annotations

from collections.abc import Callable
import pathlib

import jax
import jax.numpy as jnp
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import target
from lagom_xla.passes import hlo
from lagom_xla.passes.program import form as form_lib
import strands_step

_H100S = cluster_lib.parse("1x8xh100")
_IN_FLIGHT = "xla_gpu_experimental_parallel_collective_overlap_limit"


def sent(
  lowered: jax.stages.Lowered, folder: pathlib.Path
) -> target.SentTarget:
  lowered_lib.write_step(lowered, _H100S, folder)
  return target.of_sent(lowered_lib.read_step(folder), name="step")


def text(module: hlo.Module) -> str:
  """All of a module but its number, which counts a process's modules."""
  proto = hlo.hlo_pb2.HloModuleProto()
  proto.CopyFrom(module.proto)
  proto.ClearField("id")
  return str(proto)


@pytest.mark.parametrize(
  "config",
  [
    config_lib.DEFAULT,
    config_lib.XlaConfig(
      options={_IN_FLIGHT: 2},
      scheduler_profile='costs { name: "fusion" }',
      combine_groups=(),
    ),
  ],
  ids=["default", "all of a config"],
)
def test_its_schedule_for_gpus_is_the_same(
  config: config_lib.XlaConfig,
  fsdp_step: Callable[..., jax.stages.Lowered],
  tmp_path: pathlib.Path,
) -> None:
  lowered = fsdp_step()
  here = target.of_step(lowered, _H100S, name="step")
  there = sent(lowered, tmp_path)
  assert text(there.schedule(config)) == text(here.schedule(config))
  assert text(there.identity()) == text(here.identity())


def test_its_compile_for_cpus_is_the_same(
  fsdp_step: Callable[..., jax.stages.Lowered], tmp_path: pathlib.Path
) -> None:
  lowered = fsdp_step(devices=jax.devices("cpu"))
  here = target.of_step(lowered, _H100S, name="step").compile()
  there = sent(lowered, tmp_path).compile()
  assert text(there.module) == text(here.module)
  assert there.peak_bytes == here.peak_bytes


def test_it_has_the_same_forms(tmp_path: pathlib.Path) -> None:
  jitted, args = strands_step.lowerable(jax.devices("cpu"))
  lowered = jitted.lower(*args)
  here = target.of_step(lowered, _H100S, name="step")
  there = sent(lowered, tmp_path)
  form = form_lib.Form(strands="merged")
  assert there.outcome(form) == here.outcome(form)
  assert there.outcome(form).actions
  config = config_lib.XlaConfig(program=form)
  assert text(there.compile(config).module) == text(here.compile(config).module)


def test_a_step_that_calls_back_is_refused(tmp_path: pathlib.Path) -> None:
  @jax.jit
  def step(x: jax.Array) -> jax.Array:
    jax.debug.print("{x}", x=x)
    return x + 1

  with pytest.raises(errors.TargetError, match="calls back into Python"):
    lowered_lib.write_step(step.lower(jnp.zeros(8)), _H100S, tmp_path)
