# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""An XLA_FLAGS is read as XLA reads it, and what does not act is found."""

from __future__ import annotations

import os
import pathlib

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from lagom_xla.flags import check
from lagom_xla.flags import debug_options
from lagom_xla.flags import findings as findings_lib
from lagom_xla.flags import merge
from lagom_xla.flags import probe
from lagom_xla.flags import reading as reading_lib
from lagom_xla.flags import syntax

_LEVEL = "xla_gpu_autotune_level"
_GATHER = "xla_gpu_all_gather_combine_threshold_bytes"
_OLD = "xla_gpu_enable_pipelined_all_gather"
_NEW = "xla_gpu_pipeline_all_gather"
_IS_NEW = debug_options.find(_NEW) is not None

# What MaxText's a3/llama_3.1_405b/128vm.sh sets (without --xla_dump_to).
_MAXTEXT = """
--xla_gpu_enable_latency_hiding_scheduler=true
--xla_gpu_enable_triton_gemm=false --xla_gpu_graph_level=0
--xla_gpu_enable_highest_priority_async_stream=true
--xla_gpu_all_reduce_combine_threshold_bytes=1073741824
--xla_gpu_all_gather_combine_threshold_bytes=134217728
--xla_gpu_reduce_scatter_combine_threshold_bytes=134217728
--xla_gpu_enable_pipelined_all_gather=true
--xla_gpu_enable_pipelined_reduce_scatter=true
--xla_gpu_enable_pipelined_all_reduce=true
--xla_gpu_enable_while_loop_double_buffering=true
--xla_gpu_enable_all_gather_combine_by_dim=false
--xla_gpu_enable_reduce_scatter_combine_by_dim=false
--xla_disable_hlo_passes=rematerialization
"""
# What JAX-Toolbox's rosetta/docs/GPU_performance.md lists.
_JAX_TOOLBOX = """
--xla_gpu_enable_async_collectives=true
--xla_gpu_enable_highest_priority_async_stream=true
--xla_gpu_all_reduce_combine_threshold_bytes=51200
--xla_gpu_all_reduce_combine_threshold_bytes=8589934592
--xla_gpu_all_gather_combine_threshold_bytes=8589934592
--xla_gpu_reduce_scatter_combine_threshold_bytes=8589934592
--xla_gpu_enable_all_gather_combine_by_dim=false
--xla_gpu_enable_reduce_scatter_combine_by_dim=false
--xla_gpu_enable_pipelined_p2p=false
--xla_gpu_collective_permute_decomposer_threshold=33521664
--xla_gpu_enable_nccl_user_buffers
--xla_gpu_enable_nccl_comm_splitting
--xla_gpu_enable_nccl_per_stream_comms
--xla_gpu_enable_custom_fusions=true
--xla_gpu_enable_pipelined_all_gather=true
--xla_gpu_enable_pipelined_reduce_scatter=true
--xla_gpu_enable_pipelined_all_reduce=true
--xla_gpu_enable_pipelined_collectives=false
--xla_gpu_enable_while_loop_double_buffering=true
--xla_gpu_multi_streamed_windowed_einsum=true
--xla_gpu_threshold_for_windowed_einsum_mib=0
--xla_gpu_enable_xla_runtime_executable=true
--xla_gpu_enable_latency_hiding_scheduler=true
--xla_gpu_enable_triton_gemm=false
--xla_gpu_enable_triton_softmax_fusion=false
--xla_gpu_cudnn_gemm_fusion
--xla_gpu_lhs_enable_gpu_async_tracker=false
"""


def _kinds(report: check.Report) -> dict[str, str]:
  """Flag, without value -> what is wrong with it."""
  return {
    finding.flag.partition("=")[0].strip("-"): finding.kind
    for finding in report.findings
  }


def _only(text: str) -> findings_lib.Finding:
  (finding,) = check.check(text).findings
  return finding


def _values(text: str) -> dict[str, debug_options.Value]:
  (answer,) = probe.ask([text])
  assert not answer.is_fatal, answer.error
  return debug_options.values(answer.compile_options)


