// SPDX-License-Identifier: Apache-2.0
#include "correlate/roles/label.h"

#include <fmt/format.h>

namespace collwire::roles {

std::string mark_of(std::string_view guessed_role) {
    return guessed_role.empty() ? std::string() : std::string(guessed_role) + '?';
}

std::string label_of(std::string_view name, std::uint64_t hash, std::string_view guessed_role) {
    if (!name.empty())
        return std::string(name);
    return guessed_role.empty() ? fmt::format("{:#018x}", hash)
                                : fmt::format("{:#018x} ({})", hash, mark_of(guessed_role));
}

std::string title_of(std::string_view name, std::uint64_t hash, std::string_view guessed_role,
                     std::int32_t n_ranks) {
    if (name.empty() && !guessed_role.empty())
        return fmt::format("{:#018x} ({}, {} ranks)", hash, mark_of(guessed_role), n_ranks);
    return fmt::format("{} ({} ranks)", label_of(name, hash, {}), n_ranks);
}

} // namespace collwire::roles
