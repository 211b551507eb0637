# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""XLA's options are the installed jaxlib's, and so is what they take.

What is asserted of names holds for jaxlib 0.10.2 and 0.12 alike; where they
differ, a test asks which of the two it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
import os
import pathlib
import struct
import subprocess
import sys
from typing import Any

from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st
import jax
import pytest

from lagom_xla import errors
from lagom_xla import plan as plan_lib
from lagom_xla.flags import conflicts
from lagom_xla.flags import debug_options
from lagom_xla.flags import embedded_protos
from lagom_xla.flags import notes
from lagom_xla.flags import options as xla_options
from lagom_xla.flags import probe
from lagom_xla.flags import values
from lagom_xla.passes import hlo

_GATHER = "xla_gpu_all_gather_combine_threshold_bytes"
_UNROLLING = "xla_gpu_enable_while_loop_unrolling"
_BUFFERS = "xla_gpu_enable_command_buffer"
_OLD = "xla_gpu_enable_pipelined_all_gather"
_NEW = "xla_gpu_pipeline_all_gather"
_IS_NEW = debug_options.find(_NEW) is not None


def _option(name: str) -> debug_options.Option:
  option = debug_options.find(name)
  assert option is not None
  return option


def _scalars() -> list[debug_options.Option]:
  return [o for o in debug_options.options().values() if o.is_scalar]


@pytest.fixture(scope="module")
def compile_with() -> Callable[[Any], Any]:
  """Compiles for this machine's CPU with XLA options."""
  lowered = jax.jit(lambda x: x + 1).lower(1.0)
  return lambda options: lowered.compile(compiler_options=options)


# What there is.


def test_an_option_has_a_type_and_a_default():
  assert len(debug_options.options()) > 300
  gather = _option(_GATHER)
  assert (gather.type, gather.default) == ("int", 30 * 2**20 + 7)
  assert gather.int_range == (-(2**63), 2**63 - 1)
  assert _option("xla_gpu_enable_triton_gemm").default is True


def test_an_enum_has_the_names_of_its_values():
  unrolling = _option(_UNROLLING)
  assert unrolling.default == "WHILE_LOOP_UNROLLING_AUTO_UNROLL"
  assert "WHILE_LOOP_UNROLLING_FULL_UNROLL" in unrolling.enum_values
  assert unrolling.default in unrolling.enum_values


def test_a_list_of_enums_is_one_text():
  buffers = _option(_BUFFERS)
  assert buffers.is_repeated
  assert isinstance(buffers.default, str)
  assert set(buffers.default.split(",")) <= set(buffers.enum_values)


def test_an_option_of_no_version_is_not_found():
  assert debug_options.find("xla_gpu_make_it_fast") is None


def test_the_users_own_flags_are_no_defaults():
  program = (
    "from lagom_xla.flags import debug_options as d;"
    "print(d.find('xla_gpu_autotune_level').default)"
  )
  flags = "--xla_gpu_autotune_level=1 --xla_that_ends_a_process=1"
  done = subprocess.run(
    [sys.executable, "-c", program],
    env={**os.environ, "XLA_FLAGS": flags},
    capture_output=True,
    text=True,
    check=True,
  )
  assert done.stdout == "4\n"


def test_compiling_takes_every_default(compile_with: Callable[[Any], Any]):
  compile_with({o.name: o.default for o in _scalars()})


def test_a_jaxlib_that_hides_its_options_says_so_once(
  monkeypatch: pytest.MonkeyPatch,
):
  monkeypatch.setattr(debug_options, "_FILE", "xla/hidden.proto")
  debug_options._pool.cache_clear()
  debug_options.options.cache_clear()
  try:
    with pytest.raises(errors.OptionsError, match="does not show which"):
      debug_options.find(_GATHER)
    flags = xla_options.flags({_GATHER: 3})
  finally:
    monkeypatch.undo()
    debug_options._pool.cache_clear()
  assert list(map(str, flags.flags)) == [f"--{_GATHER}=3"]
  assert len(flags.messages) == 1 and "does not show" in flags.messages[0]


# Descriptions among other bytes.


def _file(
  name: str, *, imported: str = ""
) -> descriptor_pb2.FileDescriptorProto:
  file = descriptor_pb2.FileDescriptorProto(name=name, syntax="proto3")
  message = file.message_type.add(name="M" + name[0])
  message.field.add(name="x", number=1, type=5, label=1)
  file.dependency.extend([imported] if imported else [])
  return file


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_a_description_is_found_among_other_bytes(before: bytes, after: bytes):
  file = _file("a.proto")
  # A linker puts zeros between objects.
  data = before + file.SerializeToString() + b"\0" + after
  assert embedded_protos.find(data, "a.proto") == file


def test_the_name_of_a_file_is_not_its_description(tmp_path: pathlib.Path):
  first, second = _file("a.proto", imported="b.proto"), _file("b.proto")
  library = tmp_path / "library.so"
  # The name stands in the import before it stands in the file itself.
  library.write_bytes(
    b"\x0a\x07b.proto\0"
    + first.SerializeToString()
    + b"\0"
    + second.SerializeToString()
    + b"\0"
  )
  pool = embedded_protos.load(library, "a.proto")
  assert pool.FindMessageTypeByName("Mb").fields_by_name["x"].number == 1