def _sets(text: str) -> dict[str, object]:
  """The options that flags set; lists without an order, or repetitions."""
  return {
    name: frozenset(str(value).split(",")) if option.is_repeated else value
    for name, value in _values(text).items()
    if (option := debug_options.find(name)) is not None
  }


# How XLA reads.


@pytest.mark.parametrize(
  ("text", "words"),
  [
    ("--xla_dump_to=a", "a"),
    ("  --xla_dump_to=a\n", "a"),
    ("--xla_dump_to='a b'", "a b"),
    ('--xla_dump_to="a \\"b\\" \\\\c"', 'a "b" \\c'),
    ("--xla_dump_to='a\\'", "a\\"),
    ('--xla_dump_to="a b', "a b"),
    ("--xla_dump_to=a'b", "a'b"),
    ("--xla_dump_to=", ""),
    ("--xla_dump_to=a b --xla_dump_to=c", "a"),
    ("--xla_dump_to=a=b", "a=b"),
  ],
)
def test_flags_are_parsed_as_xla_parses_them(text: str, words: str):
  flags, _ = syntax.parse(text)
  assert flags[-1].value == words
  assert _values(text)["xla_dump_to"] == words


@given(st.lists(st.text("ab '\"\\=-\n", max_size=6), max_size=3))
def test_a_printed_flag_parses_to_itself(values: list[str]):
  flags = [syntax.Flag(name="a_b", value=value) for value in values]
  assert syntax.parse(" ".join(map(str, flags))) == (tuple(flags), "")


@settings(max_examples=25)
@given(st.text("ab '\"\\=-\t", max_size=8))
def test_xla_reads_back_any_value(value: str):
  text = str(syntax.Flag(name="xla_dump_to", value=value))
  assert _values(text)["xla_dump_to"] == value


def test_jaxlib_is_asked_again_where_the_child_was_killed():
  probe.ask([""])
  child = probe._child(os.getpid())
  child.kill()
  child.wait()
  (answer,) = probe.ask([f"--{_LEVEL}=3 --{_GATHER}=12345"])
  values = debug_options.values(answer.compile_options)
  assert (values[_LEVEL], values[_GATHER]) == (3, 12345)


# One flag.


def test_flags_that_act_have_no_finding():
  report = check.check(f"--{_GATHER}=1 --xla_gpu_enable_triton_gemm=false")
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
    (f"-{_LEVEL}=2", f"--{_LEVEL}=2"),
    ("--xla-gpu-autotune-level=2", f"--{_LEVEL}=2"),
    (
      "--noxla_gpu_enable_triton_gemm",
      "--xla_gpu_enable_triton_gemm=false",
    ),
    (f"--{_LEVEL}", ""),
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
  finding = _only(f"--{_LEVEL}=high")
  assert finding.kind == "invalid"
  assert "a whole number" in finding.text
  short = _only("--xla_gpu_enable_while_loop_unrolling=full_unroll")
  assert (short.kind, short.instead) == (
    "invalid",
    "--xla_gpu_enable_while_loop_unrolling=WHILE_LOOP_UNROLLING_FULL_UNROLL",
  )


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
  [f"--{_LEVEL}=4", "--xla_gpu_detect_nan=none", f"--{_GATHER}=31457287"],
)
def test_a_flag_that_says_what_is_so_anyway_is_a_default(text: str):
  assert _only(text).kind == "default"


def test_the_other_versions_name_is_given_in_this_ones():
  if _IS_NEW:
    finding = _only(f"--{_OLD}=true")
    assert (finding.kind, finding.instead) == ("renamed", f"--{_NEW}=on")
  else:
    finding = _only(f"--{_NEW}=on")
    assert (finding.kind, finding.instead) == ("unknown", f"--{_OLD}=true")


# Several flags.


def test_the_last_of_two_flags_wins():
  report = check.check(f"--{_LEVEL}=1 --{_LEVEL}=2 --{_LEVEL}=2")
  assert [(f.flag, f.kind) for f in report.findings] == [
    (f"--{_LEVEL}=1", "duplicate"),
    (f"--{_LEVEL}=2", "duplicate"),
  ]
  assert report.suggestion == f"--{_LEVEL}=2"


