# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Knobs: the XLA options that a search chooses from, and their values.

`table` has all of them, with those of the `scheduling` in a module of their
own; `value` is what each of them may be set to, and `thresholds` says which
combine thresholds can act on a schedule.
"""

from __future__ import annotations

from lagom_xla.search.xla.knobs.table import KNOBS as KNOBS
from lagom_xla.search.xla.knobs.table import OF_LOOPS as OF_LOOPS
from lagom_xla.search.xla.knobs.table import PIPELINED as PIPELINED
from lagom_xla.search.xla.knobs.table import PIPELINED_AS as PIPELINED_AS
from lagom_xla.search.xla.knobs.table import uncombined as uncombined
from lagom_xla.search.xla.knobs.table import worth_trying as worth_trying
