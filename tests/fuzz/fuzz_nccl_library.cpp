// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "userspace/nccl/file_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    (void)collwire::nccl::parse_plan({reinterpret_cast<const char *>(data), size});
    // As aligned as a mapping is.
    std::vector<std::uint64_t> words((size + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t));
    std::copy(data, data + size, reinterpret_cast<std::uint8_t *>(words.data()));
    const auto bytes = std::as_bytes(std::span{words}).first(size);
    if (const auto library = collwire::nccl::LibraryFile::parse(bytes))
        (void)collwire::nccl::make_plan(*library);
    return 0;
}
