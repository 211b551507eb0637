# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reports say everything, however narrow they are shown."""

from __future__ import annotations

import dataclasses
import io
import re

import pytest
import rich.console

import fake_target
import hlo_text
from lagom_xla import cluster as cluster_lib
from lagom_xla.cli import output
from lagom_xla.compile import config as config_lib
from lagom_xla.report import terminal
from lagom_xla.tuner import tuner
from lagom_xla.tuner import tuning as tuning_lib

_H100 = cluster_lib.parse("1x8xh100")
_GATHERED_BYTES = 16 * 2**20
_COLLECTIVE = "all-gather-start.of-the-layers-that-have-experts.12"
_OPTIONS = {
  "xla_gpu_experimental_collective_start_as_early_as_possible": True,
  "xla_gpu_experimental_parallel_collective_overlap_limit": 4,
}


@pytest.fixture(scope="module")
def tuning() -> tuning_lib.Tuning:
  """A tuning that tried two options with long names."""
  start, done = hlo_text.all_gather(_COLLECTIVE, _GATHERED_BYTES)
  kernel = hlo_text.kernel("kernel", 1000.0)
  end = "ROOT result = f32[256,256] copy(kernel)"
  first = "p = f32[256,256] parameter(0)"
  module = hlo_text.load("\n".join([first, start, kernel, done, end]))
  target = fake_target.FakeTarget(
    name="step", cluster=_H100, scheduled=lambda _: module
  )
  tuning = tuner.tune(target)
  config = config_lib.XlaConfig(options=_OPTIONS)
  tried = dataclasses.replace(tuning.search.default, config=config)
  search = tuning.search.with_candidate(tried)
  return dataclasses.replace(tuning, search=search)


def _shown(tuning: tuning_lib.Tuning, width: int) -> str:
  stream = io.StringIO()
  console = rich.console.Console(file=stream, width=width, markup=False)
  terminal.show_tuning(console, tuning, [], is_verbose=True)
  return stream.getvalue()


def _joined(text: str) -> str:
  """The first column of each table, with folded names put together."""
  return "".join(re.split(r"  |\n", line)[0] for line in text.splitlines())


@pytest.mark.parametrize("width", [80, 110])
def test_no_name_of_an_option_or_a_collective_is_cut_off(
  tuning: tuning_lib.Tuning, width: int
) -> None:
  text = _shown(tuning, width)
  assert "…" not in text
  assert max(map(len, text.splitlines())) <= width
  joined = _joined(text)
  assert _COLLECTIVE in joined
  for name in _OPTIONS:
    assert name.removeprefix("xla_gpu_").removesuffix("_bytes") in joined


def test_columns_that_are_told_hold_where_the_result_is_no_terminal(
  monkeypatch: pytest.MonkeyPatch,
) -> None:
  monkeypatch.delenv("COLUMNS", raising=False)
  wide = output.console().width
  monkeypatch.setenv("COLUMNS", "77")
  assert output.console().width == 77 < wide
