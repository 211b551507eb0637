# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reasons why collectives are exposed, computed from schedule and replay.

`walk` replays a step and keeps what each instruction waited for. `places` says
where in its computation each collective could run at all, and `parts` takes its
exposed time apart by that, one reason after the other. What is then known of a
collective is a `subject`: `sentences`, with `sync` and `arrays`, puts it into
words, and `advice`, with `loops`, says what could be changed. `alike` compares
a step with what a plan makes of it, and `slowed` lists the kernels that pay.
`explaining` does all of this for a step; the result is an `explanation`, plain
data that `kept` writes beside a plan and in which `finding` looks names up.
"""
