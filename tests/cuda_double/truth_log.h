// SPDX-License-Identifier: Apache-2.0
// The log of the double: what a kernel really put into the FIFOs and took out of them.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/cuda_double/device_state.h"
#include "tests/cuda_double/function.h"
#include "tests/cuda_double/host_communicator.h"

namespace collwire::cuda_double {

// A work item: one collective of a kernel, or one pair of a send and a receive. All channels that
// share it say the same number.
struct WorkDescription {
    Function function;
    std::uint64_t send_bytes = 0;    // of p2p
    std::uint64_t receive_bytes = 0; // of p2p
    std::uint64_t bytes = 0;         // of a collective: NCCL's count times the size of the type
};

class KernelTruth {
public:
    // Before add(): connections are looked up in the communicator while its kernel runs.
    void set_host(const std::optional<HostCommunicator> &host) { host_ = host; }
    // `key`: what distinguishes work items of this kernel.
    int work_item(const std::string &key, const WorkDescription &description);
    // Of p2p, where channels only know their own parts.
    void add_transfer_bytes(int work, std::uint64_t sent, std::uint64_t received);
    // One post of the FIFO: over a network, one message.
    void add(int work, int channel, int peer, Direction direction, int connection,
             Protocol protocol, std::uint64_t step, std::uint64_t steps, std::uint64_t bytes);

    struct Kernel {
        std::string name;
        Communicator communicator;
        std::uint64_t channel_mask = 0;
        std::uint64_t launched_ns = 0;
        std::uint64_t begun_ns = 0;
        bool is_aborted = false;
    };
    // Appends a line to COLLWIRE_CUDA_LOG.
    void write(const Kernel &kernel) const;

private:
    struct Key {
        int work, channel, peer;
        Direction direction;
        int connection;
        Protocol protocol;
        auto operator<=>(const Key &) const = default;
    };
    struct Posted {
        std::optional<std::string> transport;
        std::uint64_t first_step = 0, steps = 0, posts = 0, bytes = 0;
    };

    // Between a rank's memory and the NVSwitch.
    struct Crossed {
        std::uint64_t to_switch = 0, from_switch = 0; // bytes
    };
    // JSON: connections to ranks, and those of NVLS.
    [[nodiscard]] std::string connections(int ranks) const;
    [[nodiscard]] std::string nvls(int ranks) const;
    [[nodiscard]] std::string switched(int ranks) const;

    std::optional<HostCommunicator> host_;
    std::map<std::string, int> numbers_;
    std::vector<WorkDescription> works_;
    std::map<Key, Posted> posted_;
};

} // namespace collwire::cuda_double
