# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""Files and settings that a plan becomes, for launchers and for NCCL."""
