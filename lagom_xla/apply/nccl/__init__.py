# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""NCCL settings per tuning key, through a tuner plugin of our own.

`plugin.c` is the plugin and `build` compiles it. `rules` turns a plan's
settings into rules, and `layout` turns rules into bytes. `table` writes the
file of them that the plugin maps, switches it under a running job, and reads
back how often each rule was applied. `per_function` puts what it can of a plan
into NCCL_ALGO and NCCL_PROTO, for jobs that cannot load the plugin. `state`
tells what NCCL would choose by in this process, with `variables` as NCCL reads
them.

The plugin's own environment, beside NCCL_TUNER_PLUGIN with its path:

    LAGOM_XLA_NCCL_TABLE      the table's path; without it NCCL is left alone
    LAGOM_XLA_NCCL_CHECKSUM   refuse any table but the one with this checksum
    LAGOM_XLA_NCCL_LOG        1: log each choice (with NCCL_DEBUG=INFO)
"""
