# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A combined collective counts as the calls that NCCL makes for its arrays."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses
import itertools

from hypothesis import given
from hypothesis import strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla import plan as plan_lib
from lagom_xla.apply.nccl import table
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import nccl
from lagom_xla.costs import step as step_lib
from lagom_xla.passes import collectives as collectives_lib
from lagom_xla.search.nccl import channel_cap
from lagom_xla.search.nccl import settings
from lagom_xla.verify import effects

_KIB, _MIB, _GIB = 2**10, 2**20, 2**30
_ATTRIBUTES = {
  "all-gather": hlo_text.GATHER,
  "all-reduce": f"{hlo_text.ALL}, to_apply=add",
  "reduce-scatter": f"{hlo_text.GATHER}, to_apply=add",
  "all-to-all": "replica_groups=[1,8]<=[8], dimensions={0}",
}


def _step(
  *arrays_kib: Sequence[int], kind: str = "all-gather"
) -> step_lib.Step:
  """A step of collectives over 8 GPUs, each of arrays of these KiB."""
  body = []
  sizes = sorted({kib for arrays in arrays_kib for kib in arrays})
  for at, kib in enumerate(sizes):
    given_bytes = kib * _KIB // (8 if kind == "all-gather" else 1)
    body.append(f"p{kib} = f32[{given_bytes // 4}] parameter({at})")
  for at, arrays in enumerate(arrays_kib):
    scale = 8 if kind == "reduce-scatter" else 1
    shapes = [f"f32[{kib * _KIB // scale // 4}]" for kib in arrays]
    result = f"({', '.join(shapes)})" if len(shapes) > 1 else shapes[0]
    operands = ", ".join(f"p{kib}" for kib in arrays)
    body.append(f"c{at} = {result} {kind}({operands}), {_ATTRIBUTES[kind]}")
  module = hlo_text.load("\n".join([*body, "ROOT end = () tuple()"]))
  return step_lib.of_module(module, cluster_lib.parse("1x8xh100"))


def _calls(
  arrays_kib: Sequence[int], kind: str = "all-gather"
) -> tuple[collective_lib.Call, ...]:
  (collective,) = _step(arrays_kib, kind=kind).analysis.collectives
  return collective_lib.calls(collective)


# Which arrays NCCL aggregates into one call.


