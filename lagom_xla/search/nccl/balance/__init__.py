# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Our own search: every collective just fast enough.

`searcher` searches all keys of a problem together, `key_search` is the search
of one of them: a `survey` of the channels in all its subspaces, and then a
`descent` from the best places. Other packages need only `Balance`.
"""

from __future__ import annotations

from lagom_xla.search.nccl.balance.searcher import Balance

__all__ = ["Balance"]
