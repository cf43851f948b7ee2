// SPDX-License-Identifier: Apache-2.0
#include "correlate/tabulate/tabulate.h"

#include "correlate/roles/guess_roles.h"
#include "correlate/tabulate/rows_of_incidents.h"
#include "correlate/tabulate/rows_of_kernels.h"
#include "correlate/tabulate/rows_of_nccl.h"
#include "correlate/tabulate/rows_of_network.h"
#include "correlate/tabulate/rows_of_recordings.h"
#include "correlate/tabulate/rows_of_totals.h"
#include "correlate/tabulate/rows_of_verdicts.h"
#include "correlate/tabulate/rows_of_waiting.h"

namespace collwire::tabulate {

void tabulate(const model::Model &model, bool has_detail, rows::RowSink &sink) {
    const std::vector<roles::RoleGuess> guesses = roles::guess_roles(model);
    const nccl::LastCalls last_calls(model);
    rows_of_recordings(model, sink);
    rows_of_totals(model, sink);
    rows_of_verdicts(model, guesses, sink);
    rows_of_communicators(model, guesses, sink);
    rows_of_operations(model, last_calls, has_detail, sink);
    rows_of_waiting(model, last_calls, sink);
    rows_of_incidents(model, sink);
    rows_of_kernels(model, sink);
    rows_of_network(model, sink);
}

} // namespace collwire::tabulate
