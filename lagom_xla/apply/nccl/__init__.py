# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""NCCL settings per tuning key, through a tuner plugin of our own.

`plugin.c` is the plugin and `build` makes a library of it. `rules` turns a
plan's settings into rules, `layout` rules into bytes, and `table` writes and
switches the file of them that the plugin reads, and reads back which rules
fired. `per_function` says as much of a plan as NCCL_ALGO and NCCL_PROTO can, for
jobs that cannot load the plugin.

The plugin's own environment, beside NCCL_TUNER_PLUGIN with its path:

    LAGOM_XLA_NCCL_TABLE      the table's path; without it NCCL is left alone
    LAGOM_XLA_NCCL_CHECKSUM   refuse any other table than the one meant
    LAGOM_XLA_NCCL_LOG        1: log each choice (with NCCL_DEBUG=INFO)
"""
