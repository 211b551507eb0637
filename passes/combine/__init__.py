# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Combining: which collectives become one, and the pass that combines them.

`table` has XLA's combiners and their rule, `combinable` the collectives of a
module that could be combined.

    from lagom_xla.passes import combine

    groups = (("all-gather", "all-gather.1"),)       # the others stay alone
    rewritten = combine.rewrite(module, groups)      # before XLA's combiners
    options = combine.options(groups)                # for the same compile
"""

from __future__ import annotations

from lagom_xla.passes.combine.combinable import Groups as Groups
from lagom_xla.passes.combine.keys import OPTIONS as OPTIONS
from lagom_xla.passes.combine.keys import check_acted as check_acted
from lagom_xla.passes.combine.keys import labels as labels
from lagom_xla.passes.combine.keys import options as options
from lagom_xla.passes.combine.keys import rewrite as rewrite
