// SPDX-License-Identifier: Apache-2.0
// A temporary tree that stands for the root of a machine.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace collwire::test {

class Tree {
public:
    Tree() {
        std::string pattern = std::filesystem::temp_directory_path() / "collwire-tree-XXXXXX";
        if (mkdtemp(pattern.data()) == nullptr)
            throw std::runtime_error("mkdtemp " + pattern);
        root_ = pattern;
    }
    Tree(const Tree &) = delete;
    Tree &operator=(const Tree &) = delete;
    ~Tree() {
        std::error_code ignored;
        std::filesystem::remove_all(root_, ignored);
    }

    [[nodiscard]] const std::string &root() const { return root_; }

    void file(const std::string &path, std::string_view text) const {
        const std::filesystem::path full = root_ + path;
        std::filesystem::create_directories(full.parent_path());
        std::ofstream(full, std::ios::binary) << text;
    }
    void link(const std::string &path, const std::string &target) const {
        const std::filesystem::path full = root_ + path;
        std::filesystem::create_directories(full.parent_path());
        std::filesystem::create_symlink(target, full);
    }
    void directory(const std::string &path) const {
        std::filesystem::create_directories(root_ + path);
    }
    void remove(const std::string &path) const { std::filesystem::remove_all(root_ + path); }

    // A loaded module of the kernel's own.
    void module(const std::string &name, std::string_view taint = "") const {
        file("/sys/module/" + name + "/initstate", "live\n");
        file("/sys/module/" + name + "/taint", std::string(taint) + "\n");
    }

    void netdev(const std::string &name, int ifindex, std::string_view mtu = "1500") const {
        const std::string device = "/sys/class/net/" + name;
        file(device + "/ifindex", std::to_string(ifindex) + "\n");
        file(device + "/type", "1\n");
        file(device + "/mtu", std::string(mtu) + "\n");
        file(device + "/dev_port", "0\n");
        file(device + "/carrier", "1\n");
        file(device + "/flags", "0x1003\n");
        file(device + "/address", "02:00:00:00:00:0" + std::to_string(ifindex % 10) + "\n");
        file(device + "/statistics/rx_bytes", "1000\n");
        file(device + "/statistics/tx_bytes", "2000\n");
        file(device + "/statistics/rx_packets", "10\n");
        file(device + "/carrier_changes", "2\n");
        file(device + "/carrier_up_count", "1\n");
        file(device + "/carrier_down_count", "1\n");
    }

    // `path`: below /sys/devices; its last part is the address.
    void pci_function(const std::string &path, std::string_view class_code,
                      std::string_view numa_node = "0", std::string_view vendor = "0x10de") const {
        const std::string function = "/sys/devices/" + path;
        file(function + "/class", std::string(class_code) + "\n");
        file(function + "/vendor", std::string(vendor) + "\n");
        file(function + "/numa_node", std::string(numa_node) + "\n");
        link("/sys/bus/pci/devices/" + path.substr(path.rfind('/') + 1),
             "../../../devices/" + path);
    }

    // A device whose function is below PCI; returns nothing, add ports with port().
    void pci_device(const std::string &name, const std::string &address,
                    const std::string &driver) const {
        const std::string function = "/sys/devices/pci0000:00/" + address;
        directory(function);
        file(function + "/numa_node", "1\n");
        link(function + "/driver", "../../../bus/pci/drivers/" + driver);
        const std::string device = "/sys/class/infiniband/" + name;
        link(device + "/device", "../../../devices/pci0000:00/" + address);
        file(device + "/node_guid", "506b:4b03:00cb:7b2a\n");
        file(device + "/fw_ver", "20.35.1012\n");
        file(device + "/board_id", "MT_0000000223\n");
    }
    void port(const std::string &device, int number, std::string_view link_layer,
              std::string_view rate) const {
        const std::string path =
            "/sys/class/infiniband/" + device + "/ports/" + std::to_string(number);
        file(path + "/state", "4: ACTIVE\n");
        file(path + "/phys_state", "5: LinkUp\n");
        file(path + "/link_layer", std::string(link_layer) + "\n");
        file(path + "/rate", std::string(rate) + "\n");
        file(path + "/lid", "0x0\n");
        file(path + "/sm_lid", "0x0\n");
        file(path + "/gids/0", "fe80:0000:0000:0000:506b:4bff:fecb:7b2a\n");
        file(path + "/gid_attrs/types/0", "IB/RoCE v1\n");
    }

private:
    std::string root_;
};

} // namespace collwire::test
