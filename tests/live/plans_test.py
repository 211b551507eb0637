# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans as proposals: another process finds the same, and compiles follow them.

Steps run on eight CPU devices that stand for H100s. Searches that must find
something compile for H100s.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import threading
import time
from typing import Any

from flax import nnx
import hypothesis
from hypothesis import strategies
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import formed_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.cli import background
from lagom_xla.compile import config as config_lib
from lagom_xla.live import gpu
from lagom_xla.live import proposals as proposals_lib
from lagom_xla.passes.program import form as form_lib
from lagom_xla.tuner import tuner
import sgd_steps
import strands_step

_H100S = cluster_lib.parse("1x8xh100")
_UNTRACED = proposals_lib.Measured(trace_dir=None, step_s=1.0)
_MERGED = config_lib.XlaConfig(program=form_lib.Form(strands="merged"))
_IN_FLIGHT = "xla_gpu_experimental_parallel_collective_overlap_limit"
# A negative number in flight fails one of XLA's checks, which aborts.
_ABORTS = config_lib.XlaConfig(options={_IN_FLIGHT: -1})


def proposer(*, time_budget_s: float = 600.0) -> gpu.PlanProposer:
  return gpu.PlanProposer(
    cluster=_H100S, num_workers=0, time_budget_s=time_budget_s
  )


def payload(config: config_lib.XlaConfig, *, is_proven: bool) -> bytes:
  return gpu.Payload(xla=config, is_proven=is_proven).to_bytes()


def on_cpus() -> tuple[jax.stages.Lowered, tuple[Any, ...]]:
  """A step with two micro-batches, and its arguments."""
  jitted, args = strands_step.lowerable(jax.devices("cpu"))
  return jitted.lower(*args), args


def without_collectives() -> jax.stages.Lowered:
  """A step without communication, whose search is short."""
  mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")), ("x",))
  rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
  x = jax.ShapeDtypeStruct((16, 8), jnp.float32, sharding=rows)
  return jax.jit(lambda x: jnp.tanh(x) * 2).lower(x)


def on_h100s(devices: Any) -> jax.stages.Lowered:
  """A step whose gradients XLA could reduce in other groups."""

  def loss(weights: sgd_steps.Weights, x: jax.Array) -> jax.Array:
    for up, down in zip(*weights, strict=True):
      x = x + jnp.tanh(x @ up) @ down
    return jnp.mean(x.astype(jnp.float32) ** 2)

  return sgd_steps.lower(
    loss, devices, layers=1, rows=2048, width=2048, hidden=4096
  )


def test_plans_found_by_a_search_are_proposed_as_proven(tmp_path, monkeypatch):
  def searched(lowered: Any, cluster: Any, task: Any, *unused: Any) -> Any:
    """The other process's search, for a step that is faster in some forms."""
    background._search(tmp_path, task)
    lines = (tmp_path / gpu.FOUND).read_text().splitlines()
    yield from map(json.loads, lines)

  target = formed_target.target(lambda form: 2**30)
  monkeypatch.setattr(background, "_target", lambda folder: target)
  monkeypatch.setattr(gpu, "searched", searched)
  lowered = without_collectives()
  found = list(proposer().proposals(lowered, _UNTRACED, threading.Event()))
  ratios = [proposal.predicted_ratio for proposal in found]
  first, *runners_up = (gpu.read(it.payload) for it in found)
  assert first.xla == tuner.tune(target, in_process=True).plan.xla
  assert runners_up and first.is_proven
  assert all(it.is_proven for it in runners_up)
  assert len({it.name for it in found}) == len(found) <= 3
  assert all(ratio is not None and ratio < 1 for ratio in ratios)


def test_an_abort_of_xla_ends_only_the_process_that_tries_a_plan(h100s):
  lowered = on_h100s(h100s)
  with pytest.raises(errors.WorkerError, match="ended with status -6"):
    proposer().compile(lowered, payload(_ABORTS, is_proven=False))


def children() -> set[int]:
  """The children of this process."""
  tasks = pathlib.Path("/proc/self/task").glob("*/children")
  return {int(pid) for task in tasks for pid in task.read_text().split()}


def test_a_search_without_time_raises_an_error_naming_its_budget():
  lowered = without_collectives()
  ours = proposer(time_budget_s=0.01)
  with pytest.raises(errors.WorkerError, match=r"time budget of 0\.01 s"):
    list(ours.proposals(lowered, _UNTRACED, threading.Event()))


def test_costs_are_predicted_if_the_trace_is_unreadable(tmp_path, caplog):
  lowered = without_collectives()  # Nothing is faster.
  measured = proposals_lib.Measured(trace_dir=tmp_path, step_s=1.0)
  with caplog.at_level("WARNING"):
    assert not list(proposer().proposals(lowered, measured, threading.Event()))
  assert "Costs are predicted instead." in caplog.text


