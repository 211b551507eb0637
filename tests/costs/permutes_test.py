# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Permutes in XLA's communicators for them."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest

import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.compile import config as config_lib
from lagom_xla.compile import devices as devices_lib
from lagom_xla.compile import target as target_lib
from lagom_xla.costs import in_words
from lagom_xla.costs import routes
from lagom_xla.costs import step as step_lib
from lagom_xla.costs import uncertainty
from lagom_xla.explain import explaining
from lagom_xla.flags import collective_routes
from lagom_xla.flags import debug_options
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.report import notes
from lagom_xla.search.xla import arms
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import knobs
from lagom_xla.tuner import tuner
from lagom_xla.verify import effects

_MIB = 2**20
_FLAG = collective_routes.CONNECTED
_APART = routes.Asked(permutes_apart=True)
_SIXTEEN = cluster_lib.parse("16x8xh100")
_TWO = cluster_lib.parse("2x8xh100")


def _permute(
  num_bytes: int, pairs: Sequence[tuple[int, int]], num_devices: int
) -> step_lib.Step:
  told = ",".join(f"{{{a},{b}}}" for a, b in pairs)
  array = f"f32[{num_bytes // 4}]"
  module = hlo_text.load(
    f"p = {array} parameter(0)\n"
    f"s = ({array}, {array}) collective-permute-start(p), channel_id=1,"
    f" source_target_pairs={{{told}}}\n"
    f"ROOT d = {array} collective-permute-done(s)",
    header=f"is_scheduled=true, num_partitions={num_devices}",
  )
  return step_lib.of_module(module, _SIXTEEN)


