// SPDX-License-Identifier: Apache-2.0
#include "correlate/nccl/cells.h"

#include <algorithm>

#include "correlate/nccl/protocol_bytes.h"

namespace collwire::nccl {

std::vector<std::vector<ChannelShare>> deal_cells(const CellRules &rules,
                                                  std::span<const CellTask> tasks) {
    const std::uint64_t channels = rules.channels;
    std::uint64_t channel = 0, traffic = 0;
    std::vector<std::vector<ChannelShare>> all;
    for (const CellTask &task : tasks) {
        const std::uint64_t cells = divide_up(task.bytes, task.cell_bytes);
        const std::uint64_t cell_traffic = task.cell_bytes * task.traffic_per_byte;
        std::uint64_t per_channel = std::min(cells, divide_up(rules.channel_traffic, cell_traffic));
        if (per_channel == 0)
            return {};
        const std::uint64_t room =
            rules.channel_traffic > traffic ? rules.channel_traffic - traffic : 0;
        std::uint64_t low = cells;
        if (channel + 1 != channels)
            low = std::min(cells, rules.has_whole_cells ? divide_up(room, cell_traffic)
                                                        : room / cell_traffic);
        std::uint64_t middle = (cells - low) / per_channel;
        std::uint64_t high = (cells - low) % per_channel;
        if (channels < channel + (low != 0 ? 1 : 0) + middle + (high != 0 ? 1 : 0)) {
            if (channels < channel + 2)
                return {};
            middle = channels - channel - 2;
            per_channel = (cells - low) / (middle + 1);
            high = per_channel + (cells - low) % (middle + 1);
        }
        if (high == 0 && middle != 0) {
            high = per_channel;
            --middle;
        }
        if (low == 0) {
            ++channel;
            low = middle == 0 ? high : per_channel;
            if (middle == 0)
                high = 0;
            else
                --middle;
        }
        const std::uint64_t after = channel + 1 + middle;
        if (low == 0 || after + (high != 0 ? 1 : 0) > channels)
            return {};
        const std::uint64_t missing = cells * task.cell_bytes - task.bytes; // of the last cell
        std::vector<ChannelShare> &shares = all.emplace_back();
        const auto add = [&](std::uint64_t on, std::uint64_t bytes) {
            shares.push_back({static_cast<std::uint32_t>(on), bytes});
        };
        add(channel, low * task.cell_bytes - (high == 0 ? missing : 0));
        for (std::uint64_t i = 0; i < middle; ++i)
            add(channel + 1 + i, per_channel * task.cell_bytes);
        if (high != 0)
            add(after, high * task.cell_bytes - missing);

        const auto traffic_of = [&](std::uint64_t n) {
            return (n * task.cell_bytes - (rules.has_whole_cells ? 0 : missing)) *
                   task.traffic_per_byte;
        };
        if (high != 0) {
            channel = after;
            traffic = traffic_of(high);
        } else if (middle != 0) {
            channel = after;
            traffic = 0;
        } else {
            traffic += traffic_of(low);
        }
        if (traffic >= rules.channel_traffic && channel + 1 != channels) {
            ++channel;
            traffic = 0;
        }
    }
    return all;
}

} // namespace collwire::nccl
