// SPDX-License-Identifier: Apache-2.0
// The text of ibnetdiscover (infiniband-diags). A block a node, parted by blank lines:
//   sysimgguid=0x..
//   Switch 65 "S-<guid>"    # "<description>" enhanced port 0 lid 73 lmc 0
//   [1]  "H-<guid>"[1](<port guid>)    # "<description>" lid 647 4xNDR
//   [35] "S-<guid>"[32]                # "<description>" lid 236 4xNDR
//   Ca 1 "H-<guid>"         # "<description>"
//   [1](<port guid>)  "S-<guid>"[65]   # lid 193 lmc 0 "<description of the switch>" lid 73 4xNDR
#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "correlate/topology/address.h"
#include "correlate/topology/import/importer.h"

namespace collwire::topology {

namespace {

constexpr std::string_view BYTE_ORDER_MARK = "\xef\xbb\xbf";

// Reads one line from left to right; every step returns whether it matched.
class IbnetdiscoverScanner {
public:
    explicit IbnetdiscoverScanner(std::string_view line) : rest_(line) {}

    void skip_blanks() {
        rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t"), rest_.size()));
    }
    [[nodiscard]] std::string_view rest() const { return rest_; }

    bool literal(std::string_view text) {
        if (!rest_.starts_with(text))
            return false;
        rest_.remove_prefix(text.size());
        return true;
    }
    std::optional<std::string_view> enclosed(char open, char close) {
        if (rest_.empty() || rest_[0] != open)
            return std::nullopt;
        const auto end = rest_.find(close, 1);
        if (end == std::string_view::npos)
            return std::nullopt;
        const auto inside = rest_.substr(1, end - 1);
        rest_.remove_prefix(end + 1);
        return inside;
    }
    std::optional<std::uint32_t> number() {
        std::uint32_t value = 0;
        const auto [stop, failure] =
            std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
        if (failure != std::errc{})
            return std::nullopt;
        rest_.remove_prefix(static_cast<std::size_t>(stop - rest_.data()));
        return value;
    }
    // [7] or [7][ext 12]
    std::optional<std::uint32_t> port_number() {
        if (!literal("["))
            return std::nullopt;
        const auto value = number();
        if (!value || !literal("]"))
            return std::nullopt;
        if (rest_.starts_with("[ext"))
            (void)enclosed('[', ']');
        return value;
    }
    std::optional<std::uint64_t> guid() {
        const auto text = enclosed('(', ')');
        // Printed without leading zeros, and without 0x.
        return text ? parse_guid("0x" + std::string(*text)) : std::nullopt;
    }

private:
    std::string_view rest_;
};

// The number after `word` in the text, such as "lid 73".
std::optional<std::uint32_t> number_after(std::string_view text, std::string_view word) {
    const auto at = text.find(word);
    if (at == std::string_view::npos)
        return std::nullopt;
    return IbnetdiscoverScanner(text.substr(at + word.size())).number();
}

// From the first quote to the last: a description may hold quotes itself.
std::string_view description_in(std::string_view comment) {
    const auto first = comment.find('"');
    const auto last = comment.rfind('"');
    if (first == std::string_view::npos || last == first)
        return {};
    return comment.substr(first + 1, last - first - 1);
}

struct AdapterPort {
    std::uint64_t guid = 0;
    std::string node; // "H-<guid>"
    std::uint32_t number = 0;
    std::string switch_key;
    std::uint32_t switch_port = 0;
    std::optional<std::uint32_t> lid;
    std::optional<std::uint32_t> lmc;
};

struct Adapter {
    std::string description;
    std::string system_guid;
};

struct HostName {
    std::string host;
    std::string device; // empty: not given, such as for "HCA-3"
    std::string label;  // the second word as it is
};

// Whether a word is a device name of Linux: mlx5_5, hfi1_0, ibp24s0.
bool is_device_name(std::string_view word) {
    const bool characters = std::all_of(word.begin(), word.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    });
    return characters && word.size() >= 3 && word[0] >= 'a' && word[0] <= 'z' &&
           word.back() >= '0' && word.back() <= '9';
}

bool is_adapter_label(std::string_view word) {
    if (!word.starts_with("HCA-") || word.size() == 4)
        return false;
    return std::all_of(word.begin() + 4, word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// A machine without a name of its own has its installer image's name.
bool is_installer_name(std::string_view host) {
    constexpr std::array<std::string_view, 14> names{
        "localhost", "ubuntu", "debian", "centos", "rocky",  "almalinux", "fedora",
        "redhat",    "linux",  "node",   "host",   "(none)", "unknown",   "dgx"};
    return std::find(names.begin(), names.end(), host.substr(0, host.find('.'))) != names.end();
}

// "host mlx5_5" or "host HCA-3"; anything else (product names, free text) names no host.
std::optional<HostName> host_name_of(std::string_view description) {
    const auto blank = description.find(' ');
    if (blank == std::string_view::npos || blank == 0)
        return std::nullopt;
    const std::string_view host = description.substr(0, blank);
    const std::string_view word = description.substr(blank + 1);
    if (is_installer_name(host) || (!is_device_name(word) && !is_adapter_label(word)))
        return std::nullopt;
    return HostName{clean_name(host), is_device_name(word) ? std::string(word) : std::string(),
                    std::string(word)};
}

class IbnetdiscoverReader {
public:
    IbnetdiscoverReader(const ImportInput &input, Fabric &fabric, Problems &problems)
        : input_(input), fabric_(fabric), problems_(problems) {}

    Result<void> read() {
        std::string_view text = input_.text;
        if (text.starts_with(BYTE_ORDER_MARK))
            text.remove_prefix(BYTE_ORDER_MARK.size());
        const bool ends_in_a_line = text.empty() || text.back() == '\n';
        while (!text.empty()) {
            const auto end = std::min(text.find('\n'), text.size());
            std::string_view line = text.substr(0, end);
            text.remove_prefix(std::min(end + 1, text.size()));
            while (!line.empty() &&
                   (line.back() == '\r' || line.back() == ' ' || line.back() == '\t'))
                line.remove_suffix(1);
            line_number_++;
            read_line(line);
        }
        if (described_switches_.empty() && adapters_.empty())
            return error(ErrorKind::BadInput,
                         fmt::format("holds no switch and no adapter up to its last line ({}), so "
                                     "it is not ibnetdiscover's output. Fix: give the text that "
                                     "ibnetdiscover prints",
                                     line_number_));
        if (!ends_in_a_line)
            problems_.warning(fmt::format(
                "{}: line {} does not end, so the file may be cut off. Fix: write it again",
                input_.name, line_number_));
        finish();
        return {};
    }

private:
    enum class Block { None, Switch, Adapter, Other };

    void not_understood() {
        problems_.warning(
            fmt::format("{}: line {} is not understood and ignored", input_.name, line_number_));
    }

    void read_line(std::string_view line) {
        constexpr std::array<std::string_view, 6> skipped{
            "vendid=", "devid=", "switchguid=", "caguid=", "rtguid=", "Chassis"};
        constexpr std::string_view GENERATED = "# Topology file: generated on ";
        constexpr std::string_view SYSTEM_GUID = "sysimgguid=";
        if (line.starts_with(GENERATED) && fabric_.generated.empty())
            fabric_.generated = clean_name(line.substr(GENERATED.size()));
        if (line.empty()) {
            block_ = Block::None;
            system_guid_.clear();
        } else if (line[0] == '[') {
            read_port(line);
        } else if (line.starts_with(SYSTEM_GUID)) {
            system_guid_ = line.substr(SYSTEM_GUID.size());
        } else if (line.starts_with("Switch") || line.starts_with("Ca") || line.starts_with("Rt")) {
            read_node(line);
        } else if (line[0] != '#' &&
                   std::none_of(skipped.begin(), skipped.end(), [&](std::string_view prefix) {
                       return line.starts_with(prefix);
                   })) {
            not_understood();
        }
    }

    void read_node(std::string_view line) {
        IbnetdiscoverScanner scanner(line);
        Block block = Block::Other;
        if (scanner.literal("Switch"))
            block = Block::Switch;
        else if (scanner.literal("Ca"))
            block = Block::Adapter;
        else
            (void)scanner.literal("Rt");
        block_ = Block::None;
        scanner.skip_blanks();
        if (!scanner.number())
            return not_understood();
        scanner.skip_blanks();
        const auto node = scanner.enclosed('"', '"');
        if (!node || node->empty())
            return not_understood();
        block_ = block;
        node_ = *node;
        const std::string_view description = description_in(scanner.rest());
        if (block == Block::Switch) {
            described_switches_.insert(node_);
            switch_systems_.insert(system_guid_);
            (void)add_switch(node_, description);
        } else if (block == Block::Adapter) {
            adapters_[node_] = {std::string(description), system_guid_};
        }
    }

    // By the sysname of a managed switch ("MF0;name:model/U1"), its whole description, that with
    // the GUID.
    std::uint32_t add_switch(const std::string &node, std::string_view description) {
        std::string_view name = description;
        if (name.starts_with("MF0;")) {
            name.remove_prefix(4);
            name = name.substr(0, name.find(':'));
        }
        const std::string guid =
            node.starts_with("S-") ? "0x" + clean_name(node.substr(2)) : clean_name(node);
        const std::string whole = clean_name(description);
        return fabric_.add_switch(node, {clean_name(name), whole,
                                         whole.empty() ? guid : fmt::format("{} ({})", whole, guid),
                                         guid});
    }

    void read_port(std::string_view line) {
        if (block_ == Block::None)
            return not_understood();
        IbnetdiscoverScanner scanner(line);
        const auto own_port = scanner.port_number();
        const auto own_guid = scanner.guid();
        scanner.skip_blanks();
        const auto peer = scanner.enclosed('"', '"');
        const auto peer_port = scanner.port_number();
        const auto peer_guid = scanner.guid();
        if (!own_port || !peer || peer->size() < 3 || !peer_port)
            return not_understood();
        const std::string_view comment = scanner.rest();
        const bool peer_is_switch = peer->starts_with("S-");
        if (block_ == Block::Switch && peer_is_switch) {
            const auto own = add_switch(node_, {});
            named_switches_.insert(std::string(*peer));
            fabric_.add_link(own, *own_port,
                             add_switch(std::string(*peer), description_in(comment)), *peer_port);
        } else if (block_ == Block::Switch && peer->starts_with("H-")) {
            AdapterPort port{peer_guid.value_or(0),
                             std::string(*peer),
                             *peer_port,
                             node_,
                             *own_port,
                             number_after(comment.substr(comment.rfind('"') + 1), "lid "),
                             {}};
            adapters_.try_emplace(port.node, Adapter{std::string(description_in(comment)), {}});
            add_adapter_port(std::move(port));
        } else if (block_ == Block::Adapter && peer_is_switch) {
            const std::string_view own_comment = comment.substr(0, comment.find('"'));
            named_switches_.insert(std::string(*peer));
            (void)add_switch(std::string(*peer), description_in(comment));
            add_adapter_port({own_guid.value_or(0), node_, *own_port, std::string(*peer),
                              *peer_port, number_after(own_comment, "lid "),
                              number_after(own_comment, "lmc ")});
        } else {
            without_switch_++; // an adapter cabled to an adapter, a router
        }
    }

    // Both the switch and the adapter list the cable; each fills in what the other lacks.
    void add_adapter_port(AdapterPort port) {
        if (port.guid == 0) {
            without_guid_++;
            return;
        }
        const auto [known, added] = port_by_guid_.emplace(port.guid, ports_.size());
        if (added) {
            ports_.push_back(std::move(port));
            return;
        }
        AdapterPort &earlier = ports_[known->second];
        if (earlier.switch_key != port.switch_key || earlier.switch_port != port.switch_port)
            problems_.warning(fmt::format(
                "{}: line {}: the port with GUID {} is also on another switch port; the first "
                "one counts",
                input_.name, line_number_, format_guid(port.guid)));
        if (!earlier.lid)
            earlier.lid = port.lid;
        if (!earlier.lmc)
            earlier.lmc = port.lmc;
    }

    // SHARP: a switch's own adapter. Its description says so, and it shares the switch's system
    // GUID.
    [[nodiscard]] bool is_aggregation_node(const Adapter &adapter) const {
        return adapter.description.find("Aggregation Node") != std::string::npos ||
               (!adapter.system_guid.empty() && switch_systems_.contains(adapter.system_guid));
    }

    void finish() {
        std::unordered_map<std::string, std::size_t> uses; // of a host's name for one port
        const auto use = [](const HostName &name, const AdapterPort &port) {
            return fmt::format("{} {} {}", name.host, name.label, port.number);
        };
        for (const auto &port : ports_) {
            if (const auto name = host_name_of(adapters_[port.node].description))
                uses[use(*name, port)]++;
        }
        std::size_t unnamed = 0;
        std::size_t repeated = 0;
        for (const auto &port : ports_) {
            fabric_.counts.host_links++;
            const Adapter &adapter = adapters_[port.node];
            if (is_aggregation_node(adapter))
                continue;
            PortEntry entry;
            const auto name = host_name_of(adapter.description);
            if (!name) {
                unnamed++;
            } else if (uses[use(*name, port)] > 1) {
                repeated++;
            } else {
                entry.host = name->host;
                entry.device = name->device;
            }
            entry.port = port.number;
            entry.guid = format_guid(port.guid);
            entry.lid = port.lid;
            if (port.lmc.value_or(0) != 0)
                entry.lmc = port.lmc;
            entry.switch_port = std::to_string(port.switch_port);
            fabric_.add_port(fabric_.add_switch(port.switch_key, {}), std::move(entry));
        }
        for (const auto &[node, adapter] : adapters_)
            fabric_.counts.aggregation_nodes += is_aggregation_node(adapter) ? 1 : 0;
        fabric_.counts.adapters += adapters_.size();
        warn(unnamed, "ports have a description that names no host; their GUID is used instead");
        warn(repeated, "ports share their description with others; their GUID is used instead");
        warn(without_guid_, "lines name an adapter without a port GUID and are ignored");
        warn(without_switch_,
             "cables lead neither to a switch nor to a host of one and are ignored");
        std::size_t missing = 0;
        for (const auto &node : named_switches_)
            missing += described_switches_.contains(node) ? 0 : 1;
        warn(missing, "switches are named by others but not described, so the file may be cut off");
    }

    void warn(std::size_t count, const char *what) {
        if (count > 0)
            problems_.warning(fmt::format("{}: {} {}", input_.name, count, what));
    }

    const ImportInput &input_;
    Fabric &fabric_;
    Problems &problems_;
    std::size_t line_number_ = 0;
    Block block_ = Block::None;
    std::string node_;
    std::string system_guid_;
    std::unordered_set<std::string> described_switches_, named_switches_, switch_systems_;
    std::unordered_map<std::string, Adapter> adapters_;
    std::vector<AdapterPort> ports_;
    std::unordered_map<std::uint64_t, std::size_t> port_by_guid_;
    std::size_t without_guid_ = 0;
    std::size_t without_switch_ = 0;
};

} // namespace

bool matches_ibnetdiscover(std::string_view text) {
    constexpr std::size_t LOOKED_AT = 4096;
    const std::string_view start = text.substr(0, LOOKED_AT);
    const auto has_line = [&](std::string_view beginning) {
        const auto at = start.find(beginning);
        return at != std::string_view::npos &&
               (at == 0 || start[at - 1] == '\n' || at == BYTE_ORDER_MARK.size());
    };
    return has_line("vendid=") || has_line("# Topology file: generated") || has_line("Switch\t") ||
           has_line("Ca\t");
}

Result<void> read_ibnetdiscover(const ImportInput &input, Fabric &fabric, Problems &problems) {
    return IbnetdiscoverReader(input, fabric, problems).read();
}

} // namespace collwire::topology
