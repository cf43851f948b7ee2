// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/topology_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    collwire::topology::fuzz_import("lldpctl", data, size);
    return 0;
}
