# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plan is refused for what it is not for."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses

import jax
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.apply import checked
from lagom_xla.compile import target
from lagom_xla.verify import verification as verification_lib
from searched_plan import H100
from searched_plan import Tuned
from searched_plan import verify_with

LowerStep = Callable[..., jax.stages.Lowered]


@pytest.fixture(scope="module")
def tuned(searched_unrolled: Tuned) -> Tuned:
  return searched_unrolled


@pytest.mark.parametrize("package", ["jax", "jaxlib"])
def test_another_version_is_refused(tuned: Tuned, package: str):
  with pytest.raises(errors.PlanError) as refused:
    verify_with(tuned, **{f"{package}_version": "0.9.9"})
  message = str(refused.value)
  installed = {"jax": tuned.plan.jax_version}.get(
    package, tuned.plan.jaxlib_version
  )
  assert f"made with {package} 0.9.9, and {installed} is installed" in message
  assert "make the plan again" in message


@pytest.mark.parametrize(
  ("cluster", "difference"),
  [
    ("2x4xh100", "num_nodes is 2 there and 1 here"),
    ("1x8xa100_80", "gpu.name is a100_80 there and h100 here"),
    ("1x8xh100 of one slow NIC", "node.nic_gbps is 1.0 there"),
  ],
)
def test_another_cluster_is_refused_with_a_figure_that_differs(
  tuned: Tuned, cluster: str, difference: str
):
  name, _, is_slow = cluster.partition(" ")
  other = cluster_lib.parse(name)
  if is_slow:
    node = dataclasses.replace(other.node, nic_gbps=1.0)
    other = dataclasses.replace(other, node=node)
  with pytest.raises(errors.PlanError) as refused:
    verify_with(tuned, cluster=other)
  assert f"made for {other.name}, not for 1x8xh100" in str(refused.value)
  assert difference in str(refused.value)


def test_the_same_cluster_by_another_name_is_the_same(
  tuned: Tuned,
):
  renamed = dataclasses.replace(H100, name="our cluster")
  assert verify_with(tuned, cluster=renamed).all_acted


def test_another_module_is_refused(tuned: Tuned, fsdp_step: LowerStep):
  other = target.of_step(fsdp_step(), H100, name="scan")
  with pytest.raises(errors.PlanError) as refused:
    verification_lib.verify(tuned.plan, other)
  message = str(refused.value)
  assert tuned.plan.module_fingerprint in message
  assert "shapes or its shardings changed" in message
  with pytest.raises(errors.PlanError, match="make the plan again"):
    checked.compile_with(tuned.plan, other)


def test_groups_of_another_step_are_refused(tuned: Tuned):
  with pytest.raises(errors.PlanError, match=r"not for this step.*absent"):
    verify_with(tuned, told={"combine_groups": (("absent", "missing"),)})
