// SPDX-License-Identifier: Apache-2.0
#include "userspace/verbs/control_path.h"

#include <filesystem>
#include <set>
#include <span>
#include <system_error>

#include "collwire/verbs.h"

namespace collwire::verbs {
namespace {

struct Wanted {
    const char *name;
    ControlCall call;
};

constexpr Wanted CREATES[] = {{"ibv_cmd_create_qp", ControlCall::Create},
                              {"ibv_cmd_create_qp_ex", ControlCall::Create},
                              {"ibv_cmd_create_qp_ex2", ControlCall::Create}};
constexpr Wanted PUBLIC_CREATES[] = {{"ibv_create_qp", ControlCall::PublicCreate}};
constexpr Wanted MODIFIES[] = {{"ibv_cmd_modify_qp", ControlCall::Modify},
                               {"ibv_cmd_modify_qp_ex", ControlCall::Modify}};
constexpr Wanted PUBLIC_MODIFIES[] = {{"ibv_modify_qp", ControlCall::Modify}};
constexpr Wanted DESTROYS[] = {{"ibv_cmd_destroy_qp", ControlCall::Destroy}};
constexpr Wanted PUBLIC_DESTROYS[] = {{"ibv_destroy_qp", ControlCall::Destroy}};
constexpr Wanted EVENTS[] = {{"ibv_ack_async_event", ControlCall::AckEvent}};

constexpr const char *FOLDERS[] = {"/usr/lib/x86_64-linux-gnu",
                                   "/lib/x86_64-linux-gnu",
                                   "/usr/lib64",
                                   "/lib64",
                                   "/usr/lib",
                                   "/usr/local/lib",
                                   "/usr/local/lib64"};

class Chooser {
public:
    explicit Chooser(const std::map<std::string, std::uint64_t> &exported) : exported_(exported) {}

    bool add(std::span<const Wanted> wanted) {
        const std::size_t before = path_.functions.size();
        for (const Wanted &one : wanted)
            if (const auto found = exported_.find(one.name); found != exported_.end())
                path_.functions.push_back({one.name, one.call, found->second});
        return path_.functions.size() != before;
    }
    // The public ones only where a file has no private one: a call passes both.
    void add_either(std::span<const Wanted> privates, std::span<const Wanted> publics,
                    const char *only_public, const char *neither) {
        if (add(privates))
            return;
        miss(add(publics) ? only_public : neither);
    }
    void miss(const char *clause) {
        if (!path_.missing.empty())
            path_.missing += ", ";
        path_.missing += clause;
    }
    ControlPath take() { return std::move(path_); }

private:
    const std::map<std::string, std::uint64_t> &exported_;
    ControlPath path_;
};

} // namespace

ControlPath control_path(const std::map<std::string, std::uint64_t> &exported) {
    Chooser chooser{exported};
    chooser.add_either(CREATES, PUBLIC_CREATES,
                       "queue pairs of ibv_create_qp_ex appear at their first change",
                       "creations are not seen");
    chooser.add_either(MODIFIES, PUBLIC_MODIFIES, "changes that a provider makes are not seen",
                       "changes are not seen");
    chooser.add_either(DESTROYS, PUBLIC_DESTROYS, "queue pairs that a provider ends are not seen",
                       "ends are not seen");
    if (!chooser.add(EVENTS))
        chooser.miss("asynchronous events are not seen");
    return chooser.take();
}

bool is_libibverbs(std::string_view path) {
    return path.substr(path.rfind('/') + 1).starts_with(CW_LIBIBVERBS);
}

std::vector<std::string> installed_libibverbs() {
    std::set<std::string> paths;
    for (const char *folder : FOLDERS) {
        std::error_code absent;
        const auto path =
            std::filesystem::canonical(std::filesystem::path{folder} / CW_LIBIBVERBS ".1", absent);
        if (!absent)
            paths.insert(path.native());
    }
    return {paths.begin(), paths.end()};
}

} // namespace collwire::verbs
