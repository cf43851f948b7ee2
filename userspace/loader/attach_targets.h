// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace collwire::loader {

// From now on fentry and fexit programs of every BPF object find the function that they sit on in
// KernelBtf::shared(), which a Skeleton holds while it loads. libbpf itself reads the BTF of all
// modules for each object, and walks the kernel's 100,000 types for each program: seconds on a slow
// machine. A function that is not there fails the load of its program.
void use_shared_attach_targets();

} // namespace collwire::loader
