// SPDX-License-Identifier: Apache-2.0
#include "tools/program_options/program_options.h"

#include <CLI/CLI.hpp>

#include <cstdint>
#include <type_traits>
#include <vector>

namespace collwire {

ProgramOption ProgramOption::required() {
    option_->required();
    return *this;
}

ProgramOption ProgramOption::range(int low, int high) {
    option_->check(CLI::Range(low, high));
    return *this;
}

ProgramOption ProgramOption::delimiter(char separator) {
    option_->delimiter(separator);
    return *this;
}

ProgramOption ProgramOption::show_default() {
    option_->capture_default_str();
    return *this;
}

ProgramOption ProgramOption::hide() {
    option_->group("");
    return *this;
}

bool ProgramOption::is_given() const {
    return option_->count() != 0;
}

ProgramOptions::ProgramOptions(const std::string &description)
    : app_(std::make_unique<CLI::App>(description)) {}

ProgramOptions::~ProgramOptions() = default;

template <typename Value>
ProgramOption ProgramOptions::add(const std::string &names, Value &value, const std::string &help) {
    if constexpr (std::is_same_v<Value, bool>)
        return ProgramOption(app_->add_flag(names, value, help));
    else
        return ProgramOption(app_->add_option(names, value, help));
}

template ProgramOption ProgramOptions::add(const std::string &, bool &, const std::string &);
template ProgramOption ProgramOptions::add(const std::string &, int &, const std::string &);
template ProgramOption ProgramOptions::add(const std::string &, std::uint8_t &,
                                           const std::string &);
template ProgramOption ProgramOptions::add(const std::string &, std::uint16_t &,
                                           const std::string &);
template ProgramOption ProgramOptions::add(const std::string &, std::uint32_t &,
                                           const std::string &);
template ProgramOption ProgramOptions::add(const std::string &, std::uint64_t &,
                                           const std::string &);
template ProgramOption ProgramOptions::add(const std::string &, double &, const std::string &);
template ProgramOption ProgramOptions::add(const std::string &, std::string &, const std::string &);
template ProgramOption ProgramOptions::add(const std::string &, std::vector<int> &,
                                           const std::string &);
template ProgramOption ProgramOptions::add(const std::string &, std::vector<std::string> &,
                                           const std::string &);

std::optional<int> ProgramOptions::parse(int argc, const char *const *argv) {
    try {
        app_->parse(argc, argv);
    } catch (const CLI::ParseError &failure) {
        return app_->exit(failure) == 0 ? 0 : 2;
    }
    return {};
}

} // namespace collwire
