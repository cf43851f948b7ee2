/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Classifies the frames of a reliable queue pair as new or retransmitted, from their packet numbers
 * (PSN) alone: every PSN's payload counts once, at the sender and at the receiver, with loss,
 * duplicates and going back. Pure: tested in user space.
 */
#ifndef COLLWIRE_WIRE_SEQUENCE_H
#define COLLWIRE_WIRE_SEQUENCE_H

#include "collwire/record.h"
#include "collwire/wire_records.h"
#include "collwire/roce.h"
#include "collwire/tables.h"

/*
 * More frames than a sender may have in flight (rxe: 128 packets, or one READ of 2 GiB) without one
 * that is taken: the kernel skipped our program for a frame. Restart at the current frame.
 */
#define CW_SEQUENCE_LOST 65536

/* Sends a request that uses n_psns, or a response or an ACK. */
CW_INLINE enum cw_wire_class cw_sequence_tx(struct cw_wire_sequences *s, __u8 opcode, __u32 psn,
					    __u32 n_psns)
{
	enum cw_wire_class frame = cw_bth_class(opcode);

	if (!cw_bth_is_reliable(opcode) || frame == CW_WIRE_ACK)
		return frame;
	if (frame == CW_WIRE_RESPONSE) {
		if (s->tx_response_known && cw_psn_distance(psn, s->tx_response_next) < 0)
			return CW_WIRE_RETRANSMIT;
		s->tx_response_known = 1;
		s->tx_response_next = cw_psn_add(psn, 1);
		return frame;
	}
	if (s->tx_request_known && cw_psn_distance(psn, s->tx_request_next) < 0)
		return CW_WIRE_RETRANSMIT;
	s->tx_request_known = 1;
	s->tx_request_next = cw_psn_add(psn, n_psns);
	if (cw_bth_asks_response(opcode)) {
		if (s->read_head - s->read_tail >= CW_MAX_READS)
			s->read_tail++;
		s->reads[s->read_head & (CW_MAX_READS - 1)] = psn;
		s->read_head++;
	}
	return frame;
}

/* The frame that cw_sequence_tx just counted as new was not sent: it will be sent again. */
CW_INLINE void cw_sequence_tx_failed(struct cw_wire_sequences *s, __u8 opcode, __u32 psn,
				     enum cw_wire_class frame)
{
	if (!cw_bth_is_reliable(opcode))
		return;
	if (frame == CW_WIRE_RESPONSE)
		s->tx_response_next = psn;
	if (frame != CW_WIRE_REQUEST)
		return;
	s->tx_request_next = psn;
	if (cw_bth_asks_response(opcode) && s->read_head != s->read_tail)
		s->read_head--;
}

/*
 * Receives a request. start: the PSN that the responder expects, used for the first frame;
 * kernel_next: the next PSN of the kernel's responder, -1: not known. *lost is set after a restart.
 */
CW_INLINE enum cw_wire_class cw_sequence_rx_request(struct cw_wire_sequences *s, __u8 opcode,
						    __u32 psn, __u32 n_psns, __u32 start,
						    __s64 kernel_next, int *lost)
{
	__s32 distance;

	if (!cw_bth_is_reliable(opcode))
		return CW_WIRE_REQUEST;
	if (!s->rx_request_known) {
		s->rx_request_known = 1;
		s->rx_request_next = start;
	}
	distance = cw_psn_distance(psn, s->rx_request_next);
	if (distance > 0 && kernel_next >= 0 &&
	    cw_psn_distance((__u32)kernel_next, s->rx_request_next) > 0) {
		*lost = 1;
		s->rx_request_next = (__u32)kernel_next;
		distance = cw_psn_distance(psn, s->rx_request_next);
	}
	if (distance > 0 && ++s->rx_request_ahead > CW_SEQUENCE_LOST) {
		*lost = 1;
		distance = 0;
	}
	if (distance)
		return CW_WIRE_RETRANSMIT;
	s->rx_request_next = cw_psn_add(psn, n_psns);
	s->rx_request_ahead = 0;
	return CW_WIRE_REQUEST;
}

CW_INLINE enum cw_wire_class cw_sequence_take_response(struct cw_wire_sequences *s, __u8 opcode,
						       __u32 psn)
{
	s->rx_response_end_known = 1;
	s->rx_response_end = cw_psn_add(psn, 1);
	s->rx_response_next = s->rx_response_end;
	s->rx_response_open = !cw_bth_ends_response(opcode);
	s->rx_response_ahead = 0;
	return CW_WIRE_RESPONSE;
}

/* Receives a response or an ACK. kernel_next and *lost as above. */
CW_INLINE enum cw_wire_class cw_sequence_rx_response(struct cw_wire_sequences *s, __u8 opcode,
						     __u32 psn, __s64 kernel_next, int *lost)
{
	enum cw_wire_class frame = cw_bth_class(opcode);
	int waiting = s->read_tail != s->read_head;
	__u32 expected;

	if (frame != CW_WIRE_RESPONSE)
		return frame;
	if (s->rx_response_end_known && cw_psn_distance(psn, s->rx_response_end) < 0)
		return CW_WIRE_RETRANSMIT;
	/* No response is expected if all requests were sent before the recording. */
	if (!s->rx_response_open && !waiting)
		return cw_sequence_take_response(s, opcode, psn);
	expected = s->rx_response_open ? s->rx_response_next
				       : s->reads[s->read_tail & (CW_MAX_READS - 1)];
	if (psn == expected) {
		if (!s->rx_response_open)
			s->read_tail++;
		return cw_sequence_take_response(s, opcode, psn);
	}
	/*
	 * After the last that was taken and before the oldest request: from before the recording.
	 */
	if (cw_psn_distance(psn, expected) < 0)
		return cw_sequence_take_response(s, opcode, psn);
	/* Ahead: a response was lost, unless the kernel has taken it and the program missed it. */
	if ((kernel_next < 0 || cw_psn_distance((__u32)kernel_next, expected) <= 0) &&
	    ++s->rx_response_ahead <= CW_SEQUENCE_LOST)
		return CW_WIRE_RETRANSMIT;
	*lost = 1;
	s->read_tail = s->read_head;
	return cw_sequence_take_response(s, opcode, psn);
}

#endif
