// SPDX-License-Identifier: Apache-2.0
// nccl_layout LIBRARY FOLDER: reads the DWARF of a libnccl and writes FOLDER/<build-id>.layout, the
// facts that the double needs, one a line:
//   struct <structure> <bytes>
//   member <structure.path> <offset bytes> <bytes>
//   bits <structure.path> <first bit> <bits>
//   elements <structure.path> <bytes of one element>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <string>

namespace {

constexpr int kDeepest = 4;

const std::set<std::string> kWanted = {
    "ncclConnInfo",
    "ncclConnFifo",
    "ncclDevWorkP2p",
    "ncclDevWorkColl",
    "ncclDevWorkCollReg",
    "ncclDevWorkBcast",
    "ncclDevWorkBatch",
    "ncclDevChannelPeer",
    "ncclDevChannel",
    "ncclKernelComm",
    "ncclKernelCommAndChannels",
    "ncclDevComm",
    "ncclDevCommAndChannels",
    "ncclDevKernelArgs",
    "ncclDevProfiler",
    "ncclWork",
    "ncclWorkHeader",
    "ncclWorkElem",
    "ncclWorkElemP2p",
    "ncclWorkElemReg",
};

// So large that its own members are enough.
const std::set<std::string> kWantedFlat = {"ncclComm", "ncclChannel", "ncclChannelPeer",
                                           "ncclConnector", "ncclTransport"};

std::optional<Dwarf_Die> type_of(Dwarf_Die *die) {
    Dwarf_Attribute attribute;
    Dwarf_Die type;
    if (dwarf_attr_integrate(die, DW_AT_type, &attribute) == nullptr ||
        dwarf_formref_die(&attribute, &type) == nullptr)
        return std::nullopt;
    Dwarf_Die peeled;
    if (dwarf_peel_type(&type, &peeled) != 0)
        return std::nullopt;
    return peeled;
}

std::optional<std::int64_t> number_of(Dwarf_Die *die, unsigned name) {
    Dwarf_Attribute attribute;
    Dwarf_Word value = 0;
    if (dwarf_attr_integrate(die, name, &attribute) == nullptr ||
        dwarf_formudata(&attribute, &value) != 0)
        return std::nullopt;
    return static_cast<std::int64_t>(value);
}

std::int64_t size_bytes_of(Dwarf_Die *type) {
    Dwarf_Word bytes = 0;
    return dwarf_aggregate_size(type, &bytes) == 0 ? static_cast<std::int64_t>(bytes) : 0;
}

bool has_members(Dwarf_Die *type) {
    const int tag = dwarf_tag(type);
    return tag == DW_TAG_structure_type || tag == DW_TAG_class_type || tag == DW_TAG_union_type;
}

class Writer {
public:
    void structure(Dwarf_Die *die, const std::string &name) {
        text_ += fmt::format("struct {} {}\n", name, size_bytes_of(die));
        members(die, name, 0, kWantedFlat.count(name) != 0 ? kDeepest : 0);
    }
    [[nodiscard]] const std::string &text() const { return text_; }

private:
    void members(Dwarf_Die *structure, const std::string &prefix, std::int64_t base_bytes,
                 int depth) {
        Dwarf_Die child;
        if (depth > kDeepest || dwarf_child(structure, &child) != 0)
            return;
        do {
            const int tag = dwarf_tag(&child);
            auto type = type_of(&child);
            if (!type || (tag != DW_TAG_inheritance && tag != DW_TAG_member))
                continue;
            const std::int64_t offset_bytes =
                base_bytes + number_of(&child, DW_AT_data_member_location).value_or(0);
            const char *name = tag == DW_TAG_member ? dwarf_diename(&child) : nullptr;
            // Members of an anonymous member or a base class are the structure's own.
            const std::string path = name != nullptr ? prefix + "." + name : prefix;
            if (name != nullptr)
                member(&child, &*type, path, base_bytes, offset_bytes);
            if (has_members(&*type))
                members(&*type, path, offset_bytes, depth + 1);
            else if (dwarf_tag(&*type) == DW_TAG_array_type && name != nullptr)
                elements(&*type, path, depth);
        } while (dwarf_siblingof(&child, &child) == 0);
    }

