# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Kernels on streams that a program names count where they start."""

from __future__ import annotations

import hlo_text
from lagom_xla.costs.replay import program as program_lib
from lagom_xla.passes import overlap


def test_kernels_on_a_stream_that_a_program_names_run_where_they_start():
  # As JAX's compute_on with "gpu_stream:1" gives, and XLA prints.
  square = "f32[256,256]{1,0}"
  product = f"{square} dot(a, a), {hlo_text.DOT}"
  module = hlo_text.load(
    f"""
    p = {square} parameter(0)
    named = (({square}), {square}, u32[]) call-start(p), to_apply=elsewhere
    ROOT done = {square} call-done(named)
    """,
    computations=f"""
    elsewhere {{
      a = {square} parameter(0)
      first = {product}
      ROOT second = {product}
    }}
    """,
  )
  analysis = overlap.analyze(module)
  assert [k.name for k in analysis.kernels.values()] == ["first", "second"]
  assert program_lib.of_module(analysis) == tuple(
    map(program_lib.Launch, analysis.kernels.values())
  )
