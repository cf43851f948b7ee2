// SPDX-License-Identifier: Apache-2.0
// A test double of libcuda.so.1 that has no function: a process that maps it looks like one that
// uses CUDA. The guest library reads the driver's version from it and finds none.
extern "C" {
int collwire_no_cuda_driver = 1;
}
