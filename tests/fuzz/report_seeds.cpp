// SPDX-License-Identifier: Apache-2.0
// Writes the records of the test scenarios to DIRECTORY, for fuzz_report to start from.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "collwire/record.h"
#include "correlate/capture/reader.h"
#include "tests/support/gpu_node.h"
#include "tests/support/scenarios.h"

int main(int argc, char **argv) {
    using namespace collwire;
    if (argc != 2) {
        std::cerr << "usage: report_seeds DIRECTORY\n";
        return 2;
    }
    const std::filesystem::path directory = argv[1];
    std::error_code failure;
    std::filesystem::create_directories(directory, failure);
    const std::pair<const char *, test::Captures> scenarios[] = {
        {"good", test::good_cluster()},
        {"troubled", test::troubled_cluster()},
        {"posted", test::posted_only()},
        {"nccl", test::nccl_job()},
        {"far_nic", test::far_nic_job()}};
    for (const auto &[name, captures] : scenarios) {
        std::ofstream file(directory / name, std::ios::binary);
        for (const auto &bytes : captures) {
            const auto summary = capture::read_capture(
                bytes, [&](const cw_header &, std::span<const std::byte> record) {
                    file.write(reinterpret_cast<const char *>(record.data()),
                               static_cast<std::streamsize>(record.size()));
                });
            if (!summary || !file)
                return 1;
        }
    }
    return 0;
}
