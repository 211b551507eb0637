# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""NCCL settings per tuning key, through lagom_xla's tuner plugin.

`plugin.c` is the plugin, and `build` compiles it. `table` turns a plan's
settings into rules, and rules into the file that the plugin maps; it switches
the rules under a running job, and reads how often each was applied. `state`
tells which settings decide NCCL's choices in this process.

The plugin's own environment, beside NCCL_TUNER_PLUGIN with its path:

    LAGOM_XLA_NCCL_TABLE      the table's path; without it NCCL is left alone
    LAGOM_XLA_NCCL_CHECKSUM   refuse any table but the one with this checksum
    LAGOM_XLA_NCCL_LOG        1: log each choice (with NCCL_DEBUG=INFO)
"""
