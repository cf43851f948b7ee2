// SPDX-License-Identifier: Apache-2.0
// collwire-pages DIRECTORY: writes man1/*.1 and bash-completion/collwire there. Not installed.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "tools/pages/pages.h"

namespace {

bool write(const std::filesystem::path &path, const std::string &text) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream file(path, std::ios::binary);
    file << text;
    file.close();
    if (!file)
        std::cerr << "collwire-pages: cannot write " << path << '\n';
    return static_cast<bool>(file);
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 2) {
        std::cerr << "usage: collwire-pages DIRECTORY\n";
        return 2;
    }
    const std::filesystem::path directory = argv[1];
    const collwire::cli::CommandEntry program = collwire::cli::command_tree();
    bool done =
        write(directory / "bash-completion/collwire", collwire::pages::bash_completion(program));
    for (const auto &page : collwire::pages::manual_pages(program, COLLWIRE_VERSION))
        done = write(directory / "man1" / page.file, page.text) && done;
    return done ? 0 : 1;
}
