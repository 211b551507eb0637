# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Combining collectives: XLA's rule, possible groups, and the rewrite pass.

`table` has XLA's combiners and their rule, `combinable` finds the collectives
of a module that could be combined, and `keys` is the pass.

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
