# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Compiles: a train step in, the HLO module that XLA makes of it out.

What a user names (`load.py`) is a target (`target.py`). Its program is lowered
(`lowered.py`) and goes with a config to XLA (`compiler.py`): in this process,
or as a job through the pool (`pool.py`) to another one (`worker.py`). That one
compiles it from the beginning, or from the module that another job left fused
(`fused.py`), through as much of XLA as is needed (`xla.py`).
"""
