// SPDX-License-Identifier: Apache-2.0
// What the environment asks of the double of CUPTI (README.md), and how it talks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace collwire::cupti_double {

// Which kernels from before a client came get a record without times.
enum class EarlierKernels {
    BeforeLoaded,  // those launched before the process's first call of CUPTI
    BeforeEnabled, // also those launched while the kind was off
    None
};

// Who gets a buffer when the callbacks were registered again in the meantime.
enum class BufferOwner { RegisteredNow, RegisteredThen };

struct InjectedFailure {
    std::string function;
    int code = 0;
    std::uint64_t nth = 1; // from 1; of the process
};

struct Settings {
    std::uint32_t api_version = 130'001; // COLLWIRE_CUPTI_API_VERSION
    std::string log_path;                // COLLWIRE_CUPTI_LOG
    std::string owner;                   // COLLWIRE_CUPTI_OWNER: of the subscriber's slot
    EarlierKernels earlier = EarlierKernels::BeforeLoaded; // COLLWIRE_CUPTI_EARLIER
    BufferOwner buffer_owner = BufferOwner::RegisteredNow; // COLLWIRE_CUPTI_BUFFERS_TO
    bool disable_drops = false;                            // COLLWIRE_CUPTI_DISABLE_DROPS
    std::vector<InjectedFailure> failures;                 // COLLWIRE_CUPTI_FAIL
    std::vector<InjectedFailure> delays; // COLLWIRE_CUPTI_DELAY: milliseconds in the code's place
    std::string delayed_until;       // COLLWIRE_CUPTI_DELAY_UNTIL: a file, that ends a delay, too
    std::uint64_t empty_session = 0; // COLLWIRE_CUPTI_EMPTY: number of the enabling, from 1
    std::uint64_t lock_patience_ms = 5000; // COLLWIRE_CUPTI_PATIENCE_MS
};

// `library_version`: what the library is without COLLWIRE_CUPTI_API_VERSION. Fatal for a value that
// means nothing.
Settings read_settings(std::uint32_t library_version);
// function:code:nth, separated by commas
std::vector<InjectedFailure> parse_failures(const std::string &text);

void note(const std::string &text);
// `text` ends with what to do.
[[noreturn]] void fatal(const std::string &text);

std::uint64_t monotonic_ns();
std::uint64_t realtime_ns();

} // namespace collwire::cupti_double