    void member(Dwarf_Die *die, Dwarf_Die *type, const std::string &path, std::int64_t base_bytes,
                std::int64_t offset_bytes) {
        const auto bits = number_of(die, DW_AT_bit_size);
        if (!bits) {
            text_ += fmt::format("member {} {} {}\n", path, offset_bytes, size_bytes_of(type));
            return;
        }
        std::int64_t first_bit = offset_bytes * 8;
        if (const auto offset = number_of(die, DW_AT_data_bit_offset))
            first_bit = base_bytes * 8 + *offset;
        else if (const auto from_the_top = number_of(die, DW_AT_bit_offset)) // DWARF 2 and 3
            first_bit += number_of(die, DW_AT_byte_size).value_or(size_bytes_of(type)) * 8 -
                         *from_the_top - *bits;
        text_ += fmt::format("bits {} {} {}\n", path, first_bit, *bits);
    }

    void elements(Dwarf_Die *array, const std::string &path, int depth) {
        auto element = type_of(array);
        if (!element)
            return;
        text_ += fmt::format("elements {} {}\n", path, size_bytes_of(&*element));
        if (has_members(&*element))
            members(&*element, path + "[]", 0, depth + 1);
    }

    std::string text_;
};

std::string build_id_of(Dwarf *dwarf) {
    const void *bytes = nullptr;
    const ssize_t count = dwelf_elf_gnu_build_id(dwarf_getelf(dwarf), &bytes);
    std::string text;
    for (ssize_t i = 0; i < count; i++)
        text += fmt::format("{:02x}", static_cast<const unsigned char *>(bytes)[i]);
    return text;
}

std::string layout_of(Dwarf *dwarf) {
    Writer writer;
    std::set<std::string> done;
    Dwarf_Off unit = 0;
    Dwarf_Off next = 0;
    std::size_t header_bytes = 0;
    while (done.size() < kWanted.size() + kWantedFlat.size() &&
           dwarf_nextcu(dwarf, unit, &next, &header_bytes, nullptr, nullptr, nullptr) == 0) {
        Dwarf_Die root;
        Dwarf_Die die;
        if (dwarf_offdie(dwarf, unit + header_bytes, &root) != nullptr &&
            dwarf_child(&root, &die) == 0) {
            do {
                const char *name = dwarf_diename(&die);
                if (name == nullptr || !has_members(&die) ||
                    number_of(&die, DW_AT_declaration).value_or(0) != 0)
                    continue;
                if (kWanted.count(name) + kWantedFlat.count(name) != 0 && done.insert(name).second)
                    writer.structure(&die, name);
            } while (dwarf_siblingof(&die, &die) == 0);
        }
        unit = next;
    }
    return writer.text();
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 3) {
        fmt::print(stderr, "usage: nccl_layout LIBRARY FOLDER\n");
        return 2;
    }
    const int fd = ::open(argv[1], O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        fmt::print(stderr, "{}: {}. Fix: name a readable libnccl.so.2\n", argv[1],
                   std::strerror(errno));
        return 1;
    }
    Dwarf *dwarf = dwarf_begin(fd, DWARF_C_READ);
    const std::string build_id = dwarf != nullptr ? build_id_of(dwarf) : "";
    const std::string layout = dwarf != nullptr ? layout_of(dwarf) : "";
    dwarf_end(dwarf);
    ::close(fd);
    if (build_id.empty() || layout.empty()) {
        fmt::print(stderr, "{}: has no build-id or no DWARF of NCCL. Fix: NVIDIA's own build\n",
                   argv[1]);
        return 1;
    }
    const std::string path = std::string(argv[2]) + "/" + build_id + ".layout";
    std::ofstream file(path);
    file << "build_id " << build_id << "\n" << layout;
    file.close();
    if (!file) {
        fmt::print(stderr, "{}: cannot be written. Fix: name a folder that can be\n", path);
        return 1;
    }
    fmt::print("{}\n", path);
    return 0;
}
