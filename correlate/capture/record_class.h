// SPDX-License-Identifier: Apache-2.0
// What a record outside of a time window is good for inside of it.
#pragma once

#include <cstdint>

namespace collwire::capture {

enum class RecordClass : std::uint8_t {
    State,   // it holds until another record replaces it: a later window needs it
    Counter, // cumulative: a window needs the last one before it
    Event,   // of one moment: a window needs those inside of it
};

// A kind that this program does not know is State: it is never left out.
[[nodiscard]] RecordClass record_class(std::uint32_t kind);

// Whether a state record describes things that may be older than it: the recorder reads or finds
// them some time after they came to be. Other state records are changes of their own moment.
[[nodiscard]] bool describes_earlier(std::uint32_t kind);

} // namespace collwire::capture
