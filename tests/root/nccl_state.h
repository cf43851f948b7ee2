// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "collwire/node_records.h"
#include "userspace/source/source.h"

namespace collwire::test {

// Why the source does not record the library `file` of this test; empty: it does. Other jobs of the
// machine may have libraries that it cannot use.
inline std::string problem_with(const source::Source &source, std::string_view file) {
    const source::SourceState state = source.states().at(0);
    const bool is_of_others =
        state.state == CW_SOURCE_DEGRADED && state.reason.find(file) == std::string::npos;
    return state.state == CW_SOURCE_ON || is_of_others ? "" : state.reason;
}

// The same, once all probes are placed: a slow machine needs several samples for that.
template <typename Sample>
std::string problem_once_placed(const source::Source &source, std::string_view file,
                                Sample sample) {
    std::string problem = problem_with(source, file);
    for (int i = 0; i < 1000 && problem.find("gets its probes later") != std::string::npos; ++i) {
        sample();
        problem = problem_with(source, file);
    }
    return problem;
}

} // namespace collwire::test
