// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "userspace/elf/probe_point.h"
#include "userspace/process/process_view.h"
#include "userspace/verbs/ops_scan.h"
#include "userspace/verbs/wr_scan.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    std::vector<std::byte> bytes(size);
    if (size != 0)
        std::memcpy(bytes.data(), data, size);
    (void)collwire::process::parse_maps({reinterpret_cast<const char *>(data), size});
    const auto image = collwire::elf::ElfImage::parse(std::move(bytes));
    if (!image)
        return 0;
    if (const auto found = collwire::verbs::find_post_send(image.value()); found)
        for (const std::uint64_t address : found.value().addresses)
            (void)collwire::elf::choose_probe_point(image.value().code(), address,
                                                    collwire::elf::ARGUMENT_1 |
                                                        collwire::elf::ARGUMENT_2);
    (void)collwire::verbs::find_wr_functions(image.value());
    for (const auto &segment : image.value().segments())
        if (segment.executable)
            (void)collwire::elf::choose_probe_point(image.value().code(), segment.address, ~0u);
    return 0;
}
