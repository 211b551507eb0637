# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Values of XLA's options are taken where they are clear, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from jaxlib_options import BUFFERS
from jaxlib_options import GATHER
from jaxlib_options import UNROLLING
from jaxlib_options import compile_with
from jaxlib_options import option
from lagom_xla.flags import debug_options
from lagom_xla.flags import options


@pytest.mark.parametrize(
  ("name", "value", "converted"),
  [
    ("xla_gpu_enable_triton_gemm", "true", True),
    ("xla_gpu_enable_triton_gemm", "OFF", False),
    ("xla_gpu_enable_triton_gemm", 1, True),
    (GATHER, "123", 123),
    (GATHER, 1e9, 10**9),
    (UNROLLING, "full_unroll", "WHILE_LOOP_UNROLLING_FULL_UNROLL"),
    (UNROLLING, 2, "WHILE_LOOP_UNROLLING_FULL_UNROLL"),
    (BUFFERS, 11, "CONVOLUTION"),  # There is no value 10.
    (
      UNROLLING,
      "While_Loop_Unrolling_No_Unroll",
      "WHILE_LOOP_UNROLLING_NO_UNROLL",
    ),
    (BUFFERS, "", ""),
    (BUFFERS, "fusion,CUBLAS", "FUSION,CUBLAS"),
    (BUFFERS, ["FUSION"], "FUSION"),
    ("xla_disable_hlo_passes", ("a", "b"), "a,b"),
    ("xla_dump_to", "some where", "some where"),
    ("xla_gpu_auto_spmd_partitioning_memory_budget_ratio", 2, 2.0),
  ],
)
def test_a_clear_value_is_taken_and_compiles(
  name: str,
  value: object,
  converted: object,
):
  found = options.convert(option(name), value)
  assert (found, type(found)) == (converted, type(converted))
  if name != "xla_dump_to":  # It would.
    compile_with({name: found})


def test_a_list_of_enums_may_change_the_default():
  default = str(option(BUFFERS).default).split(",")
  more = options.convert(option(BUFFERS), "+COLLECTIVES,-cublas")
  assert set(str(more).split(",")) == {*default, "COLLECTIVES"} - {"CUBLAS"}


@pytest.mark.parametrize(
  ("name", "value", "rule"),
  [
    ("xla_gpu_enable_triton_gemm", "maybe", "true or false"),
    ("xla_gpu_autotune_level", True, "a whole number from -2147483648"),
    ("xla_gpu_autotune_level", 2**31, "to 2147483647"),
    ("xla_gpu_autotune_level", 2.5, "a whole number"),
    (UNROLLING, "twice", "one of WHILE_LOOP_UNROLLING_NO_UNROLL"),
    (UNROLLING, 99, "one of"),
    (BUFFERS, "FUSION,NOTHING", "a list, A,B, of: one of"),
    (BUFFERS, "+FUSION,CUBLAS", "a list"),
    ("xla_dump_to", 3, "text"),
    ("xla_gpu_auto_spmd_partitioning_memory_budget_ratio", "x", "a number"),
  ],
)
def test_any_other_value_is_refused_with_the_rule(
  name: str, value: object, rule: str
):
  with pytest.raises(options.ValueRuleError) as error:
    options.convert(option(name), value)
  assert f"{name} cannot be " in str(error.value)
  assert rule in str(error.value)


@given(st.data())
def test_a_converted_value_converts_to_itself(data: st.DataObject):
  option = data.draw(st.sampled_from(list(debug_options.options().values())))
  strategies: Mapping[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int": st.integers(*(option.int_range or (0, 0))),
    "float": st.floats(allow_nan=False, width=32),
    "enum": st.sampled_from(option.enum_values or ("",)),
    "string": st.text("ab/", max_size=3),
    "message": st.just("a=b"),
  }
  once = options.convert(option, data.draw(strategies[option.type]))
  assert options.convert(option, once) == once
  assert options.convert(option, option.default) == option.default
