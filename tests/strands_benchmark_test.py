# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tables of benchmarks.strands show what can be true.

Nothing is timed here: two hosts are tested by what they are made of.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
import json
import os

import jax
import numpy as np
import pytest

from benchmarks.strands import __main__ as command
from benchmarks.strands import arms as arms_lib
from benchmarks.strands import exposed_table
from benchmarks.strands import forms_table
from benchmarks.strands import models
from benchmarks.strands import module as module_lib
from benchmarks.strands import modules as modules_lib
from benchmarks.strands import settings_table
from benchmarks.strands.wall_clock import hosts
from benchmarks.strands.wall_clock import intervals
from benchmarks.strands.wall_clock import measure
from benchmarks.strands.wall_clock import order
from benchmarks.strands.wall_clock import table as wall_clock
from benchmarks.strands.wall_clock import train_step
from benchmarks.workloads import architectures
from benchmarks.workloads import layout as layout_lib
from benchmarks.workloads import train_step as workloads
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import rewriting
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import hlo
from lagom_xla.passes import registry
from lagom_xla.passes.program import form as form_lib
from lagom_xla.search import nccl
from lagom_xla.search.xla import candidates

TWO_IN_FLIGHT = {"xla_gpu_experimental_parallel_collective_overlap_limit": 2}
# What `--format=json` has to have.
FIELDS = {
  "module", "cluster", "default_ms", "flags_only_ms", "strands_ms", "slices_ms",
  "best_ms", "lower_bound_ms", "exposed_ms", "slowdown_ms", "peak_gb",
}  # fmt: skip


def small() -> module_lib.Module:
  """A module of the table with few and narrow layers."""
  module = modules_lib.MODULES["llama-8b-tp-1x8-acc4"]
  assert isinstance(module.program, workloads.Workload)
  arch = dataclasses.replace(
    module.program.arch,
    num_layers=4,
    d_model=1024,
    num_heads=8,
    num_kv_heads=8,
    d_ffn=2048,
    vocab_size=1024,
  )
  program = dataclasses.replace(module.program, arch=arch, seq_len=2048)
  return dataclasses.replace(module, name="small-tp", program=program)


@pytest.fixture(scope="module")
def module(h100s) -> module_lib.Module:
  del h100s  # Only says whether there is anything to compile with.
  return small()


@pytest.fixture(scope="module")
def search(module: module_lib.Module) -> candidates.Search:
  """A search of the small module with a candidate for each arm."""
  target = module.target()
  strands = form_lib.Form(strands="paired")
  chain = next(chain for chain in target.chains() if 2 in chain.pieces)
  cut = form_lib.Form(slices={chain.label: 2})
  evaluate = functools.partial(
    candidates.evaluate_or_raise,
    target=target,
    searcher=nccl.SEARCHERS[nccl.DEFAULT_SEARCHER],
  )
  others = (
    config_lib.DEFAULT.with_options(TWO_IN_FLIGHT),
    config_lib.XlaConfig(program=strands),
    config_lib.XlaConfig(program=cut),
    config_lib.XlaConfig(
      program=dataclasses.replace(strands, slices=cut.slices)
    ),
  )
  return candidates.Search(
    default=evaluate(config_lib.DEFAULT), others=tuple(map(evaluate, others))
  )


@pytest.fixture(scope="module")
def arms(module: module_lib.Module, search: candidates.Search) -> arms_lib.Arms:
  return arms_lib.of_search(module.target(), search)


def test_flags_only_is_what_the_tool_keeps_without_the_process(
  search: candidates.Search, arms: arms_lib.Arms
):
  default, flags, *_ = search.scheduled
  alone = candidates.Search(default=default, others=(flags,))
  assert arms.flags_only.candidate is alone.best
  assert not arms.flags_only.candidate.config.needs_process


def test_a_form_that_does_not_fit_is_not_the_best(
  module: module_lib.Module, search: candidates.Search
):
  _, _, paired, *_ = search.scheduled
  search = candidates.Search(default=search.default, others=(paired,))
  assert search.best is paired
  target = module.target()
  gpu = dataclasses.replace(target.cluster.gpu, hbm_bytes=1)
  cluster = dataclasses.replace(target.cluster, gpu=gpu)
  target = dataclasses.replace(target, cluster=cluster)
  found = arms_lib.of_search(target, search)
  assert found.best.candidate is search.default


def test_the_best_form_is_no_worse_than_flags_alone(arms: arms_lib.Arms):
  assert arms.best.tuned.step_time_us <= arms.flags_only.tuned.step_time_us
  assert arms.flags_only.tuned.step_time_us <= arms.default.step_time_us


