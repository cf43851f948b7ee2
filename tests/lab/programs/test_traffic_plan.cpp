// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tests/lab/programs/traffic_plan.h"

namespace {

using namespace collwire::lab;

PlanOptions options_for(Transport transport) {
    PlanOptions options;
    options.transport = transport;
    options.batch = 200;
    options.max_length_bytes = transport == Transport::Ud ? 1024 : 65536;
    options.max_inline_bytes = 200;
    return options;
}

TEST(TrafficPlan, EveryRequestIsOneTheTransportHasAndFitsItsSlot) {
    for (const Transport transport : {Transport::Rc, Transport::Uc, Transport::Ud}) {
        const PlanOptions options = options_for(transport);
        for (const Request &request : plan_round(options, 0, 0)) {
            EXPECT_TRUE(transport_has(transport, request.operation));
            EXPECT_LE(request.length_bytes, options.max_length_bytes);
            EXPECT_LE(request.piece_bytes.size(), options.max_sges);
            if (!request.piece_bytes.empty()) {
                EXPECT_EQ(
                    std::accumulate(request.piece_bytes.begin(), request.piece_bytes.end(), 0U),
                    request.length_bytes);
            }
            if (request.form == DataForm::Inline || request.form == DataForm::InlineList) {
                EXPECT_TRUE(sends_data(request.operation));
                EXPECT_LE(request.length_bytes, options.max_inline_bytes);
            }
            EXPECT_EQ(request.form == DataForm::Nothing, request.length_bytes == 0);
        }
    }
}

TEST(TrafficPlan, CoversEveryOperationFormAndTheZeroLength) {
    std::set<Operation> operations;
    std::set<DataForm> forms;
    std::set<Operation> empty;
    for (uint64_t round = 0; round < 20; round++) {
        for (const Request &request : plan_round(options_for(Transport::Rc), 0, round)) {
            operations.insert(request.operation);
            forms.insert(request.form);
            if (request.length_bytes == 0) {
                empty.insert(request.operation);
            }
        }
    }
    EXPECT_EQ(operations.size(), 7U);
    EXPECT_EQ(forms.size(), 5U);
    EXPECT_EQ(empty.size(), 5U) << "every one but the atomics";
}

TEST(TrafficPlan, EvenListsHaveOnePieceSizeAndAreNeverInline) {
    PlanOptions options = options_for(Transport::Rc);
    options.uneven_lists = false;
    std::size_t lists = 0;
    for (const Request &request : plan_round(options, 0, 0)) {
        EXPECT_NE(request.form, DataForm::InlineList);
        for (const uint32_t piece : request.piece_bytes) {
            EXPECT_EQ(piece * request.piece_bytes.size(), request.length_bytes);
        }
        lists += request.form == DataForm::SgeList ? 1 : 0;
    }
    EXPECT_GT(lists, 0U);
}

TEST(TrafficPlan, BothEndsPlanAlikeAndRoundsDiffer) {
    const PlanOptions options = options_for(Transport::Rc);
    const auto lengths = [&](uint32_t qp, uint64_t round) {
        std::vector<uint32_t> list;
        for (const Request &request : plan_round(options, qp, round)) {
            list.push_back(request.length_bytes);
        }
        return list;
    };
    EXPECT_EQ(lengths(0, 7), lengths(0, 7));
    EXPECT_NE(lengths(0, 7), lengths(0, 8));
    EXPECT_NE(lengths(0, 7), lengths(1, 7));
}

TEST(TrafficPlan, PatternDetectsEveryChangedByte) {
    std::vector<uint8_t> bytes(37);
    fill_pattern(bytes, 5);
    EXPECT_TRUE(matches_pattern(bytes, 5));
    EXPECT_FALSE(matches_pattern(bytes, 6));
    for (uint8_t &byte : bytes) {
        byte ^= 1;
        EXPECT_FALSE(matches_pattern(bytes, 5));
        byte ^= 1;
    }
}

} // namespace
