# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""GPT in Flax NNX, trained on bytes of text."""
