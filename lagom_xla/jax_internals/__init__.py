# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""All uses of JAX's private names and caches, from JAX 0.10.2 to 0.12.

Nothing else imports `jax._src`; ruff checks that. These have no public API: the
module and backend of a lowered step, compiles of StableHLO without a traced
function, jit's handling of new signatures, the profiler's lock, and the
key-value store of a job's processes.
"""
