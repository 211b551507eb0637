# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The file of a story, kept beside a plan.

kept.write(story, folder)  # folder/report.json.gz
kept.read(folder)
"""

from __future__ import annotations

from lagom_xla.plan import beside
from lagom_xla.report.page import story as story_lib

NAME = beside.REPORT
_FILE = beside.File(
  name=NAME,
  noun="report",
  of=story_lib.Story,
  format_version=story_lib.FORMAT_VERSION,
)
write = _FILE.write
read = _FILE.read