@pytest.mark.parametrize("keep", [0, 10])
def test_a_description_that_is_cut_off_is_not_found(keep: int):
  data = _file("a.proto").SerializeToString()[:keep]
  with pytest.raises(embedded_protos.NotEmbeddedError, match=r"a\.proto"):
    embedded_protos.find(data, "a.proto")


# Values.


@pytest.mark.parametrize(
  ("name", "value", "converted"),
  [
    ("xla_gpu_enable_triton_gemm", "true", True),
    ("xla_gpu_enable_triton_gemm", "OFF", False),
    ("xla_gpu_enable_triton_gemm", 1, True),
    (_GATHER, "123", 123),
    (_GATHER, 1e9, 10**9),
    (_UNROLLING, "full_unroll", "WHILE_LOOP_UNROLLING_FULL_UNROLL"),
    (_UNROLLING, 2, "WHILE_LOOP_UNROLLING_FULL_UNROLL"),
    (_BUFFERS, 11, "CONVOLUTION"),  # There is no value 10.
    (
      _UNROLLING,
      "While_Loop_Unrolling_No_Unroll",
      "WHILE_LOOP_UNROLLING_NO_UNROLL",
    ),
    (_BUFFERS, "", ""),
    (_BUFFERS, "fusion,CUBLAS", "FUSION,CUBLAS"),
    (_BUFFERS, ["FUSION"], "FUSION"),
    ("xla_disable_hlo_passes", ("a", "b"), "a,b"),
    ("xla_dump_to", "some where", "some where"),
    ("xla_gpu_auto_spmd_partitioning_memory_budget_ratio", 2, 2.0),
  ],
)
def test_a_clear_value_is_taken_and_compiles(
  compile_with: Callable[[Any], Any],
  name: str,
  value: object,
  converted: object,
):
  found = values.convert(_option(name), value)
  assert (found, type(found)) == (converted, type(converted))
  if name != "xla_dump_to":  # It would.
    compile_with({name: found})


def test_a_list_of_enums_may_change_the_default():
  default = str(_option(_BUFFERS).default).split(",")
  more = values.convert(_option(_BUFFERS), "+COLLECTIVES,-cublas")
  assert set(str(more).split(",")) == {*default, "COLLECTIVES"} - {"CUBLAS"}


@pytest.mark.parametrize(
  ("name", "value", "rule"),
  [
    ("xla_gpu_enable_triton_gemm", "maybe", "true or false"),
    ("xla_gpu_autotune_level", True, "a whole number from -2147483648"),
    ("xla_gpu_autotune_level", 2**31, "to 2147483647"),
    ("xla_gpu_autotune_level", 2.5, "a whole number"),
    (_UNROLLING, "twice", "one of WHILE_LOOP_UNROLLING_NO_UNROLL"),
    (_UNROLLING, 99, "one of"),
    (_BUFFERS, "FUSION,NOTHING", "a list, A,B, of: one of"),
    (_BUFFERS, "+FUSION,CUBLAS", "a list"),
    ("xla_dump_to", 3, "text"),
    ("xla_gpu_auto_spmd_partitioning_memory_budget_ratio", "x", "a number"),
  ],
)
def test_any_other_value_is_refused_with_the_rule(
  name: str, value: object, rule: str
):
  with pytest.raises(values.ValueRuleError) as error:
    values.convert(_option(name), value)
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
  once = values.convert(option, data.draw(strategies[option.type]))
  assert values.convert(option, once) == once
  assert values.convert(option, option.default) == option.default


# Other versions.


def test_an_option_is_translated_to_the_name_that_this_version_has():
  if _IS_NEW:
    expected = (_NEW, "COLLECTIVE_PIPELINING_MODE_ON")
    assert xla_options.translate(_OLD, True) == expected
  else:
    expected = (_OLD, True)
  for name, value in ((_NEW, "on"), (_OLD, "true"), expected):
    assert xla_options.translate(name, value) == expected
  fitted = xla_options.fit({_OLD if _IS_NEW else _NEW: "on"})
  assert _IS_NEW or fitted.options == {_OLD: True}


def test_a_translated_option_compiles(compile_with: Callable[[Any], Any]):
  other, value = (_OLD, "true") if _IS_NEW else (_NEW, "on")
  with pytest.raises(
    jax.errors.JaxRuntimeError, match="No such compile option"
  ):
    compile_with({other: value})
  fitted = xla_options.fit({other: value})
  compile_with(fitted.options)
  (message,) = fitted.messages
  assert other in message and next(iter(fitted.options)) in message


def test_what_this_version_lacks_is_left_out_with_a_message():
  fitted = xla_options.fit(
    {_GATHER: "1", "xla_gpu_graph_level": 0, "xla_gpu_autotune_level": "x"}
  )
  assert fitted.options == {_GATHER: 1}
  first, second = fitted.messages
  assert first.startswith("xla_gpu_graph_level is not an option of jaxlib ")
  assert second.startswith('xla_gpu_autotune_level cannot be "x"')
  assert all(message.endswith("It is left out.") for message in (first, second))