def _rings(num_devices: int, size: int) -> list[tuple[int, int]]:
  return [(d, d // size * size + (d + 1) % size) for d in range(num_devices)]


def _lone(step: step_lib.Step) -> tuple[int, float]:
  """The channels and the time of the only key."""
  (key,) = step.keys
  setting = step.default[key]
  return setting.num_channels, step.predict(key, setting).time_us


def test_a_permute_in_a_node_is_much_faster_in_its_own_communicator():
  step = _permute(256 * _MIB, _rings(128, 8), 128)
  (key,) = step.keys
  # The key counts ranks that exchange data, 8 in one node, which set NCCL's
  # link and latency.
  assert (key.num_ranks, key.num_nodes) == (8, 1)
  # P2P_PER_CHANNEL_NET_BW makes 4 channels of 50 GB/s, halved until 128 ranks,
  # 8 at once, fit into 16 to 32 channels.
  (few, slow_us), (many, fast_us) = map(_lone, (step, step.asking(_APART)))
  assert (few, many) == (1, 16)
  # openxla/xla#40505: "10-20x times faster".
  assert 10 < slow_us / fast_us < 20


def test_own_communicators_speed_up_inter_node_but_not_global_permutes():
  lines = [(d, (d + 8) % 128) for d in range(128)]
  step = _permute(256 * _MIB, lines, 128)
  (_, slow_us), (_, fast_us) = map(_lone, (step, step.asking(_APART)))
  assert 1.5 < slow_us / fast_us < 4
  ring = _permute(256 * _MIB, _rings(8, 8), 8)
  assert _lone(ring) == _lone(ring.asking(_APART))


def test_permute_times_match_measurements_in_both_communicators():
  step = _permute(64 * _MIB, _rings(8, 4), 8)
  (_, whole_us), (_, half_us) = map(_lone, (step, step.asking(_APART)))
  # nccl-tests' sendrecv_perf on 8 and on 4 GPUs of a node of H100s, NCCL
  # 2.29.2 (github.com/xxrjun/nccl-tests-cluster).
  assert whole_us == pytest.approx(820.17, rel=0.04)
  assert half_us == pytest.approx(426.49, rel=0.04)


def test_small_permutes_within_a_node_use_ll():
  (setting,) = _permute(4096, _rings(128, 8), 128).default.values()
  assert setting.protocol == "ll"


def test_copy_engines_run_permutes_whose_communicator_is_one_process():
  copied = routes.Asked(copies_locally=True)
  both = dataclasses.replace(copied, permutes_apart=True)
  step = _permute(_MIB, _rings(128, 8), 128)
  assert not step.asking(copied).routes
  assert step.asking(both).routes
  assert _permute(_MIB, _rings(8, 8), 8).asking(copied).routes


def test_copy_engines_are_offered_for_permutes_within_a_process():
  step = _permute(16 * _MIB, _rings(8, 8), 8)
  (value,) = (
    v
    for v in knobs.worth_trying(step)
    if collective_routes.LOCAL_COPIES in v.options
  )
  with_it = step.asking(evaluation.asked(value.options))
  (route,) = with_it.routes.values()
  assert (route.by, route.cost.num_channels) == ("copy engines", 0)
  per_gpu = dataclasses.replace(_SIXTEEN, processes_per_node=8)
  for no_use in (
    with_it,
    step_lib.of_module(step.analysis.module, per_gpu),
    _permute(16 * _MIB, [(d, (d + 8) % 128) for d in range(128)], 128),
  ):
    assert not any(
      collective_routes.LOCAL_COPIES in v.options
      for v in knobs.worth_trying(no_use)
    )


_COPIES = {collective_routes.LOCAL_COPIES: True}


def test_no_plan_depends_on_copies_that_were_never_measured():
  module = _permute(16 * _MIB, _rings(8, 8), 8).analysis.module
  tuning = tuner.tune(fake_target.of(lambda _: module))
  assert not tuning.plan.xla.options
  (copied,) = (
    c for c in tuning.search.scheduled if c.config.options == _COPIES
  )
  assert copied.tuned.step_time_us < tuning.search.best.tuned.step_time_us
  assert "never measured" in tuning.search.obstacle(copied)
  (told,) = (n for n in notes.tuning_notes(tuning) if "Not in the plan" in n)
  assert f"--{collective_routes.LOCAL_COPIES}=true" in told
  assert f"{in_words.ms(copied.tuned.step_time_us)} ms" in told


def test_the_range_of_copied_permutes_includes_no_gain():
  step = _permute(16 * _MIB, _rings(8, 8), 8)
  copied = step.asking(evaluation.asked(_COPIES))
  before, after = (uncertainty.times(s, s.default) for s in (step, copied))
  assert after.mean_us < before.mean_us == after.sure_us
  assert uncertainty.step_time(after).high >= before.mean_us
  assert uncertainty.gain(before, after).low <= 0
  (told,) = (
    n for n in notes.route_notes(copied) if "rest on measured rates" in n
  )
  assert f"{in_words.ms(before.mean_us)} ms" in told


def test_a_plan_with_copies_says_that_one_process_must_have_all_gpus():
  module = _permute(16 * _MIB, _rings(8, 8), 8).analysis.module
  arm = arms.Arm(name="copies", config=config_lib.XlaConfig(options=_COPIES))
  tuning = tuner.tune(fake_target.of(lambda _: module), arms=[arm])
  assert tuning.plan.xla.options == _COPIES
  (effect,) = tuning.effects
  assert effect.acted and "by copy engines (no SM)" in effect.evidence
  (told,) = (n for n in notes.tuning_notes(tuning) if "has an effect" in n)
  assert "if one process has all GPUs" in told


@pytest.fixture(scope="module")
def target(h100s: Sequence[jax.Device]) -> target_lib.StepTarget:
  """Two permutes on two nodes: along rings within them, and between them."""
  del h100s  # Only says whether there is anything to compile with.
  mesh = Mesh(np.array(devices_lib.devices(_TWO)).reshape(2, 8), ("n", "g"))

  def each(x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
    product = x @ x.T
    moved = jax.lax.ppermute(y, "g", [(i, (i + 1) % 8) for i in range(8)])
    swapped = jax.lax.ppermute(y * 2, "n", [(0, 1), (1, 0)])
    return product, moved, swapped

  spec = P(("n", "g"))
  step = jax.shard_map(
    each, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
  )
  x, y = (
    jax.ShapeDtypeStruct(
      shape, jnp.bfloat16, sharding=NamedSharding(mesh, spec)
    )
    for shape in ((16 * 4096, 4096), (16 * 8192, 16384))
  )
  return target_lib.of_step(jax.jit(step).lower(x, y), _TWO, name="step")


def test_the_communicator_option_is_offered_noted_and_verified(
  target: target_lib.StepTarget, monkeypatch: pytest.MonkeyPatch
):
  step = evaluation.scheduled_step(target)
  config = config_lib.XlaConfig(options={_FLAG: True})
  (value,) = (v for v in knobs.worth_trying(step) if _FLAG in v.options)
  assert value.options == config.options
  with_it = evaluation.of_schedule(step.analysis.module, target, config)
  times = [s.timeline(s.default).step_time_us for s in (step, with_it)]
  assert times[1] < times[0]
  assert not any(_FLAG in v.options for v in knobs.worth_trying(with_it))
  advice = str(
    [one.advice for one in explaining.of_step(step).before.collectives]
  )
  assert "Communicator: XLA runs it in a communicator of all GPUs" in advice
  seen = effects.Effect(
    knob=_FLAG, value="true", acted=True, evidence="not in the schedule"
  )
  assert effects.with_routes(seen, step, with_it).evidence == (
    "permutes in communicators of the GPUs that exchange data"
  )
  (told,) = (note for note in notes.step_notes(step) if _FLAG in note)
  assert "in a communicator of all GPUs" in told
  assert not any(_FLAG in note for note in notes.step_notes(with_it))
  monkeypatch.setenv("XLA_FLAGS", f"--{_FLAG}=true")
  assert evaluation.asked({}).permutes_apart


def test_the_communicator_option_is_not_offered_if_devices_are_left_out():
  step = _permute(256 * _MIB, _rings(128, 8)[:64], 128)
  assert step.permuting
  assert not any(_FLAG in note for note in notes.step_notes(step))
  assert not any(_FLAG in v.options for v in knobs.worth_trying(step))


@pytest.mark.skipif(
  debug_options.find(knobs.FABRICS) is None,
  reason="this jaxlib has one stream for both fabrics",
)
def test_a_permute_runs_on_the_stream_of_its_pairs_fabric(
  target: target_lib.StepTarget,
):
  config = config_lib.XlaConfig(options={knobs.FABRICS: "scale_up_fabric"})
  step = evaluation.scheduled_step(target, config)
  streams = {
    step.key_of[c.name].num_nodes: c.stream
    for c in step.analysis.collectives
    if c.form == "async"
  }
  assert streams.get(1, collectives_lib.SCALE_UP) == collectives_lib.SCALE_UP
  assert streams.get(2) in (None, collectives_lib.COMMUNICATION)
  assert streams
