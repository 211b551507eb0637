# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tables of benchmarks.strands show what can be true.

Nothing is timed here: two hosts are tested by what they are made of.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
import functools
import json
import os

import jax
import numpy as np
import pytest

from benchmarks.strands import __main__ as command
from benchmarks.strands import arms as arms_lib
from benchmarks.strands import forms
from benchmarks.strands import forms_table
from benchmarks.strands import modules as modules_lib
from benchmarks.strands import settings_table
from benchmarks.strands.wall_clock import hosts
from benchmarks.strands.wall_clock import intervals
from benchmarks.strands.wall_clock import measure
from benchmarks.strands.wall_clock import order
from benchmarks.strands.wall_clock import table as wall_clock
from benchmarks.strands.wall_clock import train_step
from lagom_xla import errors
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
from lagom_xla.passes.program import form as form_lib
from lagom_xla.search import nccl
from lagom_xla.search.xla import joint

# What `--format=json` has to have.
FIELDS = {
  "module", "cluster", "default_ms", "flags_only_ms", "strands_ms", "slices_ms",
  "best_ms", "lower_bound_ms", "exposed_ms", "slowdown_ms", "peak_gb",
}  # fmt: skip


def small() -> modules_lib.Module:
  """A module of the table with few and narrow layers."""
  module = modules_lib.MODULES["llama-8b-tp-1x8-acc4"]
  arch = dataclasses.replace(
    module.workload.arch,
    num_layers=4,
    d_model=1024,
    num_heads=8,
    num_kv_heads=8,
    d_ffn=2048,
    vocab_size=1024,
  )
  workload = dataclasses.replace(module.workload, arch=arch, seq_len=2048)
  return dataclasses.replace(module, name="small-tp", workload=workload)


@pytest.fixture(scope="module")
def module(h100s) -> modules_lib.Module:
  del h100s  # Only says whether there is anything to compile with.
  return small()


@pytest.fixture(scope="module")
def arms(module: modules_lib.Module) -> Iterator[arms_lib.Arms]:
  """The arms of the small module, each tuned with one set of options."""
  quick = functools.partial(joint.search, max_compiles=1)
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(joint, "search", quick)
    yield arms_lib.of_module(module)


def test_the_best_form_is_no_worse_than_flags_alone(arms: arms_lib.Arms):
  assert arms.best.tuned_us <= arms.as_written.tuned_us
  assert arms.as_written.tuned_us <= arms.as_written.default.step_time_us


def test_strands_run_the_same_products_and_expose_less(arms: arms_lib.Arms):
  assert arms.strands is not None
  found, before = arms.strands.default_step, arms.as_written.default_step

  # In operations: where both strands' products take the same weights, XLA
  # makes one of two.
  def product_flops(step: step_lib.Step) -> float:
    kernels = step.analysis.kernels.values()
    return sum(k.flops * k.executions for k in kernels if k.category == "gemm")

  assert product_flops(found) == pytest.approx(product_flops(before), rel=1e-6)
  exposed_us = arms.strands.default.total_exposed_us
  assert exposed_us < arms.as_written.default.total_exposed_us


def test_a_row_adds_up(module: modules_lib.Module, arms: arms_lib.Arms):
  row = forms_table.row(module, arms)
  assert FIELDS <= set(row)
  assert row["lower_bound_ms"] <= row["best_ms"] <= row["flags_only_ms"]
  assert row["speedup"] == pytest.approx(row["flags_only_ms"] / row["best_ms"])
  assert 0 <= row["exposed_ms"] < row["best_ms"]
  assert 0 < row["peak_gb"] < 80


def test_json_has_the_rows_and_nothing_else(
  module: modules_lib.Module,
  arms: arms_lib.Arms,
  monkeypatch: pytest.MonkeyPatch,
  capsys: pytest.CaptureFixture[str],
):
  monkeypatch.setattr(modules_lib, "MODULES", {module.name: module})
  monkeypatch.setattr(arms_lib, "of_module", lambda _: arms)
  command.main([f"--only={module.name}", "--format=json"])
  printed = json.loads(capsys.readouterr().out)
  assert set(printed) == {"rows"}
  (row,) = printed["rows"]
  assert set(row) == FIELDS
  assert row["cluster"] == "1x8xh100"


def test_an_unknown_module_is_refused_with_those_there_are():
  with pytest.raises(SystemExit, match=r"llama-9b is no module; .*llama-8b-tp"):
    command.main(["--only=llama-9b"])


@pytest.mark.parametrize("name", modules_lib.MODULES)
def test_a_modules_name_says_what_it_is(name: str):
  found = modules_lib.MODULES[name]
  assert f"-{found.workload.layout.kind}-" in name
  assert name.endswith(f"-acc{found.workload.num_microbatches}")
  layout = found.workload.layout
  assert layout.data * layout.model == found.cluster.num_devices
  assert f"{found.num_nodes}x" in name


