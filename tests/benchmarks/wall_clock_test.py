# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The wall clock of benchmarks.strands: hosts, orders, intervals, a choice.

Nothing is timed here: two hosts are tested by what they are made of.
"""

from __future__ import annotations

import functools
import os

import jax
import numpy as np
import pytest

from benchmarks import shaped_hosts
from benchmarks.live.cpu import behind_products
from benchmarks.strands import __main__ as command
from benchmarks.strands.wall_clock import table as wall_clock
from benchmarks.strands.wall_clock import train_step
from lagom_xla import errors
from lagom_xla.compile import rewriting
from lagom_xla.passes import hlo
from lagom_xla.passes import in_compile
from lagom_xla.passes import registry
from lagom_xla.passes.program import form as form_lib

SIZES = train_step.Sizes(tokens=256, num_layers=2, num_microbatches=4)


def in_form(
  lowered: jax.stages.Lowered, strands: form_lib.Strands
) -> jax.stages.Lowered:
  form = form_lib.Form(strands=strands)
  made = rewriting.step(lowered, form)
  assert form.is_as_written or made.outcome.actions
  return made.program


def _lowered(strands: form_lib.Strands) -> jax.stages.Lowered:
  step, specs = train_step.train_step(jax.devices()[:2], SIZES)
  return in_form(step.lower(*specs), strands)


@functools.cache
def _ordered(
  strands: form_lib.Strands,
) -> tuple[jax.stages.Compiled, hlo.Module]:
  """A step with its collectives behind products, and what XLA was given."""
  rewritten: list[bytes] = []

  def rewrite(module: hlo.Module) -> bytes | None:
    found = behind_products.rewrite(module)
    if found is not None:
      rewritten.append(found)
    return found

  with in_compile.rewritten(
    "jit_train_step", rewrite, registry.Stage.POST_SCHEDULER, platform="cpu"
  ):
    compiled = _lowered(strands).compile(
      compiler_options={"xla_embed_ir_in_executable": True}
    )
  (module,) = rewritten
  return compiled, hlo.Module(hlo.hlo_pb2.HloModuleProto.FromString(module))


def _outputs(compiled: jax.stages.Compiled) -> tuple[bytes, ...]:
  """What the wall clock's step gives on two CPU devices."""
  _, specs = train_step.train_step(jax.devices()[:2], SIZES)
  rng = np.random.default_rng(0)
  arguments = jax.tree.map(
    lambda s: jax.device_put(
      rng.normal(scale=0.02, size=s.shape).astype(s.dtype), s.sharding
    ),
    specs,
  )
  found = compiled(*arguments)
  return tuple(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(found))


@pytest.fixture(scope="module")
def as_written() -> tuple[bytes, ...]:
  """What the step gives that nothing was done to."""
  return _outputs(_lowered("none").compile())


@pytest.mark.parametrize("strands", ["none", "paired", "rotated"])
def test_collectives_behind_products_change_no_bit(
  strands: form_lib.Strands, as_written: tuple[bytes, ...]
):
  compiled, _ = _ordered(strands)
  assert _outputs(compiled) == as_written


def test_collectives_stand_right_behind_products_that_they_do_not_need():
  _, module = _ordered("paired")
  num_behind = 0
  for computation in module.computations.values():
    for product, collective, kept in zip(
      computation.instructions,
      computation.instructions[1:],
      computation.instructions[2:],
      strict=False,
    ):
      # One without another product follows its own, as of JAX 0.12.
      if (
        collective.opcode in ("all-gather", "reduce-scatter")
        and behind_products.is_large(
          behind_products.num_multiplications(module, computation, product)
        )
        and product.id not in collective.operand_ids
      ):
        assert kept.opcode == "tuple"
        assert list(kept.operand_ids) == list(product.operand_ids)
        num_behind += 1
  # A layer's two forward, and three of its four in the backward pass, where
  # two strands share the loops.
  assert num_behind >= 4


def launch(**seconds: list[list[float]]) -> wall_clock.Launch:
  return wall_clock.Launch(
    seconds=seconds, is_same=dict.fromkeys(seconds, True), load=1.0
  )


def test_an_interval_is_of_pairs():
  # Rounds differ tenfold, and within each the ratio is the same.
  rounds = [1.0, 10.0, 2.0, 5.0, 3.0]
  found = launch(
    sequential=[rounds, rounds],
    strands=[[0.9 * r for r in rounds], [0.1] * 5],
  )
  ratio = shaped_hosts.ratio([found.seconds], "strands", "sequential")
  assert ratio.ratio == pytest.approx(0.9)
  assert ratio.low == pytest.approx(0.9)
  assert ratio.high == pytest.approx(0.9)


def test_launches_that_differ_widen_an_interval():
  rounds = [1.0] * 10
  launches = [
    launch(sequential=[rounds], strands=[[r * x for r in rounds]]).seconds
    for x in (0.8, 0.9, 1.1, 1.2)
  ]
  ratio = shaped_hosts.ratio(launches, "strands", "sequential")
  assert ratio.ratio == pytest.approx((0.8 * 0.9 * 1.1 * 1.2) ** 0.25)
  assert ratio.low < 0.9 and ratio.high > 1.1


def test_a_form_is_chosen_where_it_surely_gains_and_else_none():
  steady = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0, 1.0]
  slow, quick, loud = ([x * r for r in steady] for x in (1.3, 0.9, 0.99))
  loud = [x * (2 if i % 2 else 0.5) for i, x in enumerate(loud)]
  gaining = launch(sequential=[steady], strands=[quick], slices=[slow])
  losing = launch(sequential=[steady], strands=[loud], slices=[slow])
  assert wall_clock.quickest(gaining) == "strands"
  assert wall_clock.quickest(losing) == "sequential"


def test_wall_clock_rows_have_a_ratio_and_its_interval():
  launches = [
    launch(sequential=[[1.0, 1.1]], strands=[[0.9, 1.0]]) for _ in range(2)
  ]
  rows = wall_clock.rows_of("T 512, 200 Mb/s", launches)
  assert [row["form"] for row in rows] == ["strands", "chosen: strands"]
  for row in rows:
    assert row["low"] <= row["ratio"] <= row["high"]
    assert row["over"] == "sequential"


def test_without_root_the_wall_clock_is_skipped_with_one_message(
  monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
  monkeypatch.setattr(os, "geteuid", lambda: 1000)
  with pytest.raises(SystemExit, match=r"--wall-clock skipped: .* need root"):
    command.main(["--wall-clock", "--format=csv"])
  assert capsys.readouterr().out == ""


def test_hosts_and_their_processes_are_gone_after_an_error():
  obstacle = shaped_hosts.obstacle()
  if obstacle is not None:
    pytest.skip(obstacle)
  with pytest.raises(errors.LagomError, match="on purpose"):
    with shaped_hosts.pair_of_hosts(mbit_per_s=100) as pair:
      process = pair.start(0, ["sleep", "600"], {})
      assert process.poll() is None
      raise errors.LagomError("on purpose")
  assert process.poll() is not None
  assert not any(
    os.path.exists(f"/var/run/netns/{name}") for name in pair.names
  )
