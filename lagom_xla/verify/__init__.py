# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Proof that a plan acts: what each part of it does to a step.

`left_out` lists the parts of a config, each with a config that has it and one
that has not. `effects` compares their two schedules; `program_effect` and
`order_effect` add what only forms and orders do, `nccl_effects` is about what
changes no schedule, and `replaced` tells what runs without an option.
`verification` does all of this for a plan.
"""
