# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""JAX's internals: all private names and caches of it that lagom_xla touches.

They are those of JAX 0.10.2 to 0.12; nothing else imports `jax._src`, as ruff
checks. What has no public way in is here: the module and the backend of a
lowered step, compiles of StableHLO that no function was traced to, what jit
does with a signature it has not seen, the lock of its profiler, the store that
a job's processes share.
"""
