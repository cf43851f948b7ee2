// SPDX-License-Identifier: Apache-2.0
// A file that collwire takes for NCCL, by its size and one exported function, and has no layout of.
char padding[3 << 20] = {1};
void ncclAllReduce(void);
void ncclAllReduce(void) {}
