# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA combines the groups that it is given, and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import math

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec
import numpy as np
import pytest

import combine_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.compile import compiler
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import lowered as lowered_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import collectives
from lagom_xla.passes import combine
from lagom_xla.passes import hlo
from lagom_xla.passes import in_compile
from lagom_xla.passes import registry
from lagom_xla.passes.combine import combinable
from lagom_xla.passes.combine import table

_CLUSTER = cluster_lib.parse("1x8xh100")

LowerStep = Callable[..., jax.stages.Lowered]


def grouped(
  groups: combine.Groups, options: Mapping[str, int] | None = None
) -> config_lib.XlaConfig:
  return config_lib.XlaConfig(options=options or {}, combine_groups=groups)


@pytest.fixture(scope="module")
def unrolled(fsdp_step: LowerStep) -> target_lib.Target:
  """Four layers that each gather two weights and scatter two gradients."""
  return target_lib.of_step(fsdp_step(unroll=True), _CLUSTER, name="unrolled")


@pytest.fixture(scope="module")
def scan(fsdp_step: LowerStep) -> target_lib.Target:
  """The same in loops: collectives stand in three computations."""
  return target_lib.of_step(fsdp_step(), _CLUSTER, name="scan")


def _candidates(target: target_lib.Target) -> dict[str, combinable.Candidate]:
  return combinable.find(target.identity())


def _of_kind(target: target_lib.Target, kind: str) -> list[str]:
  return [c.label for c in _candidates(target).values() if c.kind == kind]


def _scheduled(
  target: target_lib.Target, groups: combine.Groups
) -> dict[tuple[str, ...], collectives.Collective]:
  """The scheduled collectives by the labels that they hold."""
  module = target.schedule(grouped(groups))
  labels = combine.labels(module, groups)
  return {labels[c.name]: c for c in collectives.find(module)}


def test_labels_are_the_names_before_combining(
  unrolled: target_lib.Target,
) -> None:
  module = unrolled.identity()
  assert not module.is_scheduled
  found = {c.name for c in collectives.find(module)}
  assert set(_candidates(unrolled)) == found
  # A weight and a gradient of each half layer and of the output; the loss.
  # Sharded gradients are reduce-scatters to be.
  kinds = [c.kind for c in _candidates(unrolled).values()]
  assert kinds.count("all-gather") == kinds.count("reduce-scatter") == 2 * 4 + 1
  assert kinds.count("all-reduce") == 1
  # The same in every compile.
  assert set(_candidates(unrolled)) == found


@pytest.mark.parametrize("name", ["scan", "unrolled"])
def test_without_groups_all_stay_alone(
  name: str, request: pytest.FixtureRequest
) -> None:
  target = request.getfixturevalue(name)
  candidates = _candidates(target)
  scheduled = _scheduled(target, ())
  assert set(scheduled) == {(label,) for label in candidates}
  for (label,), collective in scheduled.items():
    assert collective.num_operands == 1
    assert collective.kind == candidates[label].kind
    assert table.combined_bytes(collective) == candidates[label].num_bytes


@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter"])
def test_groups_are_combined_and_the_rest_stays_alone(
  unrolled: target_lib.Target, kind: str
) -> None:
  first, second, third, fourth, fifth, *_ = _of_kind(unrolled, kind)
  # Neither neighbours only nor in the module's order.
  groups = ((third, first), (second, fifth, fourth))
  scheduled = _scheduled(unrolled, groups)
  rest = set(_candidates(unrolled)) - {first, second, third, fourth, fifth}
  assert set(scheduled) == {*groups, *((label,) for label in rest)}
  for group in groups:
    assert scheduled[group].kind == kind
    assert scheduled[group].num_operands == len(group)


def test_groups_in_a_loop_stay_in_the_loop(scan: target_lib.Target) -> None:
  candidates = _candidates(scan).values()
  body = [c.label for c in candidates if c.kind == "reduce-scatter"][1:]
  scheduled = _scheduled(scan, (tuple(body),))
  assert len(body) == 2
  assert scheduled[tuple(body)].executions == 4
  assert not scheduled[tuple(body)].is_pipelined


def test_xlas_own_groups_give_xlas_own_schedule(
  unrolled: target_lib.Target,
) -> None:
  def opcodes(module: hlo.Module) -> list[str]:
    return [i.opcode for i in module.entry.instructions]

  groups = tuple(
    tuple(_of_kind(unrolled, kind)) for kind in ("all-gather", "reduce-scatter")
  )
  regrouped = unrolled.schedule(grouped(groups))
  assert opcodes(regrouped) == opcodes(unrolled.schedule())


