// SPDX-License-Identifier: Apache-2.0
// A statement about a job, with its evidence. Codes are a contract: docs/diagnose.md lists them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace collwire::verdict {

enum class Code : std::uint8_t {
    CallsDiffer,        // ranks of a communicator call different operations in one place
    RankExited,         // a process ended, and other ranks waited for it after that
    NcclError,          // NCCL reported an error there first
    WaitCircle,         // ranks wait for each other, each in another communicator
    RankNotCalled,      // others wait for an operation that the rank has not called
    RankNotLaunched,    // likewise: it has called the operation, and not launched it
    RankWithoutCapture, // all recorded ranks wait, and no capture has the others
    TransferStalled,    // all ranks launched an operation that does not finish
    RanksNotComparable, // an operation is in flight, and ranks cannot be compared
    NetworkInnocent,    // nothing in the captures speaks against the network
};

enum class Severity : std::uint8_t { Note, Failure };

enum class Confidence : std::uint8_t {
    Certain,  // read from records
    Probable, // other causes would look the same in these captures
};

// What it is about. Empty, or -1, or 0: not known, or several.
struct Subject {
    std::uint64_t communicator = 0; // its hash
    std::string communicator_name;
    std::string guessed_role; // of a communicator without a name (docs/roles.md)
    std::int32_t rank = -1;
    std::string host;
    std::uint32_t pid = 0;
};

struct Verdict {
    Code code = Code::TransferStalled;
    Severity severity = Severity::Failure;
    Confidence confidence = Confidence::Certain;
    Subject subject;
    // Realtime of the hosts; 0: not known.
    std::uint64_t from_realtime_ns = 0, until_realtime_ns = 0;
    std::string sentence; // without a full stop
    std::vector<std::string> evidence;
};

[[nodiscard]] std::string_view code_name(Code code); // "rank_not_called", ...
[[nodiscard]] std::string_view severity_name(Severity severity);
[[nodiscard]] std::string_view confidence_name(Confidence confidence);

} // namespace collwire::verdict