def test_a_step_on_fewer_devices_than_the_cluster_has_is_rejected():
  lowered = jax.jit(lambda x: x + 1).lower(jnp.zeros(8))
  with pytest.raises(errors.TargetError, match="1 of the 8 devices"):
    list(proposer().proposals(lowered, _UNTRACED, threading.Event()))


@hypothesis.settings(max_examples=30)
@hypothesis.given(
  strategies.dictionaries(
    strategies.from_regex(r"xla_[a-z]{1,8}", fullmatch=True),
    strategies.booleans() | strategies.integers(0, 2**31) | strategies.text(),
  ),
  strategies.none()
  | strategies.lists(
    strategies.lists(strategies.text(), max_size=3).map(tuple), max_size=3
  ).map(tuple),
  strategies.booleans(),
)
def test_a_payload_round_trips_through_bytes(options, groups, is_proven):
  config = config_lib.XlaConfig(options=options, combine_groups=groups)
  before = gpu.Payload(xla=config, is_proven=is_proven)
  assert gpu.read(before.to_bytes()) == before


@pytest.mark.parametrize(
  "raw", [b"", b"{", b"\xff", b"[]", b'{"xla": {}}', b'{"is_proven": true}']
)
def test_an_invalid_payload_is_rejected(raw):
  with pytest.raises(errors.PlanError, match="config that cannot be read"):
    gpu.read(raw)


def test_a_compiled_proposal_has_one_digest_and_gives_the_steps_bits():
  lowered, args = on_cpus()
  ours = proposer()
  compiled, proven = (
    ours.compile(lowered, payload(_MERGED, is_proven=it))
    for it in (False, True)
  )
  for_profile, as_it_is = ours.compile_for_profile(lowered), lowered.compile()
  digest = ours.digest(proven)
  assert digest == ours.digest(compiled)
  assert digest != ours.digest(as_it_is) == ours.digest(for_profile)
  results, expected = (
    it(*strands_step.values(args)) for it in (compiled, as_it_is)
  )
  jax.tree.map(np.testing.assert_array_equal, results, expected)


def test_an_nnx_step_is_sent_to_a_worker_and_compiled():
  mesh = jax.sharding.Mesh(np.array(jax.devices("cpu")), ("x",))
  rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
  whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
  layer = nnx.Linear(8, 8, rngs=nnx.Rngs(0))
  nnx.update(layer, jax.device_put(nnx.state(layer), whole))
  step = nnx.jit(lambda layer, x: jnp.mean(layer(x) ** 2))
  lowered: Any = step.lower(layer, jax.device_put(jnp.ones((16, 8)), rows))
  ours = proposer()
  compiled = ours.compile(lowered, payload(config_lib.DEFAULT, is_proven=False))
  assert ours.digest(compiled) == ours.digest(lowered.lowered.compile())


_REDUCED = "replica_groups=[1,8]<=[8], to_apply=add"
_EQUAL = (
  f"  one = f32[8] all-reduce(x), channel_id=1, {_REDUCED}",
  f"  other = f32[8] all-reduce(y), channel_id=2, {_REDUCED}",
)
_KERNELS = ("  a = f32[8] negate(x)", "  b = f32[8] negate(y)")


@hypothesis.given(
  strategies.permutations(_EQUAL), strategies.permutations(_KERNELS)
)
def test_digests_depend_on_the_order_of_collectives_but_not_of_kernels(
  equal, kernels
):
  def digest(*lines: str) -> str:
    text = "\n".join(
      (
        *("  x = f32[8] parameter(0)", "  y = f32[8] parameter(1)", *lines),
        "  ROOT all = (f32[8], f32[8], f32[8], f32[8]) tuple(one, other, a, b)",
      )
    )
    module: Any = hlo_text.text(text)
    return proposer().digest(module)

  is_alike = digest(*equal, *kernels) == digest(*_EQUAL, *_KERNELS)
  assert is_alike == (tuple(equal) == _EQUAL)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_stopped_or_killed_search_leaves_no_process_running(is_killed):
  lowered = without_collectives()
  before, stop = children(), threading.Event()

  def end_it() -> None:
    while children() <= before:
      time.sleep(0.01)
    if is_killed:
      for pid in children() - before:
        os.kill(pid, signal.SIGKILL)
    else:
      stop.set()

  thread = threading.Thread(target=end_it)
  thread.start()
  proposals = proposer().proposals(lowered, _UNTRACED, stop)
  if is_killed:
    with pytest.raises(errors.WorkerError, match="ended with status -9"):
      list(proposals)
  else:
    assert not list(proposals)
  thread.join()
  assert children() <= before
