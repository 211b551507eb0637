# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Turns a plan into files and settings, for launchers and for NCCL.

`files` writes a plan's folder: `env` makes its env.sh, and nccl/ the table of
the tuner plugin. `checked` reads and checks a plan, and compiles a target with
it.
"""