def test_every_arm_is_of_its_kind(
  search: candidates.Search, arms: arms_lib.Arms
):
  _, _, *forms = search.scheduled
  assert [arms.strands, arms.slices, arms.both] == forms


def test_strands_run_the_same_products_and_expose_less(
  arms: arms_lib.Arms, search: candidates.Search
):
  assert arms.strands is not None

  # In operations: where both strands' products take the same weights, XLA
  # makes one of two.
  def product_flops(step: step_lib.Step) -> float:
    kernels = step.analysis.kernels.values()
    return sum(k.flops * k.executions for k in kernels if k.category == "gemm")

  found = product_flops(arms.strands.step)
  assert found == pytest.approx(product_flops(search.default.step), rel=1e-6)
  assert arms.strands.tuned.total_exposed_us < arms.default.total_exposed_us


def test_a_row_adds_up(module: module_lib.Module, arms: arms_lib.Arms):
  row = forms_table.row(module, arms)
  assert FIELDS <= set(row)
  assert row["lower_bound_ms"] <= row["best_ms"] <= row["flags_only_ms"]
  assert row["speedup"] == pytest.approx(row["flags_only_ms"] / row["best_ms"])
  assert 0 <= row["exposed_ms"] < row["best_ms"]
  assert 0 < row["peak_gb"] < 80


def test_what_is_exposed_is_told_by_collective(
  module: module_lib.Module, arms: arms_lib.Arms
):
  rows = exposed_table.rows(module, arms)
  total_ms = forms_table.row(module, arms)["exposed_ms"]
  # Rows below a thousandth of the step are left out.
  assert 0.9 * total_ms <= sum(r["exposed_ms"] for r in rows) <= total_ms
  assert [r["share"] for r in rows] == sorted(
    (r["share"] for r in rows), reverse=True
  )
  for row in rows:
    assert row["num_ranks"] == 8
    # Of a collective that waits for others, as well.
    assert row["alone_ms"] > 0


def test_json_has_the_rows_and_nothing_else(
  module: module_lib.Module,
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
  assert f"-{found.num_nodes}x8-" in name
  assert found.num_nodes * 8 == found.cluster.num_devices
  if isinstance(found.program, module_lib.Example):
    assert found.program.arguments["mesh"] == "tp:8" and "-tp-" in name
    assert name.endswith(f"-acc{found.program.arguments['accumulate']}")
    return
  layout = found.program.layout
  assert f"-{layout.kind}-" in name
  assert name.endswith(f"-acc{found.program.num_microbatches}")
  assert layout.data * layout.model == found.cluster.num_devices


@pytest.mark.parametrize(
  ("model", "num_params"),
  [
    (models.gpt_25b, 25e9),
    # Of its 14.77e9 all but a few thousand.
    (models.qwen3_14b_like, 14.77e9),
    # A tenth of the layers of Llama 3.1 70B.
    (models.dhellam_demo, 8.3e9),
  ],
)
def test_a_model_has_as_many_parameters_as_its_name_says(
  model: Callable[[], architectures.Architecture], num_params: float
):
  assert model().num_params == pytest.approx(num_params, rel=2e-2)
  work = workloads.Workload(
    arch=model(),
    layout=layout_lib.Layout(kind="tp", model=4),
    microbatch_size=1,
  )
  _, ((params, _), _) = workloads.train_step(jax.devices()[:4], work)
  counted = sum(leaf.size for leaf in jax.tree.leaves(params))
  assert counted == model().num_params


def test_every_searcher_only_ever_gains_on_a_schedule(
  module: module_lib.Module,
):
  form = form_lib.Form(strands="paired")
  row = settings_table.row(module, module.target(), form)
  for name in nccl.SEARCHERS:
    assert row[f"{name}_ms"] <= row["default_ms"]
    gain = 1 - row[f"{name}_ms"] / row["default_ms"]
    assert row[f"{name}_gain"] == pytest.approx(gain)


SIZES = train_step.Sizes(tokens=256, num_layers=2, num_microbatches=4)


def in_form(
  lowered: jax.stages.Lowered, strands: form_lib.Strands
) -> jax.stages.Lowered:
  form = form_lib.Form(strands=strands)
  made = rewriting.step(lowered, form)
  assert form.is_as_written or made.outcome.actions
  return made.program


@functools.cache
def outputs(strands: form_lib.Strands, is_ordered: bool) -> tuple[bytes, ...]:
  """What the wall clock's step gives on two CPU devices."""
  step, specs = train_step.train_step(jax.devices()[:2], SIZES)
  lowered = in_form(step.lower(*specs), strands)
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


@pytest.mark.parametrize("strands", ["none", "paired", "rotated"])
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
  lowered = in_form(step.lower(*specs), "paired")
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
