# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The examination: all trials, and what to do about those that fail."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses

from lagom_xla.doctor import checkup
from lagom_xla.doctor import children
from lagom_xla.doctor import machine
from lagom_xla.doctor import trials

# Many times what a group of trials takes, on an idle machine.
_LIMIT_S = 60.0

_AOT = "pip install 'lagom_xla[aot]'"


@dataclasses.dataclass(frozen=True)
class _Trial:
  """A trial of `trials.py`.

  Attributes:
    name: what the user knows it by.
    advice: what to do where it does not work.
    is_essential: see `checkup.Finding`.
  """

  name: str
  advice: str
  is_essential: bool = False


_TRIALS: Mapping[str, _Trial] = {
  "flags": _Trial(
    "XLA_FLAGS",
    'lagom-xla flags --check "$XLA_FLAGS"',
    is_essential=True,
  ),
  "passes": _Trial("schedules", _AOT, is_essential=True),
  "compile": _Trial("full compiles", _AOT, is_essential=True),
  "options": _Trial(
    "XLA options", "Use a jaxlib of 0.10.2 to 0.12; plans have no options here."
  ),
  "gpus": _Trial("GPUs", "pip install 'lagom_xla[cuda13]'"),
  "plugin": _Trial(
    "NCCL tuner",
    "Install cc, gcc or clang, or name one in CC; env.sh sets NCCL_MAX_CTAS"
    " without it.",
  ),
  "nccl": _Trial(
    "NCCL",
    "Only GPUs need it: pip install 'lagom_xla[cuda13]'",
  ),
  "profiler": _Trial("profiler", "Without it plans rest on predictions alone."),
  "page": _Trial("report page", "pip install 'lagom_xla[report]'"),
}

# What shares a process, and with it the time that JAX takes to start.
_GROUPS = (
  ("flags", "passes", "compile", "options"),
  ("profiler",),
  ("plugin", "nccl", "page"),
)
_NO_GPUS = checkup.Finding(
  name="GPUs",
  status="missing",
  is_essential=False,
  found="none is here, and tuning needs none",
  advice="",
)


def examine(*, limit_s: float = _LIMIT_S) -> checkup.Checkup:
  """Tries all that lagom_xla uses.

  Args:
    limit_s: seconds that a group of trials may take.
  """
  has_gpus = machine.num_gpus() > 0
  groups = (*_GROUPS, ("gpus",)) if has_gpus else _GROUPS
  answers = children.run(groups, limit_s=limit_s)
  found = {name: _finding(answer) for name, answer in answers.items()}
  found.setdefault("gpus", _NO_GPUS)
  compiled = answers["compile"]
  worker_bytes = compiled.peak_bytes if compiled.status == "works" else 0
  findings = (
    *(found[name] for name in _TRIALS),
    machine.compile_cache(),
    machine.workers(worker_bytes),
  )
  return checkup.Checkup(
    works=all(f.status == "works" for f in findings if f.is_essential),
    versions=tuple(machine.versions()),
    findings=findings,
  )


def _finding(answer: trials.Answer) -> checkup.Finding:
  trial = _TRIALS[answer.name]
  # Errors of ours end in advice of their own.
  is_advised = (
    answer.status == "works"
    or answer.was_cut_off
    or "pip install" in answer.found
  )
  return checkup.Finding(
    name=trial.name,
    status=answer.status,
    is_essential=trial.is_essential,
    found=answer.found,
    advice="" if is_advised else trial.advice,
  )
