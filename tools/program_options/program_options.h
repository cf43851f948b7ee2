// SPDX-License-Identifier: Apache-2.0
// Command-line options of benchmarks, generators and test programs. They include this instead of
// CLI11, whose templates cost 15 to 20 s per source file.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace CLI {
class App;
class Option;
} // namespace CLI

namespace collwire {

class ProgramOption {
public:
    ProgramOption required();
    ProgramOption range(int low, int high);
    ProgramOption delimiter(char separator); // of the elements of a list
    ProgramOption show_default();            // in the help
    ProgramOption hide();                    // from the help
    [[nodiscard]] bool is_given() const;     // after ProgramOptions::parse()

private:
    friend class ProgramOptions;
    explicit ProgramOption(CLI::Option *option) : option_(option) {}
    CLI::Option *option_;
};

class ProgramOptions {
public:
    explicit ProgramOptions(const std::string &description);
    ProgramOptions(const ProgramOptions &) = delete;
    ProgramOptions &operator=(const ProgramOptions &) = delete;
    ~ProgramOptions();

    // `names` as "-o,--out", or "file" for a positional one. `value` keeps its default where the
    // option is not given, and must outlive parse(). A bool is a flag. Types: bool, int, the
    // unsigned integers, double, std::string, and vectors of int and std::string.
    template <typename Value>
    ProgramOption add(const std::string &names, Value &value, const std::string &help = {});

    // Nothing: go on. Otherwise the status to exit with: 0 after --help, 2 after an error, which
    // was printed.
    [[nodiscard]] std::optional<int> parse(int argc, const char *const *argv);

private:
    std::unique_ptr<CLI::App> app_;
};

} // namespace collwire
