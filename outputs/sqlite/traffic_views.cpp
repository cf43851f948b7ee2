// SPDX-License-Identifier: Apache-2.0
#include "outputs/sqlite/traffic_views.h"

#include <array>

namespace collwire::sqlite {

namespace {

// Bounds double up to the largest integer. 0 has no bound below it.
constexpr std::array VIEWS{
    View{.name = "operations_by_kind",
         .meaning = "What each communicator calls: operations and their bytes over the network, "
                    "with shares of the whole file in percent. Where without_bytes is not 0, bytes "
                    "are lower bounds.",
         .select = R"(
  SELECT "comm", CASE "kind" WHEN 'p2p' THEN 'SendRecv' ELSE "op" END AS "op",
         count(*) AS "operations",
         100.0 * count(*) / (SELECT count(*) FROM "operations") AS "operations_percent",
         sum("tx_payload_bytes") AS "tx_payload_bytes",
         100.0 * sum("tx_payload_bytes") /
             (SELECT nullif(sum("tx_payload_bytes"), 0) FROM "operations") AS "payload_percent",
         sum("tx_payload_bytes" IS NULL) AS "without_bytes"
  FROM "operations" GROUP BY 1, 2)"},
    View{.name = "sizes",
         .meaning = "How large operations are, by powers of two: each row has those of more than "
                    "the one and at most the other size, with their share in percent.",
         .select = R"(
  WITH RECURSIVE "bound"("above", "most") AS (
         SELECT 0, 1 UNION ALL
         SELECT "most", CASE "most" WHEN 1 << 62 THEN 9223372036854775807 ELSE "most" * 2 END
         FROM "bound" WHERE "most" < 9223372036854775807),
       "of" AS (
         SELECT CASE "kind" WHEN 'p2p' THEN 'SendRecv' ELSE "op" END AS "op",
                "size_bytes" AS "value", count(*) AS "n"
         FROM "operations" WHERE "size_bytes" IS NOT NULL GROUP BY 1, 2)
  SELECT "op", "above" AS "more_than_bytes", coalesce("most", 0) AS "at_most_bytes",
         sum("n") AS "operations", 100.0 * sum("n") / sum(sum("n")) OVER "all" AS "percent",
         100.0 * sum(sum("n")) OVER ("all" ORDER BY "most") / sum(sum("n")) OVER "all"
             AS "up_to_here_percent"
  FROM "of" LEFT JOIN "bound" ON "value" > "above" AND "value" <= "most"
  GROUP BY "op", "most" WINDOW "all" AS (PARTITION BY "op"))"},
    View{.name = "durations",
         .meaning = "How long operations take (most_duration_ns), by powers of two, as in sizes. "
                    "bounds: how many are upper bounds. Operations without a known end are in no "
                    "row.",
         .select = R"(
  WITH RECURSIVE "bound"("above", "most") AS (
         SELECT 0, 1024 UNION ALL
         SELECT "most", CASE "most" WHEN 1 << 62 THEN 9223372036854775807 ELSE "most" * 2 END
         FROM "bound" WHERE "most" < 9223372036854775807),
       "of" AS (
         SELECT CASE "kind" WHEN 'p2p' THEN 'SendRecv' ELSE "op" END AS "op",
                max("most_duration_ns", 1) AS "value", "end_known" <> 'measured' AS "is_bound"
         FROM "operations" WHERE "most_duration_ns" IS NOT NULL)
  SELECT "op", "above" AS "more_than_ns", "most" AS "at_most_ns", count(*) AS "operations",
         100.0 * count(*) / sum(count(*)) OVER "all" AS "percent",
         100.0 * sum(count(*)) OVER ("all" ORDER BY "most") / sum(count(*)) OVER "all"
             AS "up_to_here_percent", sum("is_bound") AS "bounds"
  FROM "of" JOIN "bound" ON "value" > "above" AND "value" <= "most"
  GROUP BY "op", "most" WINDOW "all" AS (PARTITION BY "op"))"},
    View{.name = "bytes_between_gpus",
         .meaning = "What operations of all communicators moved from GPU to GPU over the network, "
                    "by tier. null: the rank is in no capture, or its GPU is not known.",
         .select = R"(
  WITH "place" AS (
         SELECT "comm", "rank", min("host") AS "host", min("gpu_pci_address") AS "gpu"
         FROM "ranks" GROUP BY "comm", "rank")
  SELECT "src"."host" AS "src_host", "src"."gpu" AS "src_gpu", "dst"."host" AS "dst_host",
         "dst"."gpu" AS "dst_gpu", "tier", sum("payload_bytes") AS "payload_bytes",
         CASE WHEN count(*) = count("wire_bytes") THEN sum("wire_bytes") END AS "wire_bytes"
  FROM "rank_pairs" AS "pair"
       LEFT JOIN "place" AS "src" ON "src"."comm" = "pair"."comm" AND "src"."rank" = "src_rank"
       LEFT JOIN "place" AS "dst" ON "dst"."comm" = "pair"."comm" AND "dst"."rank" = "dst_rank"
  GROUP BY 1, 2, 3, 4, 5)"},
    View{.name = "tiers_by_second",
         .meaning = "Bytes of operations by tier over time, each in the second of its first "
                    "launch, or of its first call where no launch is known. second: since 1970.",
         .select = R"(
  SELECT coalesce("first_launch_realtime_ns", "called_realtime_ns") / 1000000000 AS "second",
         "tier", count(*) AS "operations", sum("part"."tx_payload_bytes") AS "tx_payload_bytes",
         CASE WHEN count(*) = count("part"."tx_wire_bytes") THEN sum("part"."tx_wire_bytes") END
             AS "tx_wire_bytes"
  FROM "operation_tiers" AS "part" JOIN "operations" USING ("operation") GROUP BY 1, 2)"},
    View{.name = "sparsity",
         .meaning = "How many of the ordered pairs of ranks of a communicator moved bytes over the "
                    "network. pairs_not_captured: both ranks are in no capture, so nothing is "
                    "known of them.",
         .select = R"(
  SELECT "comm", "n_ranks", "n_nodes", "n_ranks" * ("n_ranks" - 1) AS "pairs",
         max("n_ranks" - "ranks_captured", 0) * max("n_ranks" - "ranks_captured" - 1, 0)
             AS "pairs_not_captured",
         count("src_rank") AS "pairs_with_bytes",
         100.0 * count("src_rank") / nullif("n_ranks" * ("n_ranks" - 1), 0) AS "percent"
  FROM "communicators" LEFT JOIN (
         SELECT DISTINCT "comm", "src_rank", "dst_rank" FROM "rank_pairs"
         WHERE "payload_bytes" <> 0 AND "src_rank" IS NOT NULL AND "dst_rank" IS NOT NULL)
       USING ("comm")
  GROUP BY "comm")"},
    View{.name = "bursts",
         .meaning = "Operations of a communicator that follow each other within rest_ns, by their "
                    "first launch or call. rest_ns is 1 ms, 10 ms, 100 ms, 1 s and 10 s: choose "
                    "one. rest_before_ns: since the last operation of the burst before.",
         .select = R"(
  WITH "scale"("rest_ns") AS (VALUES (1000000), (10000000), (100000000), (1000000000),
                                     (10000000000)),
       "gap" AS (
         SELECT "comm", "operation", "tx_payload_bytes", "at",
                "at" - lag("at") OVER (PARTITION BY "comm" ORDER BY "at", "operation") AS "gap_ns"
         FROM (SELECT *, coalesce("first_launch_realtime_ns", "called_realtime_ns") AS "at"
               FROM "operations") WHERE "at" IS NOT NULL),
       "numbered" AS (
         SELECT *, 1 + sum(coalesce("gap_ns" > "rest_ns", 0)) OVER
                       (PARTITION BY "rest_ns", "comm" ORDER BY "at", "operation") AS "burst"
         FROM "gap" CROSS JOIN "scale")
  SELECT "comm", "rest_ns", "burst", min("at") AS "begin_realtime_ns",
         max("at") AS "last_realtime_ns", count(*) AS "operations",
         sum("tx_payload_bytes") AS "tx_payload_bytes",
         max(CASE WHEN "gap_ns" > "rest_ns" THEN "gap_ns" END) AS "rest_before_ns"
  FROM "numbered" GROUP BY "comm", "rest_ns", "burst")"},
    View{.name = "burst_periods",
         .meaning = "How regularly a communicator is used: the times from the begin of a burst to "
                    "the begin of the next. A training step shows where the median and the 95th "
                    "percentile are close.",
         .select = R"(
  SELECT "comm", "rest_ns", "n" + 1 AS "bursts",
         min(CASE WHEN "place" >= ("n" * 50 + 99) / 100 THEN "period_ns" END) AS "p50_period_ns",
         min(CASE WHEN "place" >= ("n" * 95 + 99) / 100 THEN "period_ns" END) AS "p95_period_ns",
         min("period_ns") AS "min_period_ns", max("period_ns") AS "max_period_ns"
  FROM (SELECT *, count(*) OVER "of" AS "n", row_number() OVER ("of" ORDER BY "period_ns")
               AS "place"
        FROM (SELECT "comm", "rest_ns", "begin_realtime_ns" - lag("begin_realtime_ns") OVER
                     (PARTITION BY "comm", "rest_ns" ORDER BY "burst") AS "period_ns"
              FROM "bursts")
        WHERE "period_ns" IS NOT NULL WINDOW "of" AS (PARTITION BY "comm", "rest_ns"))
  GROUP BY "comm", "rest_ns")"},
};

} // namespace

std::span<const View> traffic_views() {
    return VIEWS;
}

} // namespace collwire::sqlite
