// SPDX-License-Identifier: Apache-2.0
// Sums by host pair and by process for bytes other than those of queue pairs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "correlate/model/model.h"

namespace collwire::model {

class MoreSums {
public:
    explicit MoreSums(Model &model);
    ~MoreSums(); // sorts the pairs
    MoreSums(const MoreSums &) = delete;
    MoreSums &operator=(const MoreSums &) = delete;

    // Creates the entry if needed; valid until the next call.
    [[nodiscard]] NodePair &pair_of(Index host, const std::string &destination, bool is_captured);
    [[nodiscard]] ProcessSums &process_of(Index host, std::uint32_t pid);

private:
    Model &model_;
    std::map<std::pair<std::string, std::string>, Index> pairs_;
    std::map<std::pair<Index, std::uint32_t>, Index> processes_; // the youngest with that number
    std::map<Index, Index> sums_;                                // by process
};

} // namespace collwire::model