@pytest.fixture(scope="module")
def all_reduces(h100s: Sequence[jax.Device]) -> target_lib.Target:
  """Gradients that are the same on all devices: XLA puts them end to end."""
  mesh = jax.sharding.Mesh(np.array(h100s), ("x",))

  def loss(weights: list[jax.Array], h: jax.Array) -> jax.Array:
    for weight in weights:
      h = jax.numpy.tanh(h @ weight)
    return jax.numpy.sum(h)

  def step(weights: list[jax.Array], h: jax.Array) -> list[jax.Array]:
    return jax.grad(loss)(weights, h)

  def arg(rows: int, spec: PartitionSpec) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(
      (rows, 128), jax.numpy.float32, sharding=NamedSharding(mesh, spec)
    )

  lowered = jax.jit(step).lower(
    [arg(128, PartitionSpec())] * 4, arg(1024, PartitionSpec("x"))
  )
  return target_lib.of_step(lowered, _CLUSTER, name="all_reduces")


def test_all_reduces_that_xla_puts_end_to_end_are_known(
  all_reduces: target_lib.Target,
) -> None:
  first, second, third, fourth = _of_kind(all_reduces, "all-reduce")
  groups = ((fourth, first), (second, third))
  scheduled = _scheduled(all_reduces, groups)
  assert set(scheduled) == set(groups)
  for collective in scheduled.values():
    assert collective.operand_bytes == 2 * 4 * 128 * 128


def test_a_donated_step_needs_as_much_memory_with_groups_as_without(
  scan: target_lib.Target, fsdp_step: LowerStep
) -> None:
  # XLA's own groups, so that nothing but donation could make a difference.
  gathers = _of_kind(scan, "all-gather")[1:]
  scatters = _of_kind(scan, "reduce-scatter")[1:]
  groups = (tuple(gathers), tuple(scatters))
  plain, regrouped = scan.compile(), scan.compile(grouped(groups))
  aliases = regrouped.module.proto.input_output_alias
  assert len(aliases.entries) == 3
  assert regrouped.peak_bytes == plain.peak_bytes
  held = set(combine.labels(regrouped.module, groups).values())
  assert set(groups) <= held


def test_an_executable_keeps_donation_or_is_refused(
  scan: target_lib.Target,
  fsdp_step: LowerStep,
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  # As on live GPUs, where what comes of a compile is what runs.
  monkeypatch.setattr(devices_lib, "is_live", lambda _: True)
  lowered = fsdp_step()
  step = lowered_lib.LoweredStep(lowered, _CLUSTER)
  groups = (tuple(_of_kind(scan, "all-gather")[1:]),)
  if not registry.keeps_donation():
    with pytest.raises(
      errors.CompileError,
      match=r"jit_step donates inputs.* Use JAX 0\.11 or newer",
    ):
      compiler.compile(step, grouped(groups))
    return
  compiled = compiler.compile(step, grouped(groups))
  assert compiled.compiled is not None
  memory = compiled.compiled.memory_analysis()
  assert memory is not None
  donated = [a for a in jax.tree.leaves(lowered.args_info) if a.donated]
  assert memory.alias_size_in_bytes == sum(
    math.prod(a.shape) * a.dtype.itemsize // 8 for a in donated
  )


def test_each_compile_gets_its_own_groups(
  all_reduces: target_lib.Target,
) -> None:
  # JAX remembers executables by their options, which passes are not part of.
  first, second, *rest = _of_kind(all_reduces, "all-reduce")
  for groups in (((first, second),), (), ((second, *rest),)):
    compiled = all_reduces.compile(grouped(groups))
    held = set(combine.labels(compiled.module, groups).values())
    assert set(groups) <= held
    assert len(held) == 4 - sum(len(group) - 1 for group in groups)


def test_other_modules_are_left_alone(fsdp_step: LowerStep) -> None:
  lowered = fsdp_step()
  groups = (("no", "such", "labels"),)
  with in_compile.grouped("jit_another_step", groups):
    module = compiler.schedule(lowered_lib.LoweredStep(lowered, _CLUSTER))
  assert not combine.labels(module, groups)


def test_a_refusal_by_xla_names_the_options_that_were_asked_for(
  scan: target_lib.Target,
) -> None:
  with pytest.raises(
    errors.CompileError,
    match=r"with xla_gpu_no_such=1.*: .*No such compile option",
  ):
    scan.schedule(grouped((), {"xla_gpu_no_such": 1}))


def test_a_scheduled_module_takes_no_groups(fsdp_scan: hlo.Module) -> None:
  target = target_lib.of_module(fsdp_scan, _CLUSTER, name="step.hlo")
  assert target.schedule() is fsdp_scan
  with pytest.raises(
    errors.CompileError, match=r"step\.hlo is scheduled already"
  ):
    target.schedule(grouped(()))


def test_an_unoptimized_module_takes_groups(h100s: object) -> None:
  module = hlo.load(combine_text.HLO)
  target = target_lib.of_module(module, _CLUSTER, name="step.hlo")
  *labels, unlike = _of_kind(target, "all-gather")
  groups = (tuple(labels),)
  assert len(labels) == 2
  with pytest.raises(errors.CombineError, match=unlike):
    target.schedule(grouped(((*labels, unlike),)))
  assert groups[0] in _scheduled(target, groups)
  compiled = target.compile(grouped(groups))
  assert groups[0] in combine.labels(compiled.module, groups).values()
