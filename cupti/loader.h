// SPDX-License-Identifier: Apache-2.0
// Finds the process's libcupti, or loads one, and its functions. A library that the process maps
// already is taken first: two copies in one process disturb each other.
#pragma once

#include "abi.h"

#include <cstdint>

namespace collwire::cupti {

// The major CUDA version of the driver, which libcupti must not exceed. 0: no driver.
int cuda_driver_major();

// CUDA is initialised. True also where libcuda is not found.
bool is_cuda_ready();

// The path of a mapped libcupti, or null. The string belongs to the loader of the C library. Two
// different copies: `is_ambiguous`.
const char *mapped_libcupti(bool &is_ambiguous);

// Fills in `functions`. False: no libcupti, or one without a function that the guest needs. Never
// loads one if `only_mapped`.
bool load_functions(Functions &functions, uint32_t &api_version, bool only_mapped);

// The C library's dlopen and dlsym of 2.2.5, so that one file works with glibc 2.17.
void *open_library(const char *name, int flags);
void *find_symbol(void *handle, const char *name);

} // namespace collwire::cupti
