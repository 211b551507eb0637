# Copyright 2026 The lagom_xla Authors.
# SPDX-License-Identifier: Apache-2.0
"""The console: results on stdout, and all else that is said on stderr."""
