# SPDX-License-Identifier: Apache-2.0
"""Modules of tools/lab, the virtual RDMA cluster."""