def test_flags_that_collect_are_no_duplicates():
  text = "--xla_disable_hlo_passes=a --xla_disable_hlo_passes=b"
  assert check.check(text).findings == ()
  assert _values(text)["xla_disable_hlo_passes"] == "a,b"


def test_a_default_that_acts_beside_another_flag_is_none():
  buffers = "--xla_gpu_enable_command_buffer="
  assert _only(f"{buffers}+FUSION").kind == "default"
  assert not check.check(f"{buffers}CUBLAS {buffers}+FUSION").findings


def test_two_names_of_one_option_are_duplicates():
  names = (
    (f"--{_OLD}=true", f"--{_NEW}=off")
    if _IS_NEW
    else (
      "--xla_gpu_graph_enable_concurrent_region=true",
      "--xla_gpu_command_buffer_scheduling_mode=SERIALIZE",
    )
  )
  report = check.check(" ".join(names))
  assert _kinds(report)[names[0].partition("=")[0].strip("-")] == "duplicate"


def test_nothing_is_read_after_a_word_that_is_no_flag():
  report = check.check(f"--{_GATHER}=1 NCCL_DEBUG=INFO --xla_unknown=1")
  (finding,) = report.findings
  assert (finding.flag, finding.kind) == ("NCCL_DEBUG=INFO", "not read")
  assert not report.is_fatal
  assert report.suggestion == f"--{_GATHER}=1"


_EARLY = "xla_gpu_experimental_collective_start_as_early_as_possible"
_LIMIT = "xla_gpu_experimental_parallel_collective_overlap_limit"


def test_a_flag_that_another_makes_void_is_a_contradiction():
  finding = _only(f"--{_EARLY}=true")
  assert finding.kind == "contradiction"
  assert f"--{_LIMIT}=2" in finding.text
  assert check.check(f"--{_EARLY}=true --{_LIMIT}=2").findings == ()


def test_pipelining_what_is_synchronous_is_a_contradiction():
  pipelined = f"--{_NEW}=on" if _IS_NEW else f"--{_OLD}=true"
  off = "--xla_gpu_disable_async_collectives="
  assert _only(f"{pipelined} {off}allgather").kind == "contradiction"
  assert _only(f"{pipelined} {off}allcollectives").kind == "contradiction"
  assert check.check(f"{pipelined} {off}allreduce").findings == ()


def test_a_file_of_flags_is_followed(tmp_path: pathlib.Path):
  path = tmp_path / "flags"
  path.write_text(f"--{_LEVEL}=2\n--xla_unknown=1\n")
  assert _only(str(path)).flag == "--xla_unknown=1"
  finding = _only(str(tmp_path / "absent"))
  assert finding.kind == "invalid" and finding.is_fatal
  assert _only(f"{_LEVEL}=2").instead == f"--{_LEVEL}=2"


# Recipes.


def test_maxtexts_flags_end_a_process_over_one_of_them():
  report = check.check(_MAXTEXT)
  kinds = _kinds(report)
  assert kinds.pop("xla_gpu_graph_level") == "unknown"
  assert set(kinds.values()) == (
    {"default", "renamed"} if _IS_NEW else {"default"}
  )
  assert kinds["xla_gpu_enable_highest_priority_async_stream"] == "default"
  found = _values(report.suggestion)
  alive = _values(_MAXTEXT.replace("--xla_gpu_graph_level=0", ""))
  assert found == {**alive, "xla_gpu_enable_command_buffer": ""}


def test_jax_toolboxs_flags_end_a_process_over_eight_of_them():
  report = check.check(_JAX_TOOLBOX)
  kinds = _kinds(report)
  unknown = {name for name, kind in kinds.items() if kind == "unknown"}
  assert unknown == {
    "xla_gpu_cudnn_gemm_fusion",
    "xla_gpu_enable_async_collectives",
    "xla_gpu_enable_custom_fusions",
    "xla_gpu_enable_nccl_per_stream_comms",
    "xla_gpu_enable_pipelined_collectives",
    "xla_gpu_enable_triton_softmax_fusion",
    "xla_gpu_enable_xla_runtime_executable",
    "xla_gpu_lhs_enable_gpu_async_tracker",
  }
  assert kinds["xla_gpu_all_reduce_combine_threshold_bytes"] == "duplicate"
  assert (
    kinds["xla_gpu_collective_permute_decomposer_threshold"] == "contradiction"
  )
  assert kinds["xla_gpu_enable_nccl_comm_splitting"] == "default"
  assert not check.check(report.suggestion).is_fatal


