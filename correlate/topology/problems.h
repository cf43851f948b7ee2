// SPDX-License-Identifier: Apache-2.0
// Problems of an input, collected so that one run shows all of them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace collwire::topology {

enum class Severity { Warning, Error };

struct Problem {
    Severity severity = Severity::Error;
    std::string message; // "JSON path or line: what. Fix: ..."
};

class Problems {
public:
    void error(std::string message) {
        errors_++;
        add(Severity::Error, std::move(message));
    }
    void warning(std::string message) {
        warnings_++;
        add(Severity::Warning, std::move(message));
    }

    [[nodiscard]] std::size_t errors() const { return errors_; }
    [[nodiscard]] std::size_t warnings() const { return warnings_; }
    // The first KEPT_MAX of each severity; errors() and warnings() count them all.
    [[nodiscard]] const std::vector<Problem> &kept() const { return kept_; }
    [[nodiscard]] std::string first_error() const;

private:
    static constexpr std::size_t KEPT_MAX = 50;
    void add(Severity severity, std::string message) {
        if ((severity == Severity::Error ? errors_ : warnings_) <= KEPT_MAX)
            kept_.push_back({severity, std::move(message)});
    }

    std::vector<Problem> kept_;
    std::size_t errors_ = 0;
    std::size_t warnings_ = 0;
};

// Quotes foreign text for a message: cut to 64 bytes, control bytes and quotes escaped.
std::string quote(std::string_view text);

} // namespace collwire::topology