def test_every_searcher_only_ever_gains_on_a_schedule(
  module: modules_lib.Module, arms: arms_lib.Arms
):
  row = settings_table.row(module, arms.as_written)
  for name in nccl.SEARCHERS:
    assert row[f"{name}_ms"] <= row["default_ms"]
    gain = 1 - row[f"{name}_ms"] / row["default_ms"]
    assert row[f"{name}_gain"] == pytest.approx(gain)


SIZES = train_step.Sizes(
  tokens=256, num_layers=2, num_microbatches=2, is_unrolled=True
)


@functools.cache
def outputs(strands: form_lib.Strands, is_ordered: bool) -> tuple[bytes, ...]:
  """What the wall clock's step gives on two CPU devices."""
  step, specs = train_step.train_step(jax.devices()[:2], SIZES)
  form = forms.in_pieces(step.lower(*specs), strands, 1)
  lowered, _ = forms.rewritten(step.lower(*specs), form)
  compiled = lowered.compile() if not is_ordered else _ordered(lowered)
  rng = np.random.default_rng(0)
  arguments = jax.tree.map(
    lambda s: jax.device_put(
      rng.normal(scale=0.02, size=s.shape).astype(s.dtype), s.sharding
    ),
    specs,
  )
  found = compiled(*arguments)
  return tuple(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(found))


def _ordered(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
  with registry.transformation(
    functools.partial(order.rewrite, "jit_train_step"),
    stage=registry.Stage.POST_SCHEDULER,
    platform="cpu",
  ):
    return lowered.compile(
      compiler_options={"xla_embed_ir_in_executable": True}
    )


@pytest.mark.parametrize("strands", ["none", "merged"])
def test_collectives_behind_products_change_no_bit(
  strands: form_lib.Strands,
):
  assert outputs(strands, True) == outputs("none", False)


def test_a_collective_stands_right_behind_a_product_that_it_does_not_need():
  seen: list[bytes | None] = []

  def spy(serialized: bytes) -> bytes | None:
    rewritten = order.rewrite("jit_train_step", serialized)
    seen.append(rewritten)
    return rewritten

  step, specs = train_step.train_step(jax.devices()[:2], SIZES)
  form = forms.in_pieces(step.lower(*specs), "merged", 1)
  lowered, _ = forms.rewritten(step.lower(*specs), form)
  with registry.transformation(
    spy, stage=registry.Stage.POST_SCHEDULER, platform="cpu"
  ):
    lowered.compile(compiler_options={"xla_embed_ir_in_executable": True})
  (rewritten,) = [r for r in seen if r is not None]
  module = hlo.Module(hlo.hlo_pb2.HloModuleProto.FromString(rewritten))
  num_behind = 0
  for computation in module.computations.values():
    instructions = computation.instructions
    for at, instruction in enumerate(instructions):
      if instruction.opcode in ("all-gather", "reduce-scatter"):
        product, kept = instructions[at - 1], instructions[at + 1]
        if order.num_multiplications(module, product):
          assert product.id not in instruction.operand_ids
          assert kept.opcode == "tuple"
          assert list(kept.operand_ids) == list(product.operand_ids)
          num_behind += 1
  # A layer's two forward, and three of its four in the backward pass, where
  # two strands share the loops.
  assert num_behind >= 4


def launch(**seconds: list[list[float]]) -> measure.Launch:
  return measure.Launch(
    seconds=seconds, is_same=dict.fromkeys(seconds, True), load=1.0
  )


def test_the_slower_host_counts():
  found = launch(sequential=[[1.0, 2.0], [3.0, 1.0]])
  np.testing.assert_array_equal(
    intervals.slower_host(found.seconds, "sequential"), [3.0, 2.0]
  )


def test_an_interval_is_of_pairs():
  # Rounds differ tenfold, and within each the ratio is the same.
  rounds = [1.0, 10.0, 2.0, 5.0, 3.0]
  found = launch(
    sequential=[rounds, rounds],
    strands=[[0.9 * r for r in rounds], [0.1] * 5],
  )
  ratio = intervals.ratio([found.seconds], "strands", "sequential")
  assert ratio.ratio == pytest.approx(0.9)
  assert ratio.low == pytest.approx(0.9)
  assert ratio.high == pytest.approx(0.9)


def test_launches_that_differ_widen_an_interval():
  rounds = [1.0] * 10
  launches = [
    launch(sequential=[rounds], strands=[[r * x for r in rounds]]).seconds
    for x in (0.8, 0.9, 1.1, 1.2)
  ]
  ratio = intervals.ratio(launches, "strands", "sequential")
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
    command.main(["--wall-clock", "--format=json"])
  assert capsys.readouterr().out == ""


def test_hosts_and_their_processes_are_gone_after_an_error():
  obstacle = hosts.obstacle()
  if obstacle is not None:
    pytest.skip(obstacle)
  with pytest.raises(errors.LagomError, match="on purpose"):
    with hosts.pair(mbit_per_s=100) as pair:
      process = pair.start(0, ["sleep", "600"], {})
      assert process.poll() is None
      raise errors.LagomError("on purpose")
  assert process.poll() is not None
  assert not any(
    os.path.exists(f"/var/run/netns/{name}") for name in pair.names
  )
