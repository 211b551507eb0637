# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A calibrated cluster takes other times, and is written and read as one."""

from __future__ import annotations

import dataclasses
import pathlib

from hypothesis import given
from hypothesis import strategies as st
import pytest

from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.calibrate import calibration as calibration_lib
from lagom_xla.calibrate import log
from lagom_xla.costs import collective as collective_lib
from lagom_xla.costs import lower_bound
from lagom_xla.costs import wire
import nccl_tests_log

_MIB = 2**20
_TWO_NODES = nccl_tests_log.TWO_NODES
_PATHS = (
  *("ring.ll", "ring.ll128", "ring.simple", "pat.simple", "nvlstree.simple"),
  *(
    "tree.ll",
    "tree.ll128",
    "tree.simple",
    "nvls.simple",
    "nvls_gather.simple",
  ),
)


@given(
  exponent=st.integers(0, 32),
  latency=st.floats(0.1, 10),
  rate=st.floats(0.1, 10),
  kind=st.sampled_from(["all-reduce", "all-gather", "reduce-scatter"]),
)
def test_calibration_changes_times_and_no_choice_of_nccls(
  exponent: int, latency: float, rate: float, kind: str
) -> None:
  site = nccl_tests_log.calibrated_by(
    _TWO_NODES, latency_factor=latency, rate_factor=rate
  )
  key = nccl_tests_log.tuning_key(_TWO_NODES, kind, 2**exponent)
  setting = collective_lib.default_setting(key, _TWO_NODES)
  assert collective_lib.default_setting(key, site) == setting
  found_us = nccl_tests_log.predicted_us(site, kind, 2**exponent)
  assert lower_bound.links_us(key, site) <= found_us * (1 + 1e-9)
  slower = nccl_tests_log.calibrated_by(
    _TWO_NODES,
    latency_factor=latency,
    rate_factor=rate,
    latency_factors=dict.fromkeys(_PATHS, 2),
    rate_factors=dict.fromkeys(_PATHS, 0.5),
  )
  assert nccl_tests_log.predicted_us(
    slower, kind, 2**exponent
  ) == pytest.approx(2 * found_us)


def test_calibration_by_ones_is_none(tmp_path: pathlib.Path) -> None:
  same = nccl_tests_log.calibrated_by(_TWO_NODES)
  for num_bytes in (1, 2**16, 2**24, 2**32):
    for kind in log.KINDS.values():
      expected = pytest.approx(
        nccl_tests_log.predicted_us(_TWO_NODES, kind, num_bytes)
      )
      assert nccl_tests_log.predicted_us(same, kind, num_bytes) == expected


def test_only_what_spans_nodes_takes_the_factors_between_nodes() -> None:
  site = nccl_tests_log.calibrated_by(_TWO_NODES, latency_factor=5.0)
  inside = collective_lib.TuningKey("all-reduce", 8, 1, _MIB)
  setting = collective_lib.default_setting(inside, site)
  assert wire.time_us(
    site, inside.communicator, inside.kind, _MIB, setting
  ) == wire.time_us(_TWO_NODES, inside.communicator, inside.kind, _MIB, setting)
  assert nccl_tests_log.predicted_us(
    site, "all-reduce", _MIB
  ) > 3 * nccl_tests_log.predicted_us(_TWO_NODES, "all-reduce", _MIB)


@pytest.mark.parametrize(
  ("calibration", "message"),
  [
    ({"beside": {}}, "calibration.beside is unknown; known: within_node"),
    (
      {"within_node": {"rate_factor": 0}},
      "calibration.within_node.rate_factor is 0; it must be a number from 0.01",
    ),
    (
      {"between_nodes": {"rate_factors": {"ring": 1.0}}},
      "rate_factors of ring; it must have no other than ring.ll, ",
    ),
    (5, "calibration is 5; it must be an object or null"),
  ],
)
def test_a_calibration_that_breaks_a_rule_is_refused(
  calibration: object, message: str
) -> None:
  raw = {"gpu": "h100", "calibration": calibration}
  with pytest.raises(errors.ClusterError, match="mine: ") as caught:
    cluster_lib.from_dict(raw, where="mine")
  assert message in str(caught.value)


def test_what_is_written_is_read_as_the_calibrated_cluster(
  tmp_path: pathlib.Path,
) -> None:
  site = nccl_tests_log.calibrated_by(
    _TWO_NODES, latency_factor=2.0, rate_factors={"ring.ll": 0.9}
  )
  path = tmp_path / "deep" / "mine.json"
  calibration_lib.write(path, site, {"calibration": "a test"})
  assert cluster_lib.parse(str(path)) == dataclasses.replace(site, name="mine")
  calibration_lib.write(path, _TWO_NODES, {})  # An older cluster is replaced.
  assert cluster_lib.parse(str(path)).calibration is None
  assert [entry.name for entry in path.parent.iterdir()] == ["mine.json"]


def test_a_link_to_a_cluster_file_stays_one(tmp_path: pathlib.Path) -> None:
  shared, link = tmp_path / "shared.json", tmp_path / "mine.json"
  calibration_lib.write(shared, _TWO_NODES, {})
  link.symlink_to(shared)
  site = nccl_tests_log.calibrated_by(_TWO_NODES, latency_factor=2.0)
  calibration_lib.write(link, site, {})
  assert link.is_symlink()
  assert cluster_lib.parse(str(shared)).calibration == site.calibration


@pytest.mark.parametrize("text", ["{}", "[]", "not JSON"])
def test_nothing_but_a_cluster_is_overwritten(
  tmp_path: pathlib.Path, text: str
) -> None:
  path = tmp_path / "other.json"
  path.write_text(text, encoding="utf-8")
  with pytest.raises(errors.CalibrationError, match="something else than a"):
    calibration_lib.check(path)
  assert path.read_text(encoding="utf-8") == text
