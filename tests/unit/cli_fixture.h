// SPDX-License-Identifier: Apache-2.0
// Runs the collwire binary in a directory of its own.
#pragma once

#include <gtest/gtest.h>

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/model_of.h"
#include "tests/support/scenarios.h"

namespace collwire::test {

struct Outcome {
    int status = -1;
    std::string out;
    std::string err;
};

inline std::string content(const std::filesystem::path &path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

class Cli : public testing::Test {
protected:
    void SetUp() override {
        std::string pattern =
            (std::filesystem::temp_directory_path() / "collwire-cli-XXXXXX").string();
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        directory_ = pattern;
        std::ofstream(path("topology.json")) << LEAF_SPINE;
    }
    void TearDown() override { std::filesystem::remove_all(directory_); }

    [[nodiscard]] std::string path(const std::string &name) const {
        return (directory_ / name).string();
    }
    void write(const std::string &name, const std::vector<std::byte> &bytes) const {
        std::ofstream(path(name), std::ios::binary)
            .write(reinterpret_cast<const char *>(bytes.data()),
                   static_cast<std::streamsize>(bytes.size()));
    }
    void write(const std::string &name, const std::string &text) const {
        std::ofstream(path(name), std::ios::binary) << text;
    }
    void write_all(const Captures &captures) const {
        for (std::size_t i = 0; i < captures.size(); ++i)
            write(std::to_string(i) + ".cwc", captures[i]);
    }
    // `before`: words of the shell that stand before the command.
    [[nodiscard]] Outcome collwire(const std::string &arguments,
                                   const std::string &before = "") const {
        const std::string command =
            before + " '" + COLLWIRE_BINARY + "' " + arguments + " 2>'" + path("stderr") + "'";
        Outcome outcome;
        FILE *pipe = popen(command.c_str(), "r");
        std::array<char, 4096> buffer{};
        for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) != 0;)
            outcome.out.append(buffer.data(), n);
        const int status = pclose(pipe);
        outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        outcome.err = content(path("stderr"));
        return outcome;
    }

    std::filesystem::path directory_;
};

} // namespace collwire::test
