# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA_FLAGS are parsed like XLA does, checked, and merged with a plan."""

from __future__ import annotations

import functools
import os
from unittest import mock

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import pytest

from jaxlib_options import GATHER
from jaxlib_options import IS_NEW
from jaxlib_options import LEVEL
from jaxlib_options import NEW
from jaxlib_options import OLD
from jaxlib_options import UNROLLING
from lagom_xla import plan as plan_lib
from lagom_xla.flags import check
from lagom_xla.flags import collective_routes
from lagom_xla.flags import conflicts
from lagom_xla.flags import debug_options
from lagom_xla.flags import mend
from lagom_xla.flags import notes
from lagom_xla.flags import options as xla_options
from lagom_xla.flags import probe
from lagom_xla.flags import syntax
from lagom_xla.flags import xla_kernels


def _sets(text: str) -> dict[str, object]:
  """The options that flags set; lists without an order, or repetitions."""
  return {
    name: frozenset(str(value).split(",")) if option.is_repeated else value
    for name, value in debug_options.under(text).items()
    if (option := debug_options.find(name)) is not None
  }


_SOME_FLAGS = st.sampled_from(
  [
    f"--{LEVEL}=1",
    f"--{LEVEL}=4",
    f"--{OLD}=true",
    f"--{OLD}=false",
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


# The syntax.


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
def test_flags_are_parsed_as_xla_parses_them(text, words):
  flags, _ = syntax.parse(text)
  assert flags[-1].value == words
  assert debug_options.under(text)["xla_dump_to"] == words


@given(st.lists(st.text("ab '\"\\=-\n", max_size=6), max_size=3))
def test_a_printed_flag_parses_to_itself(values):
  flags = [syntax.Flag(name="a_b", value=value) for value in values]
  assert syntax.parse(" ".join(map(str, flags))) == (tuple(flags), "")


@settings(max_examples=25)
@given(st.text("ab '\"\\=-\t", max_size=8))
def test_xla_reads_any_printed_value_unchanged(value):
  text = str(syntax.Flag(name="xla_dump_to", value=value))
  assert debug_options.under(text)["xla_dump_to"] == value


def test_the_jaxlib_probe_restarts_after_its_process_is_killed():
  probe.ask([""])
  child = probe._child(os.getpid())
  child.kill()
  child.wait()
  found = debug_options.under(f"--{LEVEL}=3 --{GATHER}=12345")
  assert (found[LEVEL], found[GATHER]) == (3, 12345)


# One flag.


def _only(text: str) -> check.Finding:
  (finding,) = check.check(text).findings
  return finding


def test_flags_that_take_effect_have_no_findings():
  report = check.check(f"--{GATHER}=1 --xla_gpu_enable_triton_gemm=false")
  assert report.findings == ()
  assert not report.is_fatal
  assert check.check("").findings == ()


@pytest.mark.parametrize(
  ("text", "instead"),
  [
    ("--xla_gpu_graph_level=0", "--xla_gpu_enable_command_buffer="),
    (f"--{LEVEL.upper()}=2", f"--{LEVEL}=2"),
    ("--", ""),
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
    (
      "--no-xla_gpu_enable_triton_gemm",
      "--xla_gpu_enable_triton_gemm=false",
    ),
    (f"--{LEVEL}", ""),
    ("--flagfile=some.txt", ""),
    ("--helpfull", ""),
    ("-O1", ""),
    ("--tf_xla_auto_jit=2", ""),
    ("--xla_tpu_enable_async_collective_fusion=true", ""),
    ("--xla_enable_dumping=true", ""),
  ],
)
def test_a_flag_that_xla_does_not_know_is_fatal(text, instead):
  found = check.Finding(
    flag=text, kind="unknown", text=mock.ANY, instead=instead
  )
  report = check.check(text)
  assert report.findings == (found,) and report.is_fatal
  (answer,) = probe.ask([text])
  assert answer.unknown


def test_a_default_is_suggested_only_where_it_changes_something():
  name = "xla_gpu_enable_while_loop_double_buffering"
  (alone,) = check.check(f"--no{name}").findings
  assert alone.instead == ""
  assert alone.text.endswith(f"--{name}=false is the default; leave it out.")
  beside_on = check.check(f"--{name} --no{name}")
  assert beside_on.findings[-1].instead == f"--{name}=false"
  assert _sets(beside_on.suggestion) == _sets("")


@pytest.mark.parametrize(
  ("name", "value", "spelled"),
  [
    (LEVEL, "high", ""),
    (LEVEL, "2e0", "2"),
    (LEVEL, "2.5e0", ""),
    (UNROLLING, "full_unroll", "WHILE_LOOP_UNROLLING_FULL_UNROLL"),
    # Only compiler_options use this spelling.
    ("xla_gpu_detect_nan", "DETECTION_MODE_FAIL", "fail"),
  ],
)
def test_a_value_that_xla_rejects_is_reported_as_invalid(name, value, spelled):
  finding = _only(f"--{name}={value}")
  assert finding.kind == "invalid"
  assert finding.instead == (f"--{name}={spelled}" if spelled else "")
  words = "another spelling" if spelled else "a whole number"
  assert words in finding.text
  assert value not in finding.text


@pytest.mark.parametrize(
  "text",
  [
    "--xla_gpu_enable_cudnn_fmha=true",  # It has no option.
    "--xla_gpu_enable_nccl_clique_optimization=true",  # It sets nothing.
    "--xla_gpu_collective_inflation_factor=2",  # Nothing reads it.
  ],
)
def test_a_flag_that_xla_accepts_and_ignores_is_reported_as_dead(text):
  assert _only(text).kind == "dead"
  assert not check.check(text).is_fatal


def test_flags_that_crash_compiles_are_fatal_and_defaults_are_reported():
  crash = _only("--xla_gpu_enable_analytical_latency_estimator=true")
  assert (crash.kind, crash.is_fatal) == ("crash", True)
  for text in (f"--{LEVEL}=4", "--xla_gpu_detect_nan=none"):
    assert _only(text).kind == "default"


def test_false_differs_from_unset_where_xla_decides_the_default():
  flag = "--xla_gpu_enable_latency_hiding_scheduler"
  assert not check.check(f"{flag}=true").findings
  finding = _only(f"{flag}=false")
  if IS_NEW:
    assert finding.kind == "not the default"
    assert check.check(f"{flag}=false").suggestion == f"{flag}=false"
  else:
    assert finding.kind == "default"
    assert "as if it were unset" in finding.text
  assert "on for Hopper and Blackwell" in finding.text


def test_a_flags_name_in_another_version_is_translated_to_this_one():
  if IS_NEW:
    finding = _only(f"--{OLD}=true")
    assert (finding.kind, finding.instead) == ("renamed", f"--{NEW}=on")
  else:
    finding = _only(f"--{NEW}=on")
    assert (finding.kind, finding.instead) == ("unknown", f"--{OLD}=true")


# Several flags.


def test_earlier_flags_of_one_option_are_reported_as_duplicates():
  report = check.check(f"--{LEVEL}=1 --{LEVEL}=2 --{LEVEL}=2")
  assert [(f.flag, f.kind) for f in report.findings] == [
    (f"--{LEVEL}=1", "duplicate"),
    (f"--{LEVEL}=2", "duplicate"),
  ]
  assert report.suggestion == f"--{LEVEL}=2"


def test_repeated_flags_of_a_list_option_are_not_duplicates():
  text = "--xla_disable_hlo_passes=a --xla_disable_hlo_passes=b"
  assert check.check(text).findings == ()
  assert debug_options.under(text)["xla_disable_hlo_passes"] == "a,b"


def test_a_default_that_changes_an_earlier_flag_has_no_finding():
  buffers = "--xla_gpu_enable_command_buffer="
  assert _only(f"{buffers}+FUSION").kind == "default"
  assert not check.check(f"{buffers}CUBLAS {buffers}+FUSION").findings


def test_two_names_of_one_option_are_duplicates():
  names = (
    "--xla_gpu_graph_enable_concurrent_region=true",
    "--xla_gpu_command_buffer_scheduling_mode=SERIALIZE",
  )
  if IS_NEW:
    names = (f"--{OLD}=true", f"--{NEW}=off")
  first, *_ = check.check(" ".join(names)).findings
  assert (first.flag, first.kind) == (names[0], "duplicate")


@pytest.mark.parametrize(
  "default",
  [
    f"--{LEVEL}=4",
    f"-{LEVEL}=4",
    f"--{LEVEL.upper()}=4",
    "--no-xla_gpu_enable_nccl_user_buffers",
  ],
)
def test_suggestions_leave_out_defaults(default):
  report = check.check(f"--{GATHER}=1 {default}")
  assert report.suggestion == f"--{GATHER}=1"
  assert not check.check(report.suggestion).findings


def test_flags_after_a_word_that_is_not_a_flag_are_not_read():
  text = f"--{GATHER}=1 NCCL_DEBUG=INFO --xla_unknown=1 --{LEVEL}=2"
  report = check.check(text)
  word, flag = report.findings
  assert (word.flag, word.kind) == ("NCCL_DEBUG=INFO", "not read")
  assert "It ignores the rest, too (2 more)." in word.text
  assert (flag.flag, flag.kind) == ("--xla_unknown=1", "unknown")
  assert report.num_flags == 1
  assert not report.is_fatal
  # The suggestion has all valid flags, and the variable is separate.
  assert report.suggestion == f"--{GATHER}=1 --{LEVEL}=2"
  assert report.variables == {"NCCL_DEBUG": "INFO"}


_TRITON = "xla_gpu_enable_triton_gemm"
_BOTH = f"--{LEVEL}=2 --{_TRITON}=false"


@pytest.mark.parametrize(
  ("text", "is_fatal"),
  [
    (f"--{LEVEL} 2 --{_TRITON}=false", True),
    (f"--{LEVEL} = 2 --{_TRITON} =false", True),
    (f"--{LEVEL}= 2 --{_TRITON} false", True),
    (f"--{LEVEL}=2 --{_TRITON} false", False),
    (f"\u2013{LEVEL}=2 \u2014{_TRITON}=false", True),
    (f"--{LEVEL}=2 -\u2013{_TRITON}=false", True),
    (f'"--{LEVEL}=2 --{_TRITON}=false"', True),
    (f"'--{LEVEL}=2' '--{_TRITON}=false'", True),
    (f"\u201c--{LEVEL}=2 --{_TRITON}=false\u201d", True),
    (f"--{LEVEL}=2, --{_TRITON}=false,", True),
    (f"[--{LEVEL}=2; --{_TRITON}=false]", True),
    (f"--{LEVEL}=2 \\\n--{_TRITON}=false \\\n", False),
    (f"--{LEVEL}=2\\\n--{_TRITON}=false\\", True),
    (f"--{LEVEL}=2--{_TRITON}=false", True),
    (f"--{LEVEL}=2\\n--{_TRITON}=false\\n", True),
    (f"\ufeff--{LEVEL}=2\u00a0--{_TRITON}=false", True),
    (f"--{LEVEL}:2 --{_TRITON}==false", True),
    (f'{{"{LEVEL}": 2, "{_TRITON}": false}}', True),
    (f"{LEVEL}=2 {_TRITON}=false", True),
    (f"XLA_FLAGS=--{LEVEL}=2 --{_TRITON}=false", True),
    (f"XLA_FLAGS=$XLA_FLAGS --{LEVEL}=2 --{_TRITON}=false", True),
    (f'export XLA_FLAGS="--{LEVEL}=2 --{_TRITON}=false"', True),
    (f"--{LEVEL}=\u20182\u2019 --{_TRITON}=false", True),
    (f"--{LEVEL}=2:--{_TRITON}=false", True),
    (f'XLA_FLAGS+=" --{LEVEL}=2 --{_TRITON}=false"', True),
    (f"--{LEVEL}=2 intra_op_parallelism_threads=1 --{_TRITON}=false", False),
    (f"--{LEVEL}=2 $XLA_FLAGS --{_TRITON}=false", False),
  ],
)
def test_mistyped_flags_get_a_complete_correction(text, is_fatal):
  report = check.check(text)
  assert report.suggestion == _BOTH
  assert report.is_fatal == is_fatal == probe.ask([text])[0].is_fatal
  assert {f.kind for f in report.findings} <= {"mistyped", "not read"}
  assert report.findings
  assert check.check(report.suggestion).findings == ()


@given(st.lists(_SOME_FLAGS, max_size=5))
def test_flags_that_xla_reads_need_no_correction(flags):
  text = " ".join(flags)
  read, _ = syntax.parse(text)
  words = mend.words(text)
  assert tuple(flag for word in words for flag in word.flags) == read
  assert not any(word.why for word in words)


_MARKED = (
  "--{}",
  "\u2013{}",
  "{}",
  '"--{}"',
  "\u201c--{}\u201d",
  "--{},",
  "--{}\\",
  "--{} \\\n",
  "--{} NCCL_DEBUG=INFO",
)


@settings(max_examples=20)
@given(
  st.lists(
    st.tuples(
      _SOME_FLAGS, st.sampled_from(_MARKED), st.sampled_from(["=", " ", " = "])
    ),
    max_size=4,
  )
)
def test_corrections_of_mistyped_flags_lose_no_flag(marked):
  flags = [flag for flag, _, _ in marked]
  text = " ".join(
    mark.format(flag.removeprefix("--").replace("=", equals, 1))
    for flag, mark, equals in marked
  )
  assert _sets(check.check(text).suggestion) == _sets(" ".join(flags))


@settings(max_examples=200)
@given(st.text("-\u2013xla_gu=1,'\"\\ \n$A[]", max_size=24))
def test_any_text_is_split_into_words_in_order(text):
  words = mend.words(text)
  ends = [0]
  for word in words:
    assert word.at >= ends[-1]
    assert text[word.at :].startswith(word.written.split()[0])
    ends.append(word.at + len(word.written.split()[-1]))


def test_an_absent_path_is_reported_and_kept_in_the_suggestion(tmp_path):
  name = "xla_gpu_pgle_profile_file_or_directory_path"
  for path in (tmp_path / "absent", "$HOME/profile"):
    report = check.check(f"--{name}={path}")
    (finding,) = report.findings
    assert finding.kind == "absent path"
    assert f"There is no {path} on this machine" in finding.text
    assert report.suggestion == f"--{name}={path}"
    assert not report.is_fatal
  assert check.check(f"--{name}={tmp_path}").findings == ()


@pytest.mark.parametrize("path", ["$HOME/dumps", "${OUT}/dumps", "~/dumps"])
def test_variables_and_tildes_in_a_path_are_reported(path):
  finding = _only(f"--xla_dump_to={path}")
  assert finding.text == "XLA does not expand variables or ~."
  found = check.check("--xla_dump_to=a --xla_dump_hlo_pass_re=spmd$").findings
  assert found == ()


_EARLY = "xla_gpu_experimental_collective_start_as_early_as_possible"
_LIMIT = "xla_gpu_experimental_parallel_collective_overlap_limit"


def test_early_starts_without_an_overlap_limit_are_a_contradiction():
  finding = _only(f"--{_EARLY}=true")
  assert finding.kind == "contradiction"
  assert f"--{_LIMIT}=2" in finding.text
  assert check.check(f"--{_EARLY}=true --{_LIMIT}=2").findings == ()


@pytest.mark.parametrize(
  ("alone", "needed"),
  [
    ("--xla_dump_hlo_pass_re=.*", "--xla_dump_to=a"),
    ("--xla_dump_max_hlo_modules=1", "--xla_dump_hlo_as_text"),
    (
      f"--xla_gpu_exhaustive_tiling_search=true --{LEVEL}=0",
      f"--{LEVEL}=3",
    ),
    (
      "--xla_gpu_graph_min_graph_size=2 --xla_gpu_enable_command_buffer=",
      "--xla_gpu_enable_command_buffer=FUSION",
    ),
  ],
)
def test_a_flag_without_a_flag_that_it_needs_is_a_contradiction(alone, needed):
  finding = _only(alone)
  assert finding.kind == "contradiction"
  assert finding.flag == alone.split()[0]
  kinds = {f.kind for f in check.check(f"{alone} {needed}").findings}
  assert "contradiction" not in kinds


def test_pipelining_of_synchronous_collectives_is_a_contradiction():
  pipelined = f"--{NEW}=on" if IS_NEW else f"--{OLD}=true"
  off = "--xla_gpu_disable_async_collectives="
  for kind in ("allgather", "allcollectives"):
    assert _only(f"{pipelined} {off}{kind}").kind == "contradiction"
  assert check.check(f"{pipelined} {off}allreduce").findings == ()


def test_a_file_of_flags_is_read_and_checked(tmp_path):
  path = tmp_path / "flags"
  path.write_text(f"--{LEVEL}=2\n--xla_unknown=1\n")
  assert _only(str(path)).flag == "--xla_unknown=1"
  finding = _only(str(tmp_path / "absent"))
  assert finding.kind == "invalid" and finding.is_fatal
  assert _only(f"{LEVEL}=2").instead == f"--{LEVEL}=2"


@pytest.mark.parametrize("text", [" ", " \n"])
def test_white_space_is_refused_as_a_file_that_does_not_exist(text):
  # From XLA_FLAGS="$A $B", where neither is set.
  finding = _only(text)
  assert "there is no such file. Unset" in finding.text
  assert check.check(text).is_fatal
  assert check.merge(text, {}, {}).messages == ()


# From the list in JAX-Toolbox's rosetta/docs/GPU_performance.md.
_JAX_TOOLBOX = """
--xla_gpu_enable_async_collectives=true
--xla_gpu_all_reduce_combine_threshold_bytes=51200
--xla_gpu_all_reduce_combine_threshold_bytes=8589934592
--xla_gpu_enable_pipelined_p2p=false
--xla_gpu_collective_permute_decomposer_threshold=33521664
--xla_gpu_enable_nccl_comm_splitting
--xla_gpu_enable_nccl_per_stream_comms
--xla_gpu_enable_custom_fusions=true
--xla_gpu_enable_pipelined_collectives=false
--xla_gpu_enable_while_loop_double_buffering=true
--xla_gpu_enable_xla_runtime_executable=true
--xla_gpu_enable_triton_softmax_fusion=false
--xla_gpu_cudnn_gemm_fusion
--xla_gpu_lhs_enable_gpu_async_tracker=false
"""


def test_eight_flags_of_jax_toolboxs_guide_are_unknown_to_xla():
  report = check.check(_JAX_TOOLBOX)
  kinds = {
    finding.flag.partition("=")[0].removeprefix("--xla_gpu_"): finding.kind
    for finding in report.findings
  }
  unknown = {name for name, kind in kinds.items() if kind == "unknown"}
  assert unknown == {
    *("cudnn_gemm_fusion", "enable_async_collectives", "enable_custom_fusions"),
    *("enable_nccl_per_stream_comms", "enable_pipelined_collectives"),
    *("enable_triton_softmax_fusion", "enable_xla_runtime_executable"),
    "lhs_enable_gpu_async_tracker",
  }
  assert kinds["all_reduce_combine_threshold_bytes"] == "duplicate"
  assert kinds["collective_permute_decomposer_threshold"] == "contradiction"
  assert kinds["enable_nccl_comm_splitting"] == "default"
  assert not check.check(report.suggestion).is_fatal


@settings(max_examples=15)
@given(st.lists(_SOME_FLAGS, max_size=5))
def test_suggestions_set_the_same_options_in_no_more_flags(flags):
  report = check.check(" ".join(flags))
  assert _sets(report.suggestion) == _sets(" ".join(flags))
  assert len(syntax.parse(report.suggestion)[0]) <= len(flags)
  again = check.check(report.suggestion)
  assert {f.kind for f in again.findings} <= {"contradiction"}


@pytest.mark.parametrize("names", notes.RENAMES.items(), ids=lambda n: n[0])
def test_each_version_has_one_name_of_a_renamed_option(names):
  assert sum(debug_options.find(name) is not None for name in names) == 1
  for value in ("true", "false"):
    assert not isinstance(xla_options.translate(names[0], value), str)


@pytest.mark.parametrize("name", notes.REMOVED)
def test_xla_rejects_each_removed_flag_and_accepts_its_successor(name):
  note = notes.REMOVED[name]
  removed, *instead = probe.ask(
    [f"--{name}=true", *filter(None, note.instead.values())]
  )
  assert removed.unknown
  assert not any(answer.is_fatal for answer in instead)


@pytest.mark.parametrize("name", notes.REMOVED)
def test_a_removed_flag_is_reported_with_the_version_that_lacks_it(name):
  note = notes.REMOVED[name]
  told = _only(f"--{name}=true").text
  assert f"by jaxlib {note.gone_by}. {note.text}" in told


@pytest.mark.parametrize("name", [*notes.ADDED, *notes.REMOVED_SINCE])
def test_a_flag_of_another_version_is_reported_with_that_version(name):
  since, version = notes.ADDED.get(name), debug_options.jaxlib_version()
  is_here = (version >= "0.12") == (since is not None)
  assert is_here == (debug_options.find(name) is not None)
  if is_here:
    return
  finding = _only(f"--{name}=1")
  assert finding.kind == "unknown"
  note = notes.REMOVED_SINCE.get(name)
  assert f"jaxlib {since or (note and note.gone_by)}" in finding.text


def test_fencing_slack_has_no_effect_without_fencing():
  fencing = "xla_gpu_experimental_scheduler_memory_fencing"
  if debug_options.find(f"{fencing}_threshold_bytes") is None:
    pytest.skip("this jaxlib has no memory fencing")
  slack = f"--{fencing}_slack_windows=2"
  assert _only(slack).kind == "contradiction"
  assert check.check(f"{slack} --{fencing}_threshold_bytes=0").findings == ()


def test_a_collective_kernel_that_xla_lacks_is_a_contradiction():
  if debug_options.find(xla_kernels.KERNELS) is None:
    pytest.skip("this jaxlib has no list of kernels")
  kinds = "COLLECTIVE_KERNEL_ALL_REDUCE", "COLLECTIVE_KERNEL_ALL_TO_ALL"
  finding = _only(f"--{xla_kernels.KERNELS}={','.join(kinds)}")
  assert finding.kind == "contradiction"
  assert "rejects every program" in finding.text


def test_the_device_kernel_needs_symmetric_buffers():
  if debug_options.find(xla_kernels.ON_DEVICE) is None:
    pytest.skip("this jaxlib has no such kernel")
  alone = f"--{xla_kernels.ON_DEVICE}=true"
  assert _only(alone).kind == "contradiction"
  windows = f"--{collective_routes.SYMMETRIC_KINDS}=raggedalltoall"
  assert check.check(f"{alone} {windows}").findings == ()


@pytest.mark.parametrize(
  "conflict", conflicts.CONFLICTS, ids=lambda c: "-".join(c.options)
)
def test_defaults_do_not_contradict_each_other(conflict):
  defaults = {o.name: o.default for o in debug_options.options().values()}
  is_here = all(name in defaults for name in conflict.options)
  renamed = {*notes.RENAMES, *notes.RENAMES.values()}
  of_other_versions = renamed | notes.ADDED.keys()
  is_of_other_version = not of_other_versions.isdisjoint(conflict.options)
  assert is_here or is_of_other_version
  off_passes = "xla_disable_hlo_passes" in conflict.options
  assert off_passes or not is_here or not conflict.holds(defaults)


_STREAMS = "xla_gpu_experimental_enable_collective_multi_streaming"
_FULL = {UNROLLING: "WHILE_LOOP_UNROLLING_FULL_UNROLL"}


@pytest.mark.parametrize(
  ("others", "void"),
  [
    *(({}, {name: True}) for name in (_EARLY, _STREAMS)),
    ({}, {"xla_gpu_collective_inflation_factor": 2}),
    ({}, {"xla_gpu_enable_nccl_clique_optimization": True}),
    ({}, {"xla_gpu_collective_permute_decomposer_threshold": 0}),
    (_FULL, {"xla_gpu_enable_while_loop_double_buffering": True}),
  ],
)
def test_options_reported_as_without_effect_change_no_schedule(
  scheduled, fsdp_step, others, void
):
  without = scheduled(fsdp_step(), **others)
  with_it = scheduled(fsdp_step(), **others, **void)
  assert plan_lib.fingerprint(with_it) == plan_lib.fingerprint(without)


# A merge.

_merged = functools.partial(check.merge, nccl_env={})


def test_a_plan_replaces_flags_of_the_environment_in_a_merge():
  merged = _merged(f"--{GATHER}=1 --{LEVEL}=2", {GATHER: 5})
  assert [(e.flag, e.source, e.replaces) for e in merged.entries] == [
    (f"--{LEVEL}=2", "environment", ()),
    (f"--{GATHER}=5", "plan", ((f"--{GATHER}=1", "environment"),)),
  ]
  assert merged.xla_flags == f"--{LEVEL}=2 --{GATHER}=5"


def test_a_plan_replaces_an_option_that_is_set_under_another_name():
  merged = _merged(f"--{OLD}=true", {NEW: "off"})
  (entry,) = merged.entries
  assert (entry.source, entry.replaces) == (
    "plan",
    ((f"--{OLD}=true", "environment"),),
  )


def test_fatal_flags_are_left_out_of_a_merge_with_a_message():
  merged = _merged(
    f"--xla_gpu_graph_level=0 --{LEVEL}=2 NCCL_DEBUG=INFO", {"xla_none": 1}
  )
  assert merged.xla_flags == f"--{LEVEL}=2"
  graph, rest, plan = merged.messages
  assert graph.endswith("Write --xla_gpu_enable_command_buffer= instead.")
  assert "NCCL_DEBUG=INFO" in rest
  assert "xla_none" in plan


@settings(max_examples=10)
@given(st.lists(_SOME_FLAGS, max_size=4), st.integers(0, 3))
def test_merged_flags_equal_the_environments_followed_by_the_plans(
  flags, level
):
  text = " ".join(flags)
  merged = _merged(text, {LEVEL: level})
  assert _sets(merged.xla_flags) == _sets(f"{text} --{LEVEL}={level}")
