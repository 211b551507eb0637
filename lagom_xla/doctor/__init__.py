# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The doctor: what lagom_xla can do on this machine, tried and not guessed.

    checkup = doctor.examine()
    checkup.works, checkup.findings

What loads libraries that may end a process is tried in a process of its own
(`trials.py`), for a limited time.
"""

from __future__ import annotations

from lagom_xla.doctor.examination import Checkup as Checkup
from lagom_xla.doctor.examination import Finding as Finding
from lagom_xla.doctor.examination import Version as Version
from lagom_xla.doctor.examination import examine as examine
