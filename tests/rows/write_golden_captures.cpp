// SPDX-License-Identifier: Apache-2.0
// write_golden_captures DIRECTORY: the captures of the golden reports, a folder for each.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "tests/support/leaf_spine.h"
#include "tests/support/scenarios.h"

using namespace collwire::test;

int main(int argc, char **argv) {
    if (argc != 2) {
        std::cerr << "usage: write_golden_captures DIRECTORY\n";
        return 2;
    }
    const std::pair<const char *, Captures (*)()> scenarios[] = {{"good", good_cluster},
                                                                 {"troubled", troubled_cluster},
                                                                 {"posted", posted_only},
                                                                 {"nccl", nccl_job},
                                                                 {"sockets", socket_job}};
    for (const auto &[name, make] : scenarios) {
        const std::filesystem::path folder = std::filesystem::path(argv[1]) / name;
        std::filesystem::create_directories(folder);
        std::ofstream(folder / "topology.json") << LEAF_SPINE;
        std::size_t number = 0;
        for (const std::vector<std::byte> &capture : make()) {
            std::ofstream file(folder / (std::to_string(number++) + ".cwc"), std::ios::binary);
            file.write(reinterpret_cast<const char *>(capture.data()),
                       static_cast<std::streamsize>(capture.size()));
            if (!file.flush())
                return 1;
        }
    }
    return 0;
}
