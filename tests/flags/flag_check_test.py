# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Flags that end a process, or do not act, are found."""

from __future__ import annotations

import pathlib

import pytest

import flag_effects
from jaxlib_options import GATHER
from jaxlib_options import IS_NEW
from jaxlib_options import LEVEL
from jaxlib_options import NEW
from jaxlib_options import OLD
from lagom_xla.flags import check
from lagom_xla.flags import probe


def _only(text: str) -> check.Finding:
  (finding,) = check.check(text).findings
  return finding


# One flag.


def test_flags_that_act_have_no_finding():
  report = check.check(f"--{GATHER}=1 --xla_gpu_enable_triton_gemm=false")
  assert report.findings == ()
  assert not report.is_fatal
  assert check.check("").findings == ()


@pytest.mark.parametrize(
  ("text", "instead"),
  [
    ("--xla_gpu_graph_level=0", "--xla_gpu_enable_command_buffer="),
    ("--xla_gpu_enable_async_all_gather=true", ""),
    (
      "--xla_gpu_enable_async_all_gather=false",
      "--xla_gpu_disable_async_collectives=allgather",
    ),
    (f"-{LEVEL}=2", f"--{LEVEL}=2"),
    ("--xla-gpu-autotune-level=2", f"--{LEVEL}=2"),
    (
      "--noxla_gpu_enable_triton_gemm",
      "--xla_gpu_enable_triton_gemm=false",
    ),
    (f"--{LEVEL}", ""),
    ("--flagfile=some.txt", ""),
    ("--helpfull", ""),
    ("--xla_tpu_enable_async_collective_fusion=true", ""),
    ("--xla_enable_dumping=true", ""),
  ],
)
def test_a_flag_that_xla_does_not_know_is_fatal(text: str, instead: str):
  finding = _only(text)
  assert (finding.flag, finding.kind, finding.instead) == (
    text,
    "unknown",
    instead,
  )
  assert check.check(text).is_fatal
  (answer,) = probe.ask([text])
  assert answer.unknown


def test_a_value_that_xla_does_not_take_is_fatal():
  finding = _only(f"--{LEVEL}=high")
  assert finding.kind == "invalid"
  assert "a whole number" in finding.text
  short = _only("--xla_gpu_enable_while_loop_unrolling=full_unroll")
  assert (short.kind, short.instead) == (
    "invalid",
    "--xla_gpu_enable_while_loop_unrolling=WHILE_LOOP_UNROLLING_FULL_UNROLL",
  )


def test_a_value_that_only_compiler_options_spell_so_has_another_spelling():
  finding = _only("--xla_gpu_detect_nan=DETECTION_MODE_FAIL")
  assert (finding.kind, finding.instead) == (
    "invalid",
    "--xla_gpu_detect_nan=fail",
  )
  # It would be in a list of what compiler_options take.
  assert "another spelling" in finding.text
  assert "DETECTION_MODE_FAIL" not in finding.text


@pytest.mark.parametrize(
  "text",
  [
    "--xla_gpu_enable_cudnn_fmha=true",  # It has no option.
    "--xla_gpu_enable_nccl_clique_optimization=true",  # It does not set its.
    "--xla_gpu_collective_inflation_factor=2",  # Nothing reads it.
  ],
)
def test_a_flag_that_xla_takes_and_ignores_is_dead(text: str):
  assert _only(text).kind == "dead"
  assert not check.check(text).is_fatal


@pytest.mark.parametrize(
  "text",
  [f"--{LEVEL}=4", "--xla_gpu_detect_nan=none", f"--{GATHER}=31457287"],
)
def test_a_flag_that_says_what_is_so_anyway_is_a_default(text: str):
  assert _only(text).kind == "default"


def test_the_other_versions_name_is_given_in_this_ones():
  if IS_NEW:
    finding = _only(f"--{OLD}=true")
    assert (finding.kind, finding.instead) == ("renamed", f"--{NEW}=on")
  else:
    finding = _only(f"--{NEW}=on")
    assert (finding.kind, finding.instead) == ("unknown", f"--{OLD}=true")


# Several flags.


def test_the_last_of_two_flags_wins():
  report = check.check(f"--{LEVEL}=1 --{LEVEL}=2 --{LEVEL}=2")
  assert [(f.flag, f.kind) for f in report.findings] == [
    (f"--{LEVEL}=1", "duplicate"),
    (f"--{LEVEL}=2", "duplicate"),
  ]
  assert report.suggestion == f"--{LEVEL}=2"


def test_flags_that_collect_are_no_duplicates():
  text = "--xla_disable_hlo_passes=a --xla_disable_hlo_passes=b"
  assert check.check(text).findings == ()
  assert flag_effects.values(text)["xla_disable_hlo_passes"] == "a,b"


def test_a_default_that_acts_beside_another_flag_is_none():
  buffers = "--xla_gpu_enable_command_buffer="
  assert _only(f"{buffers}+FUSION").kind == "default"
  assert not check.check(f"{buffers}CUBLAS {buffers}+FUSION").findings


def test_two_names_of_one_option_are_duplicates():
  names = (
    (f"--{OLD}=true", f"--{NEW}=off")
    if IS_NEW
    else (
      "--xla_gpu_graph_enable_concurrent_region=true",
      "--xla_gpu_command_buffer_scheduling_mode=SERIALIZE",
    )
  )
  report = check.check(" ".join(names))
  assert (
    flag_effects.kinds(report)[names[0].partition("=")[0].strip("-")]
    == "duplicate"
  )


def test_nothing_is_read_after_a_word_that_is_no_flag():
  report = check.check(f"--{GATHER}=1 NCCL_DEBUG=INFO --xla_unknown=1")
  (finding,) = report.findings
  assert (finding.flag, finding.kind) == ("NCCL_DEBUG=INFO", "not read")
  assert not report.is_fatal
  assert report.suggestion == f"--{GATHER}=1"


_EARLY = "xla_gpu_experimental_collective_start_as_early_as_possible"
_LIMIT = "xla_gpu_experimental_parallel_collective_overlap_limit"


def test_a_flag_that_another_makes_void_is_a_contradiction():
  finding = _only(f"--{_EARLY}=true")
  assert finding.kind == "contradiction"
  assert f"--{_LIMIT}=2" in finding.text
  assert check.check(f"--{_EARLY}=true --{_LIMIT}=2").findings == ()


def test_pipelining_what_is_synchronous_is_a_contradiction():
  pipelined = f"--{NEW}=on" if IS_NEW else f"--{OLD}=true"
  off = "--xla_gpu_disable_async_collectives="
  assert _only(f"{pipelined} {off}allgather").kind == "contradiction"
  assert _only(f"{pipelined} {off}allcollectives").kind == "contradiction"
  assert check.check(f"{pipelined} {off}allreduce").findings == ()


def test_a_file_of_flags_is_followed(tmp_path: pathlib.Path):
  path = tmp_path / "flags"
  path.write_text(f"--{LEVEL}=2\n--xla_unknown=1\n")
  assert _only(str(path)).flag == "--xla_unknown=1"
  finding = _only(str(tmp_path / "absent"))
  assert finding.kind == "invalid" and finding.is_fatal
  assert _only(f"{LEVEL}=2").instead == f"--{LEVEL}=2"


def test_a_flag_that_makes_a_compile_end_the_process_is_fatal():
  report = check.check("--xla_gpu_enable_analytical_latency_estimator=true")
  assert [f.kind for f in report.findings] == ["crash"]
  assert report.is_fatal
