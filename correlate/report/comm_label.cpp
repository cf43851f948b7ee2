// SPDX-License-Identifier: Apache-2.0
#include "correlate/report/comm_label.h"

#include "correlate/nccl/describe.h"
#include "correlate/report/units.h"
#include "correlate/roles/guess_roles.h"
#include "correlate/roles/label.h"

namespace collwire::report {

std::string short_comm_label(const nccl::Communicator &comm, const roles::RoleGuess &guess) {
    if (!comm.name.empty())
        return printable(comm.name);
    const std::string mark = roles::guess_mark(guess);
    return mark.empty() ? nccl::hash_text(comm.hash) : mark;
}

std::string long_comm_label(const nccl::Communicator &comm, const roles::RoleGuess &guess) {
    if (!comm.name.empty())
        return printable(comm.name);
    return roles::label_of({}, comm.hash, roles::guessed_role_name(guess.role));
}

} // namespace collwire::report
