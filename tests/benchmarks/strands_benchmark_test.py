# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tables and the wall clock of benchmarks.strands show what can be true.

Nothing is timed here: two hosts are tested by what they are made of.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
import os

import jax
import pytest

from benchmarks import shaped_hosts
from benchmarks.strands import __main__ as command
from benchmarks.strands import forms_table
from benchmarks.strands import modules as modules_lib
from benchmarks.strands.wall_clock import table as wall_clock
from benchmarks.workloads import architectures
from benchmarks.workloads import layout as layout_lib
from benchmarks.workloads import train_step as workloads
import fake_target
from lagom_xla import errors
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import lowered
from lagom_xla.compile import rewriting
from lagom_xla.compile import target as target_lib
from lagom_xla.passes import hlo
from lagom_xla.passes.program import form as form_lib
from lagom_xla.search import nccl
from lagom_xla.search.xla import candidates
from lagom_xla.search.xla import evaluation

TWO_IN_FLIGHT = {"xla_gpu_experimental_parallel_collective_overlap_limit": 2}
# Device memory that a step needs as written, and in a form.
_LESS, _MORE = 10**9, 2 * 10**9


def small() -> modules_lib.Module:
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
def module(h100s) -> modules_lib.Module:
  del h100s  # Only says whether there is anything to compile with.
  return small()


@pytest.fixture(scope="module")
def target(module: modules_lib.Module) -> target_lib.Target:
  return module.target()


@pytest.fixture(scope="module")
def search(target: target_lib.Target) -> candidates.Search:
  """A search of the small module with a candidate for each arm."""
  strands = form_lib.Form(strands="paired")
  chain = next(chain for chain in target.chains() if 2 in chain.pieces)
  cut = form_lib.Form(slices={chain.label: 2})
  evaluate = functools.partial(
    evaluation.evaluate_or_raise,
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
def compiled(
  target: target_lib.Target, search: candidates.Search
) -> fake_target.FakeTarget:
  """The target as the search compiled it, with peaks of memory made up."""
  modules = {
    rewriting.key(candidate.config.program): candidate.step.analysis.module
    # The default last: it is what a form stands for without options.
    for candidate in reversed(search.scheduled)
  }

  def schedule(config: config_lib.XlaConfig) -> hlo.Module:
    return modules[rewriting.key(config.program)]

  def to_the_end(config: config_lib.XlaConfig) -> lowered.Compilation:
    peak_bytes = _LESS if config.program.is_as_written else _MORE
    return lowered.Compilation(
      module=schedule(config), compiled=None, peak_bytes=peak_bytes
    )

  return fake_target.FakeTarget(
    name=target.name,
    cluster=target.cluster,
    scheduled=schedule,
    compiled=to_the_end,
    rewritten=target.outcome,
  )


@pytest.fixture(scope="module")
def arms(
  compiled: fake_target.FakeTarget, search: candidates.Search
) -> forms_table.Arms:
  return forms_table.of_search(compiled, search)


def test_a_form_that_does_not_fit_is_not_the_best(
  compiled: fake_target.FakeTarget, search: candidates.Search
):
  _, _, paired, *_ = search.scheduled
  search = candidates.Search(default=search.default, others=(paired,))
  assert search.best is paired
  gpu = dataclasses.replace(compiled.cluster.gpu, hbm_bytes=_LESS)
  cluster = dataclasses.replace(compiled.cluster, gpu=gpu)
  target = dataclasses.replace(compiled, cluster=cluster)
  found = forms_table.of_search(target, search)
  assert found.best.candidate is search.default
  assert found.best.peak_bytes == _LESS


@pytest.mark.parametrize(
  ("model", "num_params"),
  [
    (modules_lib.gpt_25b, 25e9),
    # Of its 14.77e9 all but a few thousand.
    (modules_lib.qwen3_14b_like, 14.77e9),
    # A tenth of the layers of Llama 3.1 70B.
    (modules_lib.dhellam_demo, 8.3e9),
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


def launch(**seconds: list[list[float]]) -> wall_clock.Launch:
  return wall_clock.Launch(
    seconds=seconds, is_same=dict.fromkeys(seconds, True), load=1.0
  )


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


def test_a_row_and_what_is_exposed_add_up(
  module: modules_lib.Module,
  search: candidates.Search,
  arms: forms_table.Arms,
):
  _, _, *forms = search.scheduled
  assert [arms.strands, arms.slices, arms.both] == forms
  assert not arms.flags_only.candidate.config.needs_process
  row = forms_table.row(module, arms)
  assert row["lower_bound_ms"] <= row["best_ms"] <= row["flags_only_ms"]
  assert row["flags_only_ms"] <= row["default_ms"]
  assert row["speedup"] == pytest.approx(row["flags_only_ms"] / row["best_ms"])
  rows = forms_table.exposed_rows(module, arms)
  told_ms = sum(r["exposed_ms"] for r in rows)
  # Rows below a thousandth of the step are left out.
  assert 0.9 * row["exposed_ms"] <= told_ms <= row["exposed_ms"] * (1 + 1e-9)


def test_an_interval_is_of_pairs_and_widens_where_launches_differ():
  # Rounds differ tenfold, and within each the ratio is the same.
  rounds = [1.0, 10.0, 2.0, 5.0, 3.0]
  launches = [
    launch(
      sequential=[rounds, rounds], strands=[[x * r for r in rounds], [0.1] * 5]
    ).seconds
    for x in (0.8, 0.9, 1.1, 1.2)
  ]
  one = shaped_hosts.ratio(launches[:1], "strands", "sequential")
  assert (one.ratio, one.low, one.high) == pytest.approx((0.8, 0.8, 0.8))
  all_ = shaped_hosts.ratio(launches, "strands", "sequential")
  assert all_.ratio == pytest.approx((0.8 * 0.9 * 1.1 * 1.2) ** 0.25)
  assert all_.low < 0.9 and all_.high > 1.1


def test_wall_clock_rows_are_of_the_form_that_surely_gains():
  launches = [
    launch(sequential=[[1.0, 1.1]], strands=[[0.9, 1.0]]) for _ in range(2)
  ]
  rows = wall_clock.rows_of("T 512, 200 Mb/s", launches)
  assert [row["form"] for row in rows] == ["strands", "chosen: strands"]
  assert all(row["low"] <= row["ratio"] <= row["high"] for row in rows)