@pytest.mark.parametrize(
  ("kind", "sizes", "runs"),
  [
    # Less than four times as large as the first of a call, not as its last.
    ("all-gather", [32 * _MIB, 8 * _MIB, 8 * _MIB], ((8, 8), (32,))),
    ("all-gather", [31 * _MIB, 8 * _MIB], ((8, 31),)),
    ("all-gather", [_MIB, 3 * _MIB, 9 * _MIB], ((1, 3), (9,))),
    # Within a quarter of a power of two, and from 1 GiB on, XLA's order stays.
    ("all-gather", [5 * _MIB - 1, 4 * _MIB, 18 * _MIB], ((5, 4, 18),)),
    ("all-gather", [4 * _MIB, 5 * _MIB - 1, 18 * _MIB], ((4, 5), (18,))),
    ("all-gather", [9 * _GIB, 2 * _GIB], ((9216, 2048),)),
    # An all-reduce moves each byte twice.
    ("all-reduce", [4 * _GIB, _GIB // 2], ((4096, 512),)),
    ("all-gather", [4 * _GIB, _GIB // 2], ((512,), (4096,))),
    # Empty arrays need no call.
    ("all-gather", [0, 8 * _MIB, 0], ((8,),)),
    ("all-gather", [0], ()),
  ],
)
def test_arrays_of_similar_size_are_aggregated_into_one_call(kind, sizes, runs):
  found = nccl.aggregates(kind, sizes)
  assert tuple(tuple(-(-b // _MIB) for b in run) for run in found) == runs


def test_very_small_arrays_keep_xlas_order():
  assert nccl.aggregates("all-gather", [1000, 10]) == ((1000, 10),)
  assert nccl.aggregates("all-gather", [10, 1000]) == ((10,), (1000,))


@given(
  st.lists(st.integers(0, 2**36), max_size=30),
  st.sampled_from(["all-gather", "all-reduce"]),
)
def test_every_array_is_in_one_call_and_under_four_times_its_first(sizes, kind):
  runs = nccl.aggregates(kind, sizes)
  assert sorted(sum(runs, ())) == sorted(filter(None, sizes))
  for run in runs:
    assert all(size < 4 * run[0] for size in run)
  for run, following in itertools.pairwise(runs):
    assert following[0] >= 4 * run[0]


# The calls of a collective.


@pytest.mark.parametrize("kind", ["all-gather", "all-reduce", "reduce-scatter"])
def test_a_combined_collective_makes_one_call_per_group_of_arrays(kind):
  assert _calls([32768, 8192, 8192], kind) == (
    collective_lib.Call(num_bytes=16 * _MIB, num_arrays=3),
    collective_lib.Call(num_bytes=32 * _MIB, num_arrays=3),
  )


@pytest.mark.parametrize("kind", ["all-gather", "all-reduce", "reduce-scatter"])
def test_a_collective_of_one_array_makes_one_call_of_its_bytes(kind):
  step = _step([8192], kind=kind)
  (collective,) = step.analysis.collectives
  assert collective.array_bytes == (collective.nccl_bytes,) == (8 * _MIB,)
  assert step.calls == {
    step.keys[0]: (collective_lib.Call(num_bytes=8 * _MIB, num_arrays=1),)
  }


def test_no_tuner_is_asked_about_send_recv_or_single_ranks():
  assert _calls([8192], "all-to-all") == ()
  alone = hlo_text.load(
    "p = f32[8] parameter(0)\nROOT c = f32[8] all-reduce(p),"
    " replica_groups={{0},{1},{2},{3}}, to_apply=add"
  )
  (collective,) = collectives_lib.find(alone)
  assert collective_lib.calls(collective) == ()


# Which key a call size belongs to.


def _sizes_kib(step: step_lib.Step) -> dict[int, list[int]]:
  """Total KiB of a key -> the KiB of its calls."""
  return {
    key.num_bytes // _KIB: [call.num_bytes // _KIB for call in calls]
    for key, calls in step.calls.items()
  }


@pytest.mark.parametrize(
  ("arrays_kib", "sizes_kib"),
  [
    # Without a common size, each key has all its calls.
    (([320, 80, 80], [40]), {480: [160, 320], 40: [40]}),
    # Equal totals of other arrays are one key.
    (([320, 80, 80], [480]), {480: [160, 320, 480]}),
    # A common size goes to the key that moves more bytes.
    (([320, 80, 80], [160]), {480: [160, 320], 160: []}),
    (([320, 80, 80], *[[160]] * 4), {480: [320], 160: [160]}),
  ],
)
def test_a_shared_call_size_belongs_to_the_key_that_moves_more_bytes(
  arrays_kib, sizes_kib
):
  assert _sizes_kib(_step(*arrays_kib)) == sizes_kib


def test_a_keys_array_count_is_that_of_its_most_frequent_collective():
  two, one = [80, 80], [160]
  for collectives, num_arrays in (([two, one, one], 1), ([two, two, one], 2)):
    step = _step(*collectives)
    (key,) = step.keys
    assert step.calls[key] == (
      collective_lib.Call(num_bytes=160 * _KIB, num_arrays=num_arrays),
    )


# Which calls a setting applies to.


def _entry(step: step_lib.Step, kib: int) -> plan_lib.NcclSetting:
  """Four channels for the key of this many KiB."""
  (key,) = [key for key in step.keys if key.num_bytes == kib * _KIB]
  setting = nccl.Setting(
    algorithm="ring", protocol="simple", num_channels=4, chunk_bytes=131072
  )
  return plan_lib.NcclSetting(
    key=key,
    calls=step.calls[key],
    setting=setting,
    default=setting,
    gain_us=0.0,
    worst_gain_us=0.0,
    worst_if="as predicted",
  )


def _evidence(step: step_lib.Step, entry: plan_lib.NcclSetting) -> str:
  (effect,) = effects.of_settings((entry,), step)
  assert effect.acted == (not effect.evidence.startswith("no effect: "))
  return effect.evidence


_SOME = [320, 80, 80]


@pytest.mark.parametrize(
  ("arrays_kib", "kib", "evidence"),
  [
    (([160], [160], [40]), 160, "applies to 2 collectives, such as c0"),
    ((_SOME, [480]), 480, "applies to 2 collectives in 3 calls, such as c0"),
    # One call's size belongs to collectives with more bytes.
    (
      *((_SOME, *[[160]] * 4), 480),
      "applies to 1 collective in 1 of 2 calls, such as c0",
    ),
    ((_SOME, *[[160]] * 4), 160, "applies to 4 collectives, such as c1"),
    # All call sizes belong to other collectives.
    (
      *((_SOME, [160]), 160),
      "no effect: NCCL tells a tuner only the sizes of calls, and"
      " 1 collective like c1 cannot be told from larger ones by size",
    ),
  ],
)
def test_a_setting_applies_to_calls_whose_sizes_belong_to_its_key(
  arrays_kib, kib, evidence
):
  step = _step(*arrays_kib)
  found = _evidence(step, _entry(step, kib))
  assert found.removesuffix(" of the planned module") == evidence


def test_a_setting_for_calls_that_ask_no_tuner_has_no_effect():
  entry = _entry(_step([240, 240]), 480)
  assert _evidence(_step(_SOME), entry) == (
    "no effect: c0 has no call of 491,520 bytes"
  )
  step = _step([8192], kind="all-to-all")
  assert _evidence(step, _entry(step, 8192)) == (
    "no effect: NCCL asks no tuner about all-to-all"
  )


@pytest.mark.parametrize("num_arrays", [1, 3, 5, 8, 40])
def test_only_channel_counts_that_nccl_can_split_over_arrays_are_tried(
  num_arrays,
):
  step = _step([16 * 1024] * num_arrays)
  (key,) = step.keys
  own, *others = settings.worth_trying(step, key)
  assert own == step.default[key] and others
  for setting in others:
    entry = dataclasses.replace(
      _entry(step, 16 * 1024 * num_arrays), setting=setting
    )
    (rule,) = table.rules_of([entry])
    most = nccl.max_channels(step.cluster, key.communicator, setting.algorithm)
    assert setting.num_channels == min(rule.num_channels * num_arrays, most)


def test_a_settings_channels_are_the_total_over_all_arrays():
  step = _step([160] * 5)
  entry = _entry(step, 800)
  twice = dataclasses.replace(entry.setting, num_channels=10)
  entry = dataclasses.replace(entry, setting=twice)
  (effect,) = effects.of_settings((entry,), step)
  assert effect.value.startswith("ring/simple, 10 channels over 5 arrays, ")
  assert " channels over 5 arrays, " in effect.replaces


@pytest.mark.parametrize(("num_mib", "is_asked"), [(1, False), (64, True)])
def test_no_tuner_is_asked_about_collectives_in_xlas_own_kernels(
  h100s, scheduled, num_mib, is_asked
):
  mesh = jax.sharding.Mesh(np.array(h100s), ("x",))
  rows, whole = (
    jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
    for axes in (("x",), ())
  )
  shape = (len(h100s), num_mib * _MIB // 4)
  x = jax.ShapeDtypeStruct(shape, jnp.float32, sharding=rows)
  summed = jax.jit(lambda x: jnp.tanh(x.sum(0)), out_shardings=whole)
  step = step_lib.of_module(
    scheduled(summed.lower(x)), cluster_lib.parse("1x8xh100")
  )
  (key,) = step.keys
  assert (key.kind, key.num_bytes) == ("all-reduce", num_mib * _MIB)
  assert bool(step.calls[key]) == is_asked
  # A cap on NCCL's channels does not affect an XLA kernel either.
  assert (channel_cap.capped(step, 1) != step.default) == is_asked
  assert (step.capped(1).default != step.default) == is_asked
