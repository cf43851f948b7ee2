// SPDX-License-Identifier: Apache-2.0
#include "outputs/sqlite/views.h"

#include <array>

#include "outputs/sqlite/traffic_views.h"

namespace collwire::sqlite {

namespace {

// Each value at or below which so many percent of the samples are: the rank is rounded up, as the
// report does it.
constexpr std::array VIEWS{
    View{.name = "slowest_operations",
         .meaning = "Operations with a known end, place 1 being the slowest of its communicator. "
                    "most_duration_ns is a bound unless end_known is measured.",
         .select = R"(
  SELECT "comm", rank() OVER (PARTITION BY "comm" ORDER BY "most_duration_ns" DESC) AS "place",
         "operation", CASE "kind" WHEN 'p2p' THEN 'SendRecv' ELSE "op" END AS "op", "seq",
         "src_rank", "dst_rank", "size_bytes", "algorithm", "protocol",
         "least_duration_ns", "most_duration_ns", "end_known", "is_partial"
  FROM "operations" WHERE "most_duration_ns" IS NOT NULL)"},
    View{.name = "times_by_size",
         .meaning = "Times of equal operations of a communicator: median, 95th percentile and "
                    "the highest. Where is_bound is 1 they are upper bounds from samples.",
         .select = R"(
  SELECT "comm", "op", "size_bytes", "algorithm", "protocol", count(*) AS "operations",
         min(CASE WHEN "place" >= ("n" * 50 + 99) / 100 THEN "most_duration_ns" END) AS "p50_ns",
         min(CASE WHEN "place" >= ("n" * 95 + 99) / 100 THEN "most_duration_ns" END) AS "p95_ns",
         max("most_duration_ns") AS "max_ns", max("end_known" <> 'measured') AS "is_bound"
  FROM (SELECT *, count(*) OVER "equal" AS "n",
               row_number() OVER ("equal" ORDER BY "most_duration_ns") AS "place"
        FROM (SELECT "comm", CASE "kind" WHEN 'p2p' THEN 'SendRecv' ELSE "op" END AS "op",
                     "size_bytes", "algorithm", "protocol", "most_duration_ns", "end_known"
              FROM "operations" WHERE "most_duration_ns" IS NOT NULL)
        WINDOW "equal" AS (PARTITION BY "comm", "op", "size_bytes", "algorithm", "protocol"))
  GROUP BY "comm", "op", "size_bytes", "algorithm", "protocol")"},
    View{.name = "host_tiers",
         .meaning = "What the queue pairs of each host sent, by the highest switch level crossed. "
                    "null: not measured. Where qps_without_bytes is not 0, bytes are lower "
                    "bounds.",
         .select = R"(
  SELECT "host", "tier", count(*) AS "qps", sum("byte_source" IS NULL) AS "qps_without_bytes",
         sum("tx_wire_bytes") AS "tx_wire_bytes", sum("tx_payload_bytes") AS "tx_payload_bytes"
  FROM (SELECT "host", "tier", "byte_source", "tx_wire_bytes", "tx_payload_bytes"
        FROM "qps" WHERE "type" NOT IN ('UD', 'GSI', 'SMI')
        UNION ALL
        SELECT "host", "qp_peers"."tier", "byte_source", "qp_peers"."tx_wire_bytes",
               "qp_peers"."tx_payload_bytes" FROM "qp_peers" JOIN "qps" USING ("qp"))
  GROUP BY "host", "tier")"},
    View{.name = "bytes_between_ranks",
         .meaning = "What operations of a communicator moved from rank to rank over the network, "
                    "with the hosts of the ranks.",
         .select = R"(
  SELECT "comm", "src_rank", (SELECT min("host") FROM "ranks" WHERE "ranks"."comm" =
         "rank_pairs"."comm" AND "rank" = "src_rank") AS "src_host", "dst_rank",
         (SELECT min("host") FROM "ranks" WHERE "ranks"."comm" = "rank_pairs"."comm" AND "rank" =
         "dst_rank") AS "dst_host", "tier", sum("payload_bytes") AS "payload_bytes",
         CASE WHEN count(*) = count("wire_bytes") THEN sum("wire_bytes") END AS "wire_bytes"
  FROM "rank_pairs" GROUP BY "comm", "src_rank", "dst_rank", "tier")"},
    View{.name = "share_by_tier",
         .meaning = "What queue pairs and NCCL's sockets sent by tier, with the share of all known "
                    "bytes in percent. Where qps_without_bytes is not 0, bytes are lower bounds.",
         .select = R"(
  SELECT "tier", "tx_wire_bytes",
         100.0 * "tx_wire_bytes" / (SELECT nullif(sum("tx_wire_bytes"), 0) FROM "tiers")
             AS "wire_percent",
         "tx_payload_bytes", "tcp_tx_payload_bytes",
         100.0 * "tcp_tx_payload_bytes" /
             (SELECT nullif(sum("tcp_tx_payload_bytes"), 0) FROM "tiers") AS "tcp_percent",
         "derived_tx_payload_bytes", "qps_without_bytes"
  FROM "tiers")"},
    View{.name = "bytes_between_hosts",
         .meaning = "What queue pairs sent from host to host, by tier, the most first.",
         .select = R"(
  SELECT "src_host", "destination", "tier", "host_pair_tiers"."tx_wire_bytes", "qps_without_bytes"
  FROM "host_pair_tiers" JOIN "host_pairs" USING ("host_pair")
  ORDER BY "host_pair_tiers"."tx_wire_bytes" DESC)"},
    View{.name = "jobs_by_tier",
         .meaning = "What the queue pairs of each Slurm job sent, by tier. No job: null.",
         .select = R"(
  SELECT "slurm_job", "tier", count(DISTINCT "host") AS "hosts",
         sum("process_tiers"."tx_wire_bytes") AS "tx_wire_bytes"
  FROM "process_tiers" JOIN "processes" USING ("process") GROUP BY "slurm_job", "tier")"},
    View{.name = "not_recorded",
         .meaning = "What the captures do not show, and so what numbers lack: one row for each "
                    "reason. n: how many, null: not countable.",
         .select = R"(
  SELECT 'source' AS "kind", "host", "name" || ' is ' || "state" || CASE "reason" WHEN '' THEN ''
         ELSE ': ' || "reason" END AS "what", NULL AS "n" FROM "sources" WHERE "state" <> 'on'
  UNION ALL SELECT 'capture', "host", "path" || ' is ' || "end" || ': ' || "message", NULL
  FROM "captures" WHERE "end" <> 'complete'
  UNION ALL SELECT 'recordings', "host", 'recordings that overlap with a longer one',
         "recordings_excluded" FROM "hosts" WHERE "recordings_excluded" <> 0
  UNION ALL SELECT 'loss', "host", 'lost records of class ' || "loss_class", sum("records")
  FROM "losses" GROUP BY "host", "loss_class"
  UNION ALL SELECT 'ranks', NULL, 'ranks of communicator ' || "comm" || ' in no capture',
         "n_ranks" - "ranks_captured" FROM "communicators" WHERE "n_ranks" > "ranks_captured"
  UNION ALL SELECT 'operations', NULL, 'partial operations of communicator ' || "comm", count(*)
  FROM "operations" WHERE "is_partial" GROUP BY "comm"
  UNION ALL SELECT 'operations', NULL, 'operations of communicator ' || "comm" ||
         ' with unknown bytes', count(*)
  FROM "operations" WHERE "tx_payload_bytes" IS NULL GROUP BY "comm"
  UNION ALL SELECT 'queue pairs', "host", 'queue pairs with unknown bytes', count(*)
  FROM "qps" WHERE "byte_source" IS NULL GROUP BY "host"
  UNION ALL SELECT 'flows', "host", 'sending flows with unmeasured bytes', count(*)
  FROM "flows" WHERE "byte_source" IS NULL AND "is_send" GROUP BY "host")"},
    View{.name = "last_to_call",
         .meaning =
             "How often each rank of a communicator called last, and how long after the "
             "first rank: median and the highest. Only operations whose last rank the clocks show.",
         .select = R"(
  SELECT "comm", "last_rank", (SELECT min("host") FROM "ranks" WHERE "ranks"."comm" =
         "last"."comm" AND "rank" = "last_rank") AS "host", count(*) AS "operations",
         min(CASE WHEN "place" >= ("n" * 50 + 99) / 100 THEN "last_call_after_first_ns" END)
             AS "p50_after_first_ns",
         max("last_call_after_first_ns") AS "max_after_first_ns"
  FROM (SELECT "comm", "last_rank", "last_call_after_first_ns", count(*) OVER "equal" AS "n",
               row_number() OVER ("equal" ORDER BY "last_call_after_first_ns") AS "place"
        FROM "operations" WHERE "last_rank" IS NOT NULL
        WINDOW "equal" AS (PARTITION BY "comm", "last_rank")) AS "last"
  GROUP BY "comm", "last_rank")"},
    View{.name = "nic_rates",
         .meaning = "Each port in each interval: GB/s sent and received, and the larger one as a "
                    "share of the rate of its link in percent, the fullest port first.",
         .scope = rows::Scope::Intervals,
         .select = R"(
  SELECT "interval", "begin_realtime_ns", "host", "device", "port",
         1.0 * "tx_wire_bytes" / "length_ns" AS "tx_gb_a_second",
         1.0 * "rx_wire_bytes" / "length_ns" AS "rx_gb_a_second",
         8.0e5 * max("tx_wire_bytes", "rx_wire_bytes") / "length_ns" / nullif("rate_mbps", 0)
             AS "percent"
  FROM "interval_ports" JOIN (SELECT "interval", "begin_realtime_ns",
       "end_realtime_ns" - "begin_realtime_ns" AS "length_ns" FROM "intervals")
       USING ("interval")
  ORDER BY "percent" DESC)"},
    View{.name = "last_to_start",
         .meaning = "The rank whose kernel started last on its GPU, of each operation with the "
                    "kernels of all ranks, and how long after the first. Times of hosts are not "
                    "aligned: compare within a host.",
         .scope = rows::Scope::Detail,
         .select = R"(
  SELECT "operation", "comm", "op", "seq", "rank", "host", "after_first_ns"
  FROM (SELECT "operation", "operations"."comm", "operations"."op", "seq",
               "operation_ranks"."rank", "operation_ranks"."host",
               "start_realtime_ns" - min("start_realtime_ns") OVER "all" AS "after_first_ns",
               row_number() OVER (PARTITION BY "operation" ORDER BY "start_realtime_ns" DESC)
                   AS "place",
               count(*) OVER "all" AS "n", count("start_realtime_ns") OVER "all" AS "known",
               CASE "operations"."kind" WHEN 'p2p' THEN 2 ELSE "n_ranks" END AS "wanted"
        FROM "operation_ranks" JOIN "operations" USING ("operation")
             JOIN "communicators" ON "communicators"."comm" = "operations"."comm"
             LEFT JOIN "kernels" USING ("kernel")
        WINDOW "all" AS (PARTITION BY "operation"))
  WHERE "place" = 1 AND "n" > 1 AND "n" = "known" AND "n" = "wanted")"},
};

} // namespace

std::vector<View> all_views() {
    std::vector<View> views(VIEWS.begin(), VIEWS.end());
    views.insert(views.end(), traffic_views().begin(), traffic_views().end());
    return views;
}

} // namespace collwire::sqlite
