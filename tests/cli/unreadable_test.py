# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Files that never end, or ended too soon, cost one line and no time."""

from __future__ import annotations

from collections.abc import Sequence
import gzip
import lzma
import os
import pathlib
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st
import pytest

from commands import CLUSTER
from commands import HLO
from commands import run
from commands import run_process
from lagom_xla import cluster as cluster_lib
from lagom_xla import errors
from lagom_xla.passes import hlo
from lagom_xla.plan import beside


def _assert_one_line(status: int, out: str, err: str, words: str) -> None:
  assert (status, out) == (2, "")
  assert err.startswith("lagom-xla: ") and err.count("\n") == 1
  assert words in err


@pytest.mark.parametrize(
  "arguments",
  [
    ("inspect", "fifo", CLUSTER),
    ("inspect", "/dev/zero", CLUSTER),
    ("inspect", "/dev/full", CLUSTER),
    ("inspect", "step.hlo", "--cluster=fifo.json"),
    ("flags", "fifo"),
    ("plugin", "fifo"),
    ("verify", "fifo", "step.hlo", CLUSTER),
    ("explain", "plan"),
    ("report", "plan"),
    ("calibrate", "fifo", CLUSTER, "--out=c.json"),
  ],
  ids=" ".join,
)
def test_what_never_ends_is_not_read(
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  arguments: Sequence[str],
) -> None:
  monkeypatch.chdir(tmp_path)
  (tmp_path / "step.hlo").write_text(HLO)
  os.mkfifo(tmp_path / "fifo")
  os.mkfifo(tmp_path / "fifo.json")
  (tmp_path / "plan").mkdir()
  for name in beside.NAMES:
    os.mkfifo(tmp_path / "plan" / name)
  outcome = run(*arguments)
  assert (outcome.status, outcome.out) == (2, "")
  assert "is a FIFO or a device; name a file" in outcome.err
  num_lines = 2 if arguments[0] == "calibrate" else 1  # One for each log.
  assert outcome.err.count("\n") == num_lines


def test_an_xla_flags_that_names_a_fifo_is_not_read(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
  os.mkfifo(tmp_path / "fifo")
  (tmp_path / "step.hlo").write_text(HLO)
  monkeypatch.setenv("XLA_FLAGS", str(tmp_path / "fifo"))
  outcome = run("inspect", str(tmp_path / "step.hlo"), CLUSTER)
  _assert_one_line(outcome.status, outcome.out, outcome.err, "XLA_FLAGS is")
  checked = run("flags", "--check", str(tmp_path / "fifo"))
  assert (checked.status, checked.err) == (1, "")
  assert "there is none to read" in checked.out


def test_a_pipe_of_the_shell_is_read(tmp_path: pathlib.Path) -> None:
  (tmp_path / "step.hlo.gz").write_bytes(gzip.compress(HLO.encode()))
  inspect = f"{sys.executable} -m lagom_xla inspect {CLUSTER} --format=json"
  done = subprocess.run(
    ["bash", "-c", f"{inspect} -q <(gzip -dc step.hlo.gz)"],
    cwd=tmp_path,
    capture_output=True,
    text=True,
    check=False,
  )
  assert (done.returncode, done.stderr) == (0, "")
  assert '"num_instructions": 2' in done.stdout


@pytest.mark.parametrize("name", ["1000000x8xh100", "1x1000000xh100"])
def test_a_cluster_larger_than_any_is_refused(
  tmp_path: pathlib.Path, name: str
) -> None:
  (tmp_path / "step.hlo").write_text(HLO)
  outcome = run("tune", str(tmp_path / "step.hlo"), f"--cluster={name}")
  _assert_one_line(outcome.status, outcome.out, outcome.err, f"'{name}'")
  assert "262144 at most" in outcome.err
  assert cluster_lib.parse("32768x8xh100").num_devices == 262144


_SOURCES = {
  "text": HLO.encode(),
  "proto": hlo.load(HLO).proto.SerializeToString(),
  "xz": lzma.compress(HLO.encode()),
}


@given(st.sampled_from(sorted(_SOURCES)), st.floats(0, 1, exclude_max=True))
def test_a_truncated_module_is_an_error_of_ours_or_a_whole_module(
  kind: str, part: float
) -> None:
  content = _SOURCES[kind]
  cut = content[: int(part * len(content))]
  try:
    module = hlo.load(cut)
  except errors.HloError as error:
    assert "\n" not in str(error)
  else:
    # What was cut off held nothing of it, such as the last line break.
    assert module.num_instructions == hlo.load(HLO).num_instructions


# Where results go.


@pytest.mark.parametrize("style", ["--format=json", "--format=text"])
def test_a_full_disk_under_stdout_costs_one_line(
  tmp_path: pathlib.Path, style: str
) -> None:
  (tmp_path / "step.hlo").write_text(HLO)
  with open("/dev/full", "w", encoding="utf-8") as full:
    outcome = run_process(
      "inspect", "step.hlo", CLUSTER, style, cwd=tmp_path, stdout=full
    )
  _assert_one_line(
    outcome.status,
    outcome.out,
    outcome.err,
    "The result cannot be written: No space left on device.",
  )
