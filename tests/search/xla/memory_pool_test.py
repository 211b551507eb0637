# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A step has only the memory that JAX reserves of a GPU."""

from __future__ import annotations

import pytest

import arm_steps
import fake_target
from lagom_xla import errors
from lagom_xla.search.xla import evaluation
from lagom_xla.search.xla import memory_pool

_PYTHON = "XLA_PYTHON_CLIENT"


def _warning(peak_bytes: float) -> str:
  target = fake_target.of(lambda _: arm_steps.step(1.0))
  return evaluation.warning(target, int(peak_bytes))


@pytest.mark.parametrize(
  ("variables", "pool_gb"),
  [
    ({}, 63.7),
    ({f"{_PYTHON}_MEM_FRACTION": ".5"}, 42.5),
    ({"XLA_CLIENT_MEM_FRACTION": "0.9"}, 76.4),
    # The pool grows up to the same size.
    ({f"{_PYTHON}_PREALLOCATE": "false"}, 63.7),
    ({f"{_PYTHON}_ALLOCATOR": "platform"}, 84.9),
    ({f"{_PYTHON}_ALLOCATOR": "cuda_async"}, 63.7),
    ({"TF_FORCE_UNIFIED_MEMORY": "1"}, 84.9),
  ],
)
def test_a_step_that_exceeds_jaxs_memory_pool_gets_a_warning(
  monkeypatch, variables, pool_gb
):
  for name, value in variables.items():
    monkeypatch.setenv(name, value)
  assert not _warning((pool_gb - 0.1) * 1e9)
  too_large = _warning((pool_gb + 0.1) * 1e9)
  assert f"of the {pool_gb} GB" in too_large
  is_help = "MEM_FRACTION to let JAX take more" in too_large
  assert is_help == (pool_gb < 84)


def test_no_larger_share_is_advised_for_more_than_the_gpus_memory():
  assert "MEM_FRACTION" not in _warning(90e9)


@pytest.mark.parametrize("told", ["75%", "0", "-1", "nan", "inf", "all"])
def test_an_invalid_memory_fraction_is_rejected(monkeypatch, told):
  monkeypatch.setenv(f"{_PYTHON}_MEM_FRACTION", told)
  with pytest.raises(errors.FlagsError, match=f"{told!r}.* such as 0.9"):
    memory_pool.share()
