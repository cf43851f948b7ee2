// SPDX-License-Identifier: Apache-2.0
#include "userspace/loader/core_btf.h"

#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <sys/mman.h>
#include <unistd.h>
#include <unordered_map>
#include <utility>

#include <bpf/btf.h>

namespace collwire::loader {
namespace {

bool is_rdma_type(std::string_view name) {
    return name.starts_with("ib_") || name.starts_with("rdma_");
}

struct FreeBtf {
    void operator()(btf *types) const { btf__free(types); }
};

// Copies types from one BTF, with all types that they contain by value. Pointers lose their target:
// CO-RE starts a new relocation after each.
class Copier {
public:
    Copier(const btf *from, btf *to, const std::set<std::string, std::less<>> &wanted)
        : from_(from), to_(to), wanted_(wanted) {}

    // The new number; 0, void, for a type that no program can read; negative: an error. `unnamed`:
    // a member without a name, whose own members belong to the enclosing struct, even if it has a
    // tag (socket_lock_t in Linux 7).
    int copy(std::uint32_t id, bool unnamed = false) {
        const std::pair key{id, unnamed};
        if (const auto done = copied_.find(key); done != copied_.end())
            return done->second;
        const int copied = copy_new(id, unnamed);
        copied_.emplace(key, copied);
        return copied;
    }

private:
    int copy_new(std::uint32_t id, bool unnamed) {
        const auto *type = btf__type_by_id(from_, id);
        if (type == nullptr)
            return 0;
        const char *name = btf__name_by_offset(from_, type->name_off);
        switch (btf_kind(type)) {
        case BTF_KIND_TYPEDEF:
        case BTF_KIND_CONST:
        case BTF_KIND_VOLATILE:
        case BTF_KIND_RESTRICT:
        case BTF_KIND_TYPE_TAG:
            return copy(type->type, unnamed);
        case BTF_KIND_INT:
            return btf__add_int(to_, name, type->size, btf_int_encoding(type));
        case BTF_KIND_FLOAT:
            return btf__add_float(to_, name, type->size);
        case BTF_KIND_PTR:
            return btf__add_ptr(to_, 0);
        case BTF_KIND_ARRAY: {
            const auto *array = btf_array(type);
            const int index = copy(array->index_type);
            const int element = index < 0 ? index : copy(array->type);
            return element < 0 ? element : btf__add_array(to_, index, element, array->nelems);
        }
        case BTF_KIND_ENUM:
            return copy_enum(type, name);
        case BTF_KIND_STRUCT:
        case BTF_KIND_UNION:
            return copy_composite(type, name, unnamed);
        default:
            return 0;
        }
    }

    int copy_enum(const btf_type *type, const char *name) {
        const int id = btf__add_enum(to_, name, type->size);
        for (std::uint32_t i = 0; id >= 0 && i < btf_vlen(type); ++i) {
            const auto &value = btf_enum(type)[i];
            const char *value_name = btf__name_by_offset(from_, value.name_off);
            if (const int failed = btf__add_enum_value(to_, value_name, value.val); failed < 0)
                return failed;
        }
        return id;
    }

    int copy_composite(const btf_type *type, const char *name, bool unnamed) {
        struct Member {
            const char *name;
            int type;
            std::uint32_t offset_bits;
            std::uint32_t size_bits;
        };
        // A struct that no program reads needs only its size.
        const bool opaque = !unnamed && *name != '\0' && !wanted_.contains(std::string_view(name));
        std::vector<Member> members;
        for (std::uint32_t i = 0; !opaque && i < btf_vlen(type); ++i) {
            const auto &member = btf_members(type)[i];
            const char *member_name = btf__name_by_offset(from_, member.name_off);
            const int member_type = copy(member.type, *member_name == '\0');
            if (member_type < 0)
                return member_type;
            members.push_back({member_name, member_type, btf_member_bit_offset(type, i),
                               btf_member_bitfield_size(type, i)});
        }
        const int id = btf_is_union(type) ? btf__add_union(to_, name, type->size)
                                          : btf__add_struct(to_, name, type->size);
        for (const auto &member : members) {
            if (id < 0)
                break;
            if (const int failed = btf__add_field(to_, member.name, member.type, member.offset_bits,
                                                  member.size_bits);
                failed < 0)
                return failed;
        }
        return id;
    }

    const btf *from_;
    btf *to_;
    const std::set<std::string, std::less<>> &wanted_;
    std::map<std::pair<std::uint32_t, bool>, int> copied_;
};

Error failed(int error_number) {
    return error(ErrorKind::Failed,
                 std::string("kernel types: ") + std::strerror(std::abs(error_number)));
}

} // namespace

std::vector<std::string> type_names(const btf *object_types) {
    std::set<std::string> names;
    for (std::uint32_t id = 1; id < btf__type_cnt(object_types); ++id) {
        const auto *type = btf__type_by_id(object_types, id);
        if (!btf_is_composite(type) && !btf_is_any_enum(type))
            continue;
        const std::string_view name = btf__name_by_offset(object_types, type->name_off);
        if (!name.empty())
            names.emplace(name.substr(0, name.find("___")));
    }
    return {names.begin(), names.end()};
}

Result<CoreBtf> CoreBtf::make(KernelBtf &kernel, const std::vector<std::string> &names) {
    const std::unique_ptr<btf, FreeBtf> types(btf__new_empty());
    if (types == nullptr)
        return failed(errno);
    const std::set<std::string, std::less<>> wanted(names.begin(), names.end());
    std::unordered_map<const btf *, Copier> copiers;
    const auto copy_from = [&](std::string_view module, const std::string &name) -> Result<bool> {
        const btf *from = kernel.of(module);
        const auto ids = kernel.own_types(module, name);
        for (const auto id : ids)
            if (const int copied =
                    copiers.try_emplace(from, from, types.get(), wanted).first->second.copy(id);
                copied < 0)
                return failed(copied);
        return !ids.empty();
    };
    for (const auto &name : names) {
        std::vector<std::string_view> order(RDMA_MODULES.begin(), RDMA_MODULES.end());
        order.insert(is_rdma_type(name) ? order.begin() + 1 : order.begin(), "vmlinux");
        for (const auto module : order) {
            auto found = copy_from(module, name);
            if (!found)
                return std::move(found).failure();
            if (*found)
                break;
        }
    }
    std::uint32_t size_bytes = 0;
    const void *data = btf__raw_data(types.get(), &size_bytes);
    if (data == nullptr)
        return failed(ENOMEM);
    CoreBtf file(memfd_create("collwire-types", MFD_CLOEXEC));
    if (file.fd_ < 0)
        return failed(errno);
    for (std::uint32_t at = 0; at < size_bytes;) {
        const auto written = write(file.fd_, static_cast<const char *>(data) + at, size_bytes - at);
        if (written <= 0)
            return failed(errno);
        at += static_cast<std::uint32_t>(written);
    }
    return file;
}

CoreBtf::CoreBtf(CoreBtf &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

CoreBtf::~CoreBtf() {
    if (fd_ >= 0)
        close(fd_);
}

std::string CoreBtf::path() const {
    return "/proc/self/fd/" + std::to_string(fd_);
}

} // namespace collwire::loader
