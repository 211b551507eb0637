# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The JSON objects of `lagom-xla inspect`, `tune`, `verify` and `profile`.

Their fields are those of the dataclasses beside it, which docs/formats.md
lists; other programs build on them.
"""

from __future__ import annotations

from typing import Any

from lagom_xla import validation
from lagom_xla.costs import step as step_lib
from lagom_xla.profiling import costing as costing_lib
from lagom_xla.profiling import profile as profile_lib
from lagom_xla.report.printed import inspection as printed_inspection
from lagom_xla.report.printed import profile as printed_profile
from lagom_xla.report.printed import tuning as printed_tuning
from lagom_xla.report.printed import verification as printed_verification
from lagom_xla.tuner import tuning as tuning_lib
from lagom_xla.verify import verification as verification_lib


def inspection(
  step: step_lib.Step, costed: costing_lib.Costing | None = None
) -> dict[str, Any]:
  """What `lagom-xla inspect --format=json` prints."""
  return validation.write(printed_inspection.of_step(step, costed))


def tuning(
  tuned: tuning_lib.Tuning, costed: costing_lib.Costing | None = None
) -> dict[str, Any]:
  """What `lagom-xla tune --format=json` prints."""
  return validation.write(printed_tuning.of_tuning(tuned, costed))


def verification(verified: verification_lib.Verification) -> dict[str, Any]:
  """What `lagom-xla verify --format=json` prints."""
  return validation.write(printed_verification.of_verification(verified))


def profile(measured: profile_lib.Profile) -> dict[str, Any]:
  """What `lagom-xla profile --format=json` prints."""
  return validation.write(printed_profile.of_profile(measured))
