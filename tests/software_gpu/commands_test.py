# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Commands find the same GPUs as JAX."""

from __future__ import annotations

from collections.abc import Callable
import re
import sys

from lagom_xla import cli


def the_doctor() -> None:
  sys.argv = ["lagom-xla", "doctor"]
  cli.run()


def test_the_doctor_finds_gpus_and_takes_a_trace(
  on_gpus: Callable[..., str],
) -> None:
  said = on_gpus(the_doctor)
  found = dict(re.findall(r"^ *works +(GPUs|profiler) +(.*)$", said, re.M))
  assert found == {
    "GPUs": "2 NVIDIA H100 80GB HBM3 (software GPU)",
    "profiler": "took and read a trace on GPU",
  }
