// SPDX-License-Identifier: Apache-2.0
// A library; or a plan that was kept, and behind a NUL the library that it would be of, or lend to.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "userspace/nccl/layout/borrowed_layout.h"
#include "userspace/nccl/layout/check_layout.h"
#include "userspace/nccl/layout/exported_layout.h"
#include "userspace/nccl/layout/file_layout.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    using collwire::nccl::LibraryFile;
    const std::string_view input{reinterpret_cast<const char *>(data), size};
    const std::string_view text = input.substr(0, input.find('\0'));
    const auto plan = collwire::nccl::parse_plan(text);
    if (input.starts_with('{')) {
        data += std::min(text.size() + 1, size);
        size -= std::min(text.size() + 1, size);
    }
    // As aligned as a mapping is.
    std::vector<std::uint64_t> words((size + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t));
    std::copy(data, data + size, reinterpret_cast<std::uint8_t *>(words.data()));
    const auto bytes = std::as_bytes(std::span{words}).first(size);
    const auto library = LibraryFile::parse(bytes);
    const auto debug = LibraryFile::parse_debug(bytes);
    if (!library)
        return 0;
    if (auto made = collwire::nccl::make_plan(*library))
        collwire::nccl::add_exported_functions(*library, *made);
    if (debug)
        (void)collwire::nccl::make_plan(*library, &*debug);
    if (plan) {
        (void)collwire::nccl::check_plan(*plan, *library);
        for (const auto lender :
             {collwire::nccl::Lender::SameVersion, collwire::nccl::Lender::PatchRelease})
            (void)collwire::nccl::borrow_plan(*library, *plan, lender);
    }
    return 0;
}
