# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""What commands print with --format=json, as dataclasses with schemas."""