def test_a_value_that_only_the_other_version_has_is_left_out():
  if _IS_NEW:
    pytest.skip("the newer version has every value of the older")
  message = xla_options.translate(_NEW, "explicit")
  assert isinstance(message, str)
  assert "explicit" in message


def test_a_misspelled_option_is_recognized():
  message = xla_options.translate("xla_gpu_enable_triton_gem", True)
  assert isinstance(message, str)
  assert message.endswith("Is it xla_gpu_enable_triton_gemm?")


# Flags.


@pytest.mark.parametrize(
  ("name", "value"),
  [
    ("xla_gpu_enable_triton_gemm", False),
    (_UNROLLING, "full_unroll"),
    ("xla_gpu_all_gather_mode", "COLLECTIVES_PEER_MEMORY"),
    ("xla_gpu_detect_nan", "DETECTION_MODE_FAIL"),
    ("xla_gpu_auto_spmd_partitioning_memory_budget_ratio", 1.3),
    ("xla_dump_to", "a b'c\"d\\e"),
    ("xla_disable_hlo_passes", "a,b"),
    (_NEW, "on"),
    (_OLD, True),
  ],
)
def test_a_flag_sets_what_compiling_with_the_option_would(
  name: str, value: object
):
  ((fitted, expected),) = xla_options.fit({name: value}).options.items()
  (answer,) = probe.ask([xla_options.xla_flags({name: value})])
  assert not answer.is_fatal
  found = debug_options.values(answer.compile_options)[fitted]
  if isinstance(expected, float):
    (expected,) = struct.unpack("f", struct.pack("f", expected))
  assert found == expected != _option(fitted).default


def test_no_flag_is_made_that_would_end_a_process():
  flags = xla_options.flags({_GATHER: 5, "xla_enable_dumping": False, "no": 1})
  assert list(map(str, flags.flags)) == [f"--{_GATHER}=5"]
  assert any("xla_enable_dumping is left out" in m for m in flags.messages)
  (answer,) = probe.ask(["--xla_enable_dumping=false"])
  assert answer.unknown


def test_flags_are_spelled_as_xla_reads_them():
  options = {
    "xla_gpu_enable_nccl_user_buffers": True,
    "xla_gpu_autotune_level": 2,
    "xla_dump_to": "folder",
    "xla_gpu_enable_triton_gemm": False,
    "xla_gpu_all_gather_mode": "COLLECTIVES_PEER_MEMORY",
  }
  assert xla_options.xla_flags(options) == (
    "--xla_dump_to=folder --xla_gpu_all_gather_mode=peer"
    " --xla_gpu_autotune_level=2 --xla_gpu_enable_nccl_user_buffers=true"
    " --xla_gpu_enable_triton_gemm=false"
  )


# What is known beyond jaxlib.


@pytest.mark.parametrize("rename", notes.RENAMES, ids=lambda r: r.old)
def test_a_version_has_one_of_an_options_two_names(rename: notes.Rename):
  names = (rename.old, rename.new)
  assert sum(debug_options.find(name) is not None for name in names) == 1
  for value in rename.values:
    assert not isinstance(xla_options.translate(rename.old, value), str)


@pytest.mark.parametrize("name", notes.REMOVED)
def test_a_removed_flag_ends_a_process_and_its_successor_does_not(name: str):
  note = notes.REMOVED[name]
  removed, *instead = probe.ask(
    [f"--{name}=true", *filter(None, note.instead.values())]
  )
  assert removed.unknown
  assert not any(answer.is_fatal for answer in instead)


@pytest.mark.parametrize(
  "conflict", conflicts.CONFLICTS, ids=lambda c: "-".join(c.options)
)
def test_defaults_do_not_contradict_each_other(
  conflict: conflicts.Conflict,
):
  defaults = {o.name: o.default for o in debug_options.options().values()}
  is_here = all(name in defaults for name in conflict.options)
  is_of_other_version = any(
    name in (rename.old, rename.new)
    for name in conflict.options
    for rename in notes.RENAMES
  )
  assert is_here or is_of_other_version
  off_passes = "xla_disable_hlo_passes" in conflict.options
  assert off_passes or not is_here or not conflict.holds(defaults)


_EARLY = "xla_gpu_experimental_collective_start_as_early_as_possible"
_STREAMS = "xla_gpu_experimental_enable_collective_multi_streaming"
_FULL = {_UNROLLING: "WHILE_LOOP_UNROLLING_FULL_UNROLL"}


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
def test_what_is_said_to_do_nothing_changes_no_schedule(
  scheduled: Callable[..., hlo.Module],
  fsdp_step: Callable[..., jax.stages.Lowered],
  others: dict[str, Any],
  void: dict[str, Any],
):
  without = scheduled(fsdp_step(), **others)
  with_it = scheduled(fsdp_step(), **others, **void)
  assert plan_lib.fingerprint(with_it) == plan_lib.fingerprint(without)
