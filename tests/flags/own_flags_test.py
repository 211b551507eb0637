# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A program's own changes of XLA_FLAGS are reported with their line."""

from __future__ import annotations

import os
import pathlib
import runpy

import pytest

from lagom_xla import errors
from lagom_xla.flags import environment
from lagom_xla.flags import own_flags

_NAME = "xla_gpu_autotune_level"
_OURS = f"--{_NAME}=4"


def _change(
  folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> environment.Own:
  """The changes of a program in which JAX has not started."""
  monkeypatch.setattr(own_flags.request, "has_started", lambda: False)
  file = folder / "train.py"
  file.write_text(f"import os\n{text}\n")
  with own_flags.watched() as found:
    runpy.run_path(str(file))
  (own,) = found
  assert own.place.endswith("train.py:2") or "\n" in text
  return own


@pytest.mark.parametrize("there", ["", "--xla_dump_to=/dumps"])
@pytest.mark.parametrize(
  ("does", "text"),
  [
    ("drops", f"os.environ['XLA_FLAGS'] = '{_OURS}'"),
    ("drops", f"os.environ.update(\n  dict(XLA_FLAGS='{_OURS}'))"),
    ("drops", f"os.environ['XLA_FLAGS'] = ''.join(\n  ['{_OURS}'])"),
    (
      "keeps",
      f"os.environ['XLA_FLAGS'] = os.getenv('XLA_FLAGS', '') + ' {_OURS}'",
    ),
    (
      "keeps",
      "flags = os.environ.get('XLA_FLAGS', '')\n"
      f"flags = f'{_OURS} {{flags}}'\nos.environ['XLA_FLAGS'] = flags",
    ),
  ],
)
def test_a_program_that_drops_or_keeps_a_launchers_flags_is_detected(
  tmp_path, monkeypatch, there, does, text
):
  monkeypatch.setenv("XLA_FLAGS", there)
  if not there:
    monkeypatch.delenv("XLA_FLAGS")
  own = _change(tmp_path, monkeypatch, text)
  assert (own.does, own.names) == (does, (_NAME,))
  assert ("env.sh are lost" in own.about(["xla_other"])) == (does == "drops")
  assert "append os.environ['XLA_FLAGS']" in own.about([_NAME])


@pytest.mark.parametrize("there", [False, True])
def test_a_program_that_removes_a_launchers_flags_is_detected(
  tmp_path, monkeypatch, there
):
  monkeypatch.setenv("XLA_FLAGS", _OURS)
  if not there:
    monkeypatch.delenv("XLA_FLAGS")
  own = _change(tmp_path, monkeypatch, "os.environ.pop('XLA_FLAGS', None)")
  assert "those of env.sh are lost" in own.about([_NAME])
  assert "XLA_FLAGS" not in os.environ
  text = (
    "flags = os.environ.pop('XLA_FLAGS', '')\n"
    f"os.environ['XLA_FLAGS'] = flags + ' {_OURS}'"
  )
  assert _change(tmp_path, monkeypatch, text).does == "keeps"


def test_a_program_that_yields_to_a_launchers_flags_is_detected(
  tmp_path, monkeypatch
):
  monkeypatch.setenv("XLA_FLAGS", "")  # So that monkeypatch restores it.
  monkeypatch.delenv("XLA_FLAGS")
  text = f"os.environ.setdefault('XLA_FLAGS', '{_OURS}')"
  own = _change(tmp_path, monkeypatch, text)
  assert "its own flags, under which the plan was made" in own.about([_NAME])


def test_fatal_flags_that_a_program_sets_are_an_error_and_put_back(
  tmp_path, monkeypatch
):
  monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/dumps")
  with pytest.raises(errors.FlagsError, match=r"Unknown flag .*xla_gpu_magic"):
    _change(
      tmp_path, monkeypatch, "os.environ['XLA_FLAGS'] = '--xla_gpu_magic'"
    )
  assert os.environ["XLA_FLAGS"] == "--xla_dump_to=/dumps"


def test_flags_set_after_xla_has_read_them_are_put_back_with_a_warning(
  monkeypatch, h100s
):
  monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=/dumps")
  with pytest.warns(RuntimeWarning, match="after XLA has read it"):
    with own_flags.watched() as found:
      os.environ["XLA_FLAGS"] = _OURS
  assert not found
  assert os.environ["XLA_FLAGS"] == "--xla_dump_to=/dumps"


def test_dump_flags_that_are_set_too_late_are_put_back_silently(
  monkeypatch, h100s, recwarn
):
  monkeypatch.delenv("XLA_FLAGS", raising=False)
  with own_flags.watched() as found:
    os.environ["XLA_FLAGS"] = "--xla_dump_to=/dumps --xla_dump_hlo_as_text"
  assert not found
  assert "XLA_FLAGS" not in os.environ
  assert not recwarn.list
