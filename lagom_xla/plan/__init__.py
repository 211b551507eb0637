# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plan: what to set, for which module and cluster, and what it should gain.

from lagom_xla import plan

plan.load("plan").xla.options
"""

from __future__ import annotations

from lagom_xla.plan.fingerprint import fingerprint as fingerprint
from lagom_xla.plan.plan import FORMAT_VERSION as FORMAT_VERSION
from lagom_xla.plan.plan import MeasuredRun as MeasuredRun
from lagom_xla.plan.plan import NcclSetting as NcclSetting
from lagom_xla.plan.plan import Plan as Plan
from lagom_xla.plan.prediction import Applied as Applied
from lagom_xla.plan.prediction import Prediction as Prediction
from lagom_xla.plan.prediction import Range as Range
from lagom_xla.plan.read import from_dict as from_dict
from lagom_xla.plan.read import load as load
from lagom_xla.plan.read import schema as schema