_SOME = st.sampled_from(
  [
    f"--{_LEVEL}=1",
    f"--{_LEVEL}=4",
    f"--{_OLD}=true",
    f"--{_OLD}=false",
    "--xla_disable_hlo_passes=a",
    "--xla_disable_hlo_passes=b",
    "--xla_gpu_enable_command_buffer=+COLLECTIVES",
    "--xla_gpu_enable_command_buffer=COLLECTIVES",
    "--xla_gpu_enable_command_buffer=+FUSION",
    "--xla_gpu_enable_cudnn_fmha=true",
    "--xla_gpu_analytical_latency_estimator_options=rtt_us=1",
    "--xla_gpu_analytical_latency_estimator_options=rtt_us=2",
    "--xla_dump_to='a b'",
  ]
)


@settings(max_examples=15)
@given(st.lists(_SOME, max_size=5))
def test_what_is_suggested_sets_the_same_in_no_more_flags(flags: list[str]):
  report = check.check(" ".join(flags))
  assert _sets(report.suggestion) == _sets(" ".join(flags))
  assert len(syntax.parse(report.suggestion)[0]) <= len(flags)
  again = check.check(report.suggestion)
  assert {f.kind for f in again.findings} <= {"contradiction"}


# Merging.


def test_the_plan_wins_and_each_flag_has_its_source():
  merged = merge.merge(f"--{_GATHER}=1 --{_LEVEL}=2", {_GATHER: 5})
  assert [(e.flag, e.source, e.replaces) for e in merged.entries] == [
    (f"--{_LEVEL}=2", "environment", ()),
    (f"--{_GATHER}=5", "plan", ((f"--{_GATHER}=1", "environment"),)),
  ]
  assert merged.xla_flags == f"--{_LEVEL}=2 --{_GATHER}=5"


def test_a_plan_replaces_the_other_name_of_its_option():
  merged = merge.merge(f"--{_OLD}=true", {_NEW: "off"})
  (entry,) = merged.entries
  assert (entry.source, entry.replaces) == (
    "plan",
    ((f"--{_OLD}=true", "environment"),),
  )


def test_what_would_end_a_process_is_left_out_of_a_merge():
  merged = merge.merge(
    f"--xla_gpu_graph_level=0 --{_LEVEL}=2 NCCL_DEBUG=INFO", {"xla_none": 1}
  )
  assert merged.xla_flags == f"--{_LEVEL}=2"
  graph, rest, plan = merged.messages
  assert graph.endswith("Write --xla_gpu_enable_command_buffer= instead.")
  assert "NCCL_DEBUG=INFO" in rest
  assert "xla_none" in plan


def test_without_an_environment_a_merge_is_the_plan():
  assert merge.merge("", {_GATHER: 5}).xla_flags == f"--{_GATHER}=5"
  assert merge.merge("", {}).entries == ()


@settings(max_examples=10)
@given(st.lists(_SOME, max_size=4), st.integers(0, 3))
def test_merged_flags_set_what_both_would_one_after_the_other(
  flags: list[str], level: int
):
  text = " ".join(flags)
  merged = merge.merge(text, {_LEVEL: level})
  assert _sets(merged.xla_flags) == _sets(f"{text} --{_LEVEL}={level}")


def test_what_a_flag_sets_is_read_without_the_others():
  flags, _ = syntax.parse(f"--{_LEVEL}=2 --{_GATHER}=x --xla_none")
  level, gather, none = reading_lib.read(flags)
  assert level.sets == {_LEVEL: 2}
  assert (gather.invalid, none.unknown) == (True, True)


def test_a_flag_that_makes_a_compile_end_the_process_is_fatal():
  report = check.check("--xla_gpu_enable_analytical_latency_estimator=true")
  assert [f.kind for f in report.findings] == ["crash"]
  assert report.is_fatal
