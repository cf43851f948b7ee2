// SPDX-License-Identifier: Apache-2.0
// What CUDA's driver does at the first CUDA call of a process: it loads CUDA_INJECTION64_PATH.
#pragma once

namespace collwire::cuda_double {

// Returns once the injected library is loaded and its InitializeInjection has returned; at once
// within that.
void initialise_cuda();
bool is_cuda_initialised(); // also while the injected library starts

} // namespace collwire::cuda_double
