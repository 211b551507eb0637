# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles a train step to XLA's HLO module.

A user names (`load.py`) a target (`target.py`). Its program is lowered
(`lowered.py`) and compiled with a config (`compiler.py`): in this process, or
as a job through the pool (`pool.py`) in a worker (`worker.py`). A worker
compiles from the beginning, or from another job's fused module (`fused.py`),
and runs only as much of XLA as needed (`xla.py`).
"""
