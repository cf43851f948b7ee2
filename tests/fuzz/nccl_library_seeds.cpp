// SPDX-License-Identifier: Apache-2.0
// nccl_library_seeds WHOLE STRIPPED DIRECTORY: writes a library, and its layout with a stripped
// copy that has another build-id, for fuzz_nccl_library to start from.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <string>

#include "userspace/nccl/layout/file_layout.h"
#include "userspace/nccl/layout/same_code.h"

namespace {

std::string content_of(const char *path) {
    std::ifstream in{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{in}, {}};
}

} // namespace

int main(int argc, char **argv) {
    using namespace collwire::nccl;
    if (argc != 4) {
        std::cerr << "usage: nccl_library_seeds WHOLE STRIPPED DIRECTORY\n";
        return 2;
    }
    const std::string whole = content_of(argv[1]), stripped = content_of(argv[2]);
    const auto library = LibraryFile::parse(std::as_bytes(std::span{whole}));
    const auto copy = LibraryFile::parse(std::as_bytes(std::span{stripped}));
    if (!library || !copy)
        return 1;
    auto layout = make_layout(*library);
    if (!layout)
        return 1;
    add_code_identity(*library, *layout);
    // A seed that is refused at the door would reach nothing.
    if (!CodeComparison{*copy}.layout_from(*layout))
        return 1;
    std::error_code failure;
    std::filesystem::create_directories(argv[3], failure);
    const std::filesystem::path directory = argv[3];
    std::ofstream{directory / "whole", std::ios::binary} << whole;
    std::ofstream{directory / "same_code", std::ios::binary} << render_json(*layout, "") << '\0'
                                                             << stripped;
    return 0;
}
