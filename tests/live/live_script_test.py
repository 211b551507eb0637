# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Scripts travel between processes as they are, and verdicts are as stated."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import pytest

from lagom_xla import errors
from lagom_xla.live import agreement
from lagom_xla.live import proposals
from lagom_xla.live import script as script_lib
from lagom_xla.live import verdict

_SEGMENTS = st.builds(
  script_lib.Segment,
  variant=st.integers(0, 9),
  num_calls=st.integers(1, 999),
  is_timed=st.booleans(),
  is_traced=st.booleans(),
  is_watched=st.booleans(),
)
_PROPOSALS = st.builds(
  proposals.Proposal,
  name=st.text(),
  payload=st.binary(),
  predicted_ratio=st.none() | st.floats(0.1, 10),
)
_SCRIPTS = st.builds(
  script_lib.Script,
  state=st.sampled_from(script_lib.State),
  segments=st.lists(_SEGMENTS, max_size=4).map(tuple),
  in_use=st.integers(0, 9),
  number=st.integers(0, 9),
  proposal=st.none() | _PROPOSALS,
  words=st.text(),
)


@given(_SCRIPTS)
def test_a_script_is_read_back_as_it_was(script: script_lib.Script):
  assert script_lib.from_json(script.to_json()) == script


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"state": "dance"}'])
def test_what_is_no_script_is_refused(text: bytes):
  with pytest.raises(errors.ProcessesError, match="one version of it"):
    script_lib.from_json(text)


@given(st.floats(1e-6, 1e3), st.floats(0.2, 5))
def test_a_verdict_does_not_depend_on_the_unit(unit: float, ratio: float):
  pairs = [(1.0, ratio), (1.1, ratio), (1.0, 1.05 * ratio)] * 2
  scaled = [(unit * ours, unit * theirs) for ours, theirs in pairs]
  one, other = verdict.judge(pairs), verdict.judge(scaled)
  assert one.is_adopted == other.is_adopted
  assert one.ratio == pytest.approx(other.ratio)
  assert one.low <= one.ratio <= one.high


def test_the_interval_is_students_of_the_logarithms():
  # By hand: logs 0 and 1 in turn, mean 1/2, standard error sqrt(0.3 / 6), and
  # t of 5 degrees of freedom at 1 - 0.05 / 6 is 3.5341 (tables: 3.5341).
  pairs = [(1.0, 1.0), (1.0, 2.718281828459045)] * 3
  _, low, high = verdict.interval(pairs)
  assert low == pytest.approx(0.7480, abs=2e-3)
  assert high == pytest.approx(3.6339, abs=1e-2)


def test_a_store_of_one_process_keeps_what_was_set_first():
  store = agreement.next_store("step", [0])
  assert agreement.is_first(store)
  assert store.get("scripts/1", timeout_s=9) is None
  assert store.put("scripts/1", b"one") == b"one"
  assert store.put("scripts/1", b"two") == b"one"
  assert store.get("scripts/1", timeout_s=9) == b"one"
  assert store.in_folder("scripts") == {"1": b"one"}
