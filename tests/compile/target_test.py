# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A target is a step in a Python file or a module in an HLO file.

A step that is sent to another process compiles there as it would here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import pathlib

import jax
import jax.numpy as jnp
import pytest

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import load
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
from lagom_xla.passes.program import form as form_lib
import step_sources
import strands_step

_CLUSTER = cluster_lib.parse("1x8xh100")


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  return step_sources.write(tmp_path_factory.mktemp("steps"))


def gathered_bytes(target: target_lib.Target) -> list[int]:
  module = target.schedule()
  assert module.is_scheduled
  return [
    c.result_bytes for c in collectives.find(module) if c.kind == "all-gather"
  ]


@pytest.mark.parametrize(
  "function",
  [
    *("step", "factory", "sharded_by_jit", "partly_concrete", "on_cpu"),
    "takes_a_ref",
    *("by_name", "Trainer", "by_partial", "scaled", "by_method"),
  ],
)
def test_a_step_may_be_found_in_several_ways(
  h100s: Sequence[jax.Device], steps: pathlib.Path, function: str
) -> None:
  target = load.load(f"{steps}:{function}", _CLUSTER)
  assert not target.is_read_only
  # A weight that comes as a NumPy array is on all devices already.
  expected = [] if function == "partly_concrete" else [4 * 64 * 64]
  assert gathered_bytes(target) == expected


def test_a_pmapped_step_is_one_of_the_devices_that_it_was_given(
  h100s: Sequence[jax.Device], steps: pathlib.Path
) -> None:
  target = load.load(f"{steps}:maps", _CLUSTER)
  (found,) = collectives.find(target.schedule())
  assert (found.kind, found.group_size) == ("all-reduce", 8)


@pytest.mark.parametrize("function", ["step", "factory", "of_width", "Trainer"])
def test_keyword_arguments_reach_the_function_as_text(
  h100s: Sequence[jax.Device], steps: pathlib.Path, function: str
) -> None:
  target = load.load(
    f"{steps}:{function}", _CLUSTER, arguments={"width": "128"}
  )
  assert gathered_bytes(target) == [4 * 128 * 128]


def test_a_file_imports_its_neighbours(
  h100s: Sequence[jax.Device], tmp_path: pathlib.Path
) -> None:
  (tmp_path / "neighbour_of_a_step.py").write_text(step_sources.SOURCE)
  file = tmp_path / "imports.py"
  file.write_text("from neighbour_of_a_step import factory\n")
  assert gathered_bytes(load.load(f"{file}:factory", _CLUSTER))


def test_an_unoptimized_module_is_compiled(
  h100s: Sequence[jax.Device], tmp_path: pathlib.Path
) -> None:
  file = tmp_path / "step.hlo"
  file.write_text(
    hlo_text.text(
      """
        w = f32[8,64] parameter(0)
        x = f32[8,64] parameter(1)
        all = f32[64,64] all-gather(w), replica_groups={{0,1,2,3,4,5,6,7}},
          dimensions={0}, channel_id=1, use_global_device_ids=true
        copied = f32[64,64] copy(all)
        ROOT y = f32[8,64] dot(x, copied),
          lhs_contracting_dims={1}, rhs_contracting_dims={0}
      """,
      header="num_partitions=8",
    )
  )
  target = load.load(str(file), _CLUSTER)
  assert not target.is_read_only
  assert gathered_bytes(target) == [4 * 64 * 64]
  compiled = target.compile()
  # Both parameters, the gathered array and the result at least.
  assert compiled.peak_bytes is not None
  assert compiled.peak_bytes >= 4 * 64 * (8 + 8 + 64 + 8)
  with pytest.raises(
    errors.CompileError,
    match=r"^XLA could not compile for 1x8xh100 with xla_no=1: .*xla_no",
  ):
    target.schedule(config_lib.XlaConfig(options={"xla_no": 1}))


def test_a_scheduled_module_is_only_read(
  fsdp_scan: hlo.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
  def compiles(*args: object, **kwargs: object) -> None:
    raise AssertionError("a compile was started")

  monkeypatch.setattr(compiler, "schedule", compiles)
  monkeypatch.setattr(compiler, "before_combining", compiles)
  target = target_lib.of_module(fsdp_scan, _CLUSTER, name="step")
  assert target.is_read_only
  assert target.obstacle == "step is scheduled already"
  told = config_lib.XlaConfig(options={"xla_gpu_autotune_level": 0})
  assert target.schedule() is target.schedule(told) is fsdp_scan
  with pytest.raises(errors.CompileError, match="from before XLA's optim"):
    target.compile()


def test_a_module_for_other_sizes_names_its_own(fsdp_scan: hlo.Module) -> None:
  with pytest.raises(
    errors.CompileError,
    match=r"jit_step was partitioned for 8 devices, and 2x8xh100 has 16\. Name",
  ):
    target_lib.of_module(
      fsdp_scan, cluster_lib.parse("2x8xh100"), name="step.hlo"
    )


def test_without_a_cuda_plugin_a_module_says_what_to_install(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  module = hlo_text.load(
    "ROOT x = f32[8] parameter(0)", header="num_partitions=8"
  )
  target = target_lib.of_module(module, _CLUSTER, name="step.hlo")
  monkeypatch.setattr(registry, "plugin_path", lambda: None)
  with pytest.raises(
    errors.CompileError,
    match=r"1x8xh100: JAX's CUDA plugin is not installed.*'\.\[aot\]'",
  ):
    target.schedule()


def test_a_module_takes_no_keyword_arguments(tmp_path: pathlib.Path) -> None:
  with pytest.raises(errors.TargetError, match="takes no --arg"):
    load.load(str(tmp_path / "step.hlo"), _CLUSTER, arguments={"model": "8b"})


_IN_FLIGHT = "xla_gpu_experimental_parallel_collective_overlap_limit"


def sent(
  lowered: jax.stages.Lowered, folder: pathlib.Path
) -> target_lib.SentTarget:
  lowered_lib.write_step(lowered, _CLUSTER, folder)
  return target_lib.of_sent(lowered_lib.read_step(folder), name="step")


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
  here = target_lib.of_step(lowered, _CLUSTER, name="step")
  there = sent(lowered, tmp_path)
  assert text(there.schedule(config)) == text(here.schedule(config))
  assert text(there.identity()) == text(here.identity())


def test_its_compile_for_cpus_is_the_same(
  fsdp_step: Callable[..., jax.stages.Lowered], tmp_path: pathlib.Path
) -> None:
  lowered = fsdp_step(devices=jax.devices("cpu"))
  here = target_lib.of_step(lowered, _CLUSTER, name="step").compile()
  there = sent(lowered, tmp_path).compile()
  assert text(there.module) == text(here.module)
  assert there.peak_bytes == here.peak_bytes


def test_it_has_the_same_forms(tmp_path: pathlib.Path) -> None:
  jitted, args = strands_step.lowerable(jax.devices("cpu"))
  lowered = jitted.lower(*args)
  here = target_lib.of_step(lowered, _CLUSTER, name="step")
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
    lowered_lib.write_step(step.lower(jnp.zeros(8)), _CLUSTER, tmp_path)
