// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace collwire::loader {

// Finds the target functions of fentry and fexit programs. From the call on, programs of every BPF
// object find them in KernelBtf::shared(), which a Skeleton holds while it loads. libbpf itself
// reads the BTF of all modules for each object, and walks the kernel's 100,000 types for each
// program: seconds on a slow machine. A missing function fails the load of its program.
void use_shared_attach_targets();

} // namespace collwire::loader
