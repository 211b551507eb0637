# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""A plan: settings for a module on a cluster, and their predicted gain.

To read what a saved plan sets for XLA:

    from lagom_xla import plan

    plan.load("plan").xla.options
"""

from __future__ import annotations

from lagom_xla.plan.plan import Applied as Applied
from lagom_xla.plan.plan import MeasuredRun as MeasuredRun
from lagom_xla.plan.plan import NcclSetting as NcclSetting
from lagom_xla.plan.plan import Plan as Plan
from lagom_xla.plan.plan import Prediction as Prediction
from lagom_xla.plan.plan import Range as Range
from lagom_xla.plan.plan import fingerprint as fingerprint
from lagom_xla.plan.plan import from_dict as from_dict
from lagom_xla.plan.plan import load as load
from lagom_xla.plan.plan import schema as schema
