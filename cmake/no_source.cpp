// SPDX-License-Identifier: Apache-2.0
// For targets that compile headers alone.
