# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is no module is refused, with the reason."""

from __future__ import annotations

from collections.abc import Callable
import gzip
import lzma
import pathlib

import hypothesis
from hypothesis import strategies as st
import jax
import pytest

from hlo_sources import HLO_PROTO
from hlo_sources import PROTO
from hlo_sources import TEXT
from hlo_sources import error_of
from lagom_xla import errors
from lagom_xla.passes import hlo
from lagom_xla.passes import overlap


def test_text_that_is_not_hlo_is_refused() -> None:
  text = b"import jax\n\nprint(jax)\n"
  assert f"{len(text)} bytes is neither HLO text" in error_of(text)


def test_hlo_text_with_an_error_is_refused_with_the_parsers_reason() -> None:
  message = error_of("HloModule m\n\nENTRY e { ROOT p = f33[] parameter(0) }\n")
  assert "is not HLO text that this jaxlib can read" in message
  assert "f33" in message
  assert "\n" not in message


def test_hlo_text_cut_short_is_refused() -> None:
  cut = TEXT[: len(TEXT) // 2]
  assert "is not HLO text that this jaxlib can read" in error_of(cut)


def test_hlo_text_cut_between_computations_is_refused() -> None:
  cut = TEXT[: TEXT.index("ENTRY ")]
  assert "has no ENTRY computation; it may be truncated." in error_of(cut)


def test_hlo_text_in_another_encoding_is_refused() -> None:
  text = TEXT.replace("jit_step", "jit_st\xe9p").encode("latin-1")
  assert "not UTF-8" in error_of(text)


def test_an_empty_file_a_missing_file_and_a_directory_are_refused(
  tmp_path: pathlib.Path,
) -> None:
  empty = tmp_path / "empty.hlo"
  empty.touch()
  assert error_of(empty) == f"{empty} is empty."
  missing = tmp_path / "missing.hlo"
  assert (
    error_of(missing) == f"Cannot read {missing}: No such file or directory."
  )
  assert error_of(tmp_path) == f"Cannot read {tmp_path}: Is a directory."


def test_an_object_that_holds_no_module_is_refused() -> None:
  assert "from a int" in error_of(3)


@pytest.mark.parametrize("compress", [lzma.compress, gzip.compress])
@hypothesis.given(data=st.data())
def test_a_compressed_file_cut_anywhere_is_refused(
  compress: Callable[[bytes], bytes], data: st.DataObject
) -> None:
  whole = compress(PROTO)
  length = data.draw(st.integers(0, len(whole) - 1))
  with pytest.raises(errors.HloError):
    hlo.load(whole[:length])


@pytest.mark.parametrize("whole", [PROTO, HLO_PROTO])
@hypothesis.given(data=st.data())
def test_a_proto_cut_anywhere_is_refused_or_a_module(
  whole: bytes, data: st.DataObject
) -> None:
  length = data.draw(st.integers(0, len(whole) - 1))
  try:
    module = hlo.load(whole[:length])
  except errors.HloError as error:
    assert "truncated" in str(error) or "empty" in str(error)
  else:  # The cut fell between the fields that come after the computations.
    assert overlap.analyze(module).overlaps == ()


@hypothesis.given(st.binary(max_size=200))
def test_bytes_that_are_nothing_are_refused(data: bytes) -> None:
  with pytest.raises(errors.HloError):
    hlo.load(data)


def test_a_module_that_calls_what_it_lacks_is_refused() -> None:
  proto = hlo.hlo_pb2.HloModuleProto.FromString(PROTO)
  loop = next(
    i for c in proto.computations for i in c.instructions if i.opcode == "while"
  )
  loop.called_computation_ids[0] = 123456
  assert "calls a computation that" in error_of(proto.SerializeToString())


@pytest.mark.parametrize("order", [[1, 1], [0, 2], [0], [0, 1, 2], [-1, 0]])
def test_a_layout_that_is_none_of_its_array_is_refused(
  order: list[int],
) -> None:
  proto = hlo.hlo_pb2.HloModuleProto.FromString(PROTO)
  changed = next(
    i
    for c in proto.computations
    for i in c.instructions
    if len(i.shape.layout.minor_to_major) == 2
  )
  changed.shape.layout.minor_to_major[:] = order
  message = error_of(proto.SerializeToString())
  assert f"{changed.name} has 2 dimensions and a layout of {order}" in message


def test_stablehlo_is_called_that_and_told_how_to_become_hlo() -> None:
  lowered = jax.jit(lambda x: x * 2).lower(1.0)
  text = lowered.as_text().encode()
  for source in (text, gzip.compress(text)):
    message = error_of(source)
    assert "is StableHLO, as `lowered.as_text()` gives it; give what" in message
  hlo.load(lowered.as_text(dialect="hlo"))


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=30)
def test_a_compressed_module_with_a_changed_byte_is_refused(
  compress: Callable[[bytes], bytes], data: st.DataObject
) -> None:
  whole = compress(PROTO)
  # Before it gzip has its time of day, which nobody reads.
  at = data.draw(st.integers(min_value=10, max_value=len(whole) - 1))
  changed = bytes([whole[at] ^ data.draw(st.integers(1, 255))])
  assert error_of(whole[:at] + changed + whole[at + 1 :])
