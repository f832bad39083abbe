/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * libmlx5direct: posts and polls on queues of NVIDIA ConnectX devices without libibverbs.
 *
 * A program makes its objects by libibverbs, and takes their queues over:
 *
 *   struct ibv_cq *  ->  struct mlx5_cq *   polls, arms, waits
 *   struct ibv_qp *  ->  struct mlx5_sq *   posts requests
 *                    ->  struct mlx5_rq *   posts receives
 *   struct ibv_srq * ->  struct mlx5_srq *  posts receives of several queue pairs, DC targets, or of XRC
 *   struct ibv_qp *  ->  struct mlx5_packets *  posts receives of Ethernet packets, polls, arms, waits
 *   struct ibv_wq *  ->  struct mlx5_packets *  the same, of a striding receive queue
 *
 * libibverbs stays responsible for everything else: making, connecting, querying and destroying objects, memory
 * regions, asynchronous events.
 *
 * Threads. A mlx5_cq and the mlx5_sq, mlx5_rq and mlx5_srq that complete on it are one group. At most one thread at a
 * time is in a call on a group ("Thread: group" below). A mlx5_packets is a group. Threads may take turns, if the
 * program orders their calls, by a mutex for example. Different groups are independent. "Thread: any" functions may
 * be called by any thread at any time. No call may be made in a signal handler, or in a forked child on queues of its
 * parent.
 *
 * Errors. A function returns an enum mlx5_status, and has done nothing unless it returns MLX5_STATUS_OK.
 * mlx5_status_text() says cause and cure, and mlx5_last_error() also the numbers of the call. A null handle is
 * MLX5_STATUS_INVALID_ARGUMENT. A handle that was ended must not be used: that cannot be checked.
 *
 * Cost. "Cost: data path" functions take no lock, and make no system call and no allocation.
 */
#ifndef MLX5_H
#define MLX5_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MLX5_VERSION_MAJOR 0
#define MLX5_VERSION_MINOR 1
#define MLX5_VERSION_PATCH 0
/* One number to compare: 10000 * major + 100 * minor + patch. */
#define MLX5_VERSION \
	(10000 * MLX5_VERSION_MAJOR + 100 * MLX5_VERSION_MINOR + MLX5_VERSION_PATCH)

/* Objects of libibverbs. <infiniband/verbs.h> defines them; this header does not need it. */
struct ibv_ah;
struct ibv_context;
struct ibv_cq;
struct ibv_qp;
struct ibv_sge;
struct ibv_srq;
struct ibv_wq;
struct mlx5dv_striding_rq_init_attr;

/* Handles. */
struct mlx5_cq;
struct mlx5_packets;
struct mlx5_rq;
struct mlx5_sq;
struct mlx5_srq;

/* Why a function did nothing. mlx5_status_text() has cause and cure of each. */
enum mlx5_status {
	MLX5_STATUS_OK = 0,
	MLX5_STATUS_INVALID_ARGUMENT = 1,
	MLX5_STATUS_QUEUE_FULL = 2,
	MLX5_STATUS_NOTHING_SIGNALED = 3,
	MLX5_STATUS_INLINE_TOO_LONG = 4,
	MLX5_STATUS_TOO_MANY_SGES = 5,
	MLX5_STATUS_SGE_TOO_LONG = 6,
	MLX5_STATUS_NOT_ON_TRANSPORT = 7,
	MLX5_STATUS_QUEUE_STOPPED = 8,
	MLX5_STATUS_DEVICE_FAILED = 9,
	MLX5_STATUS_CQ_FAILED = 10,
	MLX5_STATUS_NOT_MLX5 = 11,
	MLX5_STATUS_WRONG_STATE = 12,
	MLX5_STATUS_WRONG_CQ = 13,
	MLX5_STATUS_NO_QUEUE = 14,
	MLX5_STATUS_CQ_TOO_SMALL = 15,
	MLX5_STATUS_REGISTER_SHARED = 16,
	MLX5_STATUS_NOT_IDLE = 17,
	MLX5_STATUS_IN_USE = 18,
	MLX5_STATUS_BATCH_OPEN = 19,
	MLX5_STATUS_NO_BATCH = 20,
	MLX5_STATUS_LIBRARY_MISSING = 21,
	MLX5_STATUS_CALL_FAILED = 22,
	MLX5_STATUS_NO_CHANNEL = 23,
	MLX5_STATUS_CHANNEL_SHARED = 24,
	MLX5_STATUS_TIMED_OUT = 25,
	MLX5_STATUS_INTERRUPTED = 26,
	MLX5_STATUS_INTERNAL = 27,
	MLX5_STATUS_NO_CAPABILITY = 28,
	MLX5_STATUS_PREPARED = 29,
	MLX5_STATUS_NOTHING_PREPARED = 30,
	MLX5_STATUS_WRONG_KIND = 31
};

/* What a request does, and what a completion is of. */
enum mlx5_operation {
	/* Completions only: of no request that is outstanding on a queue that was taken over. */
	MLX5_OP_UNEXPECTED = 0,
	/* All; of packets: addresses, type and payload of one, without the checksum at its end. */
	MLX5_OP_SEND = 1,
	/* RC, UC, UD, DC, XRC. */
	MLX5_OP_SEND_IMM = 2,
	/* RC, UC, DC, XRC. */
	MLX5_OP_WRITE = 3,
	MLX5_OP_WRITE_IMM = 4,
	/* RC, DC, XRC. */
	MLX5_OP_READ = 5,
	MLX5_OP_COMPARE_SWAP = 6,
	MLX5_OP_FETCH_ADD = 7,
	/* All: does nothing, and completes behind the requests before it. */
	MLX5_OP_NOP = 8,
	/* RC, DC, XRC: a SEND that also invalidates the peer's key in rkey, a memory window's of type 2. */
	MLX5_OP_SEND_INVALIDATE = 9,
	/* RC, UC, DC, XRC: the key of this side in rkey, a memory window's of type 2 or one that was configured, opens
	 * nothing any more. No memory. */
	MLX5_OP_LOCAL_INVALIDATE = 10,
	/* RC, DC, XRC: compares the bits in compare_mask, and replaces those in swap_mask. */
	MLX5_OP_MASKED_COMPARE_SWAP = 11,
	/* RC, DC, XRC: adds field by field: no carry leaves a field, whose most significant bit is set in swap_mask. */
	MLX5_OP_MASKED_FETCH_ADD = 12,
	/* Packets: TSO. The first entry of sg_list has the headers of Ethernet, IP and TCP, which are copied into the WQE
	 * and stand before each packet; the others are the payload, which the device cuts into pieces of immediate
	 * bytes. */
	MLX5_OP_LARGE_SEND = 13,
	/* Packets: each entry of sg_list is a packet. One completion reports all; with a failure, those before it may
	 * have left. At most 58 entries, or 4 n - 3 in a ring of n < 16 blocks of 64 bytes; of MLX5_INLINE ones, each
	 * takes (4 + length) / 16 places, rounded up. */
	MLX5_OP_MULTI_PACKET = 14,
	/* RC, UC, DC, XRC: binds the memory window whose key is rkey to the one entry of sg_list, memory of a region with
	 * IBV_ACCESS_MW_BIND, with the rights in access (IBV_ACCESS_REMOTE_*); one of type 1 with num_sge 0: to nothing. The
	 * peer then uses the key in immediate: it differs from rkey in the low byte, and is ibv_inc_rkey(rkey) for type 1.
	 * MLX5_TYPE_2: of a window of type 2, which is not bound, and then works on this queue pair alone. Store the new
	 * key in ibv_mw.rkey. */
	MLX5_OP_BIND_WINDOW = 15,
	/* RC: gives the key of mlx5dv_create_mkey() in rkey (its lkey) the memory of sg_list, one entry behind the other, and
	 * the rights in access (IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_*). */
	MLX5_OP_CONFIGURE_KEY = 16,
	/* Packets: the requests behind it wait until the device's clock has reached time, of which the bits in time_mask are
	 * compared (mlx5_time_mask). Clock and time are those of mlx5_packet.timestamp. */
	MLX5_OP_WAIT_UNTIL = 17,
	/* Completions only: a receive took a SEND, or failed. */
	MLX5_OP_RECEIVE = 32,
	MLX5_OP_RECEIVE_IMM = 33,
	MLX5_OP_RECEIVE_INVALIDATE = 34,
	/* Completions only: a WRITE with immediate took a receive. Its bytes are where the peer wrote them. */
	MLX5_OP_RECEIVE_WRITE_IMM = 35,
	/* Completions only: a BIND_WINDOW, CONFIGURE_KEY or LOCAL_INVALIDATE. */
	MLX5_OP_CHANGE_KEY = 36,
	/* Completions only: an operation that this header does not post. */
	MLX5_OP_OTHER = 63
};

/* mlx5_request.flags */
enum {
	/* A completion reports the request. An unsignaled one is retired by the completion of a later request
	 * of its queue; its failure is always reported. */
	MLX5_SIGNALED = 1,
	/* Starts when the READs and atomics before it are done. */
	MLX5_FENCED = 2,
	/* SENDs, WRITE_IMM: raises an event at a peer that armed for solicited ones. */
	MLX5_SOLICITED = 4,
	/* SENDs, WRITEs, MULTI_PACKET: the bytes at the addresses of sg_list are copied into the WQE during
	 * the call. Their lkeys are not used, and the memory is free afterwards. */
	MLX5_INLINE = 8,
	/* Packets: the device fills the checksums of IPv4, and of TCP or UDP, in. */
	MLX5_CHECKSUMS = 16,
	/* SEND of a packet: the first entry of sg_list is copied into the WQE, as MLX5_INLINE does, and the others are
	 * read by the device. Devices before ConnectX-5 need the first 18 bytes so. */
	MLX5_INLINE_HEADER = 32,
	/* SEND of a packet: the device inserts the VLAN tag in immediate behind the addresses. */
	MLX5_VLAN = 64,
	/* BIND_WINDOW: of a window of type 2. */
	MLX5_TYPE_2 = 128,
	/* BIND_WINDOW: addresses behind the window start at 0, and not at the memory's own. */
	MLX5_ZERO_BASED = 256,
	/* CONFIGURE_KEY: behind the key are cycles, of which each has the bytes of each entry of sg_list. The length of an
	 * entry is MLX5_PIECE(bytes, skip), and the next cycle's piece begins bytes + skip further on, at most 65535. So
	 * many cycles as immediate says. At most 51 pieces. The key needs an entry for each and one more, which only the
	 * device checks: the completion fails otherwise. */
	MLX5_INTERLEAVED = 512,
	/* CONFIGURE_KEY: for more pieces than fit into the request (52). The one entry of sg_list is registered memory of this
	 * process with the list of pieces, a multiple of 64 bytes below 1 MiB. Each piece has 16 bytes, written by
	 * mlx5dv_set_data_seg() of libmlx5's header; zeros are no piece. Let the list begin at a multiple of 2048, as
	 * Linux's lists do: it is not published what devices require. key_length has the bytes of all pieces. The device
	 * reads the list until the request is complete. */
	MLX5_LIST_IN_MEMORY = 1024
};

/* The length of an entry with MLX5_INTERLEAVED: bytes of the piece, and bytes to the next cycle's piece behind it. */
#define MLX5_PIECE(bytes, skip) ((uint32_t)(bytes) | (uint32_t)(skip) << 16)

/* The destination of a request. Made by mlx5_address_init(), _init_dc() or _init_xrc(), owned and copied by the
 * program. */
struct mlx5_address {
	uint64_t words[6];
	uint32_t kind;
	uint32_t reserved;
};

/* A request of a send queue. Clear all of it, then set what the operation needs. */
struct mlx5_request {
	uint64_t id;                   /* comes back in the completion */
	uint32_t operation;            /* enum mlx5_operation */
	uint32_t flags;                /* MLX5_SIGNALED, ... */
	const struct ibv_sge *sg_list; /* the payload; READ: where it goes; atomics: 8 bytes for the old value */
	uint32_t num_sge;
	uint32_t immediate;            /* *_IMM, in host byte order: ntohl(imm_data) of verbs; MLX5_VLAN: the tag;
	                                * LARGE_SEND: bytes of payload in a packet; BIND_WINDOW: the window's
	                                * next key; MLX5_INTERLEAVED: cycles */
	uint64_t remote_addr;          /* WRITE, READ, atomics: the peer's memory */
	uint32_t rkey;                 /* its key; *_INVALIDATE, BIND_WINDOW, CONFIGURE_KEY: the key that changes */
	uint32_t reserved;             /* 0 */
	union {
		uint64_t compare_add;  /* atomics, in host byte order: what is compared, or added */
		uint64_t access;       /* BIND_WINDOW, CONFIGURE_KEY: enum ibv_access_flags */
		uint64_t time;         /* WAIT_UNTIL */
	};
	union {
		uint64_t swap;         /* COMPARE_SWAP: the new value */
		uint64_t key_length;   /* MLX5_LIST_IN_MEMORY: bytes behind the key */
	};
	union {
		uint64_t compare_mask; /* MASKED_COMPARE_SWAP: the bits that are compared */
		uint64_t time_mask;    /* WAIT_UNTIL: the bits that are compared */
	};
	uint64_t swap_mask;            /* MASKED_COMPARE_SWAP: the bits that are replaced; MASKED_FETCH_ADD: ends of fields */
	const struct mlx5_address *address; /* UD, DC, XRC: the destination; not of a NOP */
};

/* Other bytes for a part of the payload of a prepared request. */
struct mlx5_change {
	const void *bytes;
	uint32_t offset;               /* in the payload */
	uint32_t length;
};

/* A receive. Clear all of it first. */
struct mlx5_receive {
	uint64_t id;                   /* comes back in the completion */
	const struct ibv_sge *sg_list; /* a message fills one entry after another; UD: behind 40 bytes of GRH */
	uint32_t num_sge;
	uint32_t reserved;             /* 0 */
};

/* mlx5_completion.flags */
enum {
	MLX5_COMPLETION_GRH = 1,      /* the message had a global route header */
	MLX5_COMPLETION_SOLICITED = 2 /* the peer set MLX5_SOLICITED */
};

/* The end of a request or a receive. */
struct mlx5_completion {
	uint64_t id;            /* of the request or receive */
	uint32_t qpn;           /* number of its queue pair */
	uint32_t status;        /* enum ibv_wc_status: 0 is success */
	uint32_t operation;     /* enum mlx5_operation */
	uint32_t byte_len;      /* receives: length of the message; READ: bytes fetched; atomics: 8 */
	uint32_t immediate;     /* RECEIVE_*IMM: in host byte order; RECEIVE_INVALIDATE: the key */
	uint32_t src_qp;        /* UD receives: the sender's queue pair, and its path */
	uint16_t slid;
	uint16_t wqe_index;     /* failures: index of the WQE in its ring */
	uint8_t sl;
	uint8_t dlid_path_bits;
	uint8_t flags;          /* receives: MLX5_COMPLETION_GRH, ... */
	uint8_t vendor_error;   /* failures: vendor syndrome */
};

/* ---- Versions and texts ------------------------------------------------------------------------- */

/* Returns MLX5_VERSION of the library that is loaded. Thread: any. */
uint32_t mlx5_version(void);

/* Returns cause and cure of an enum mlx5_status. Never null, valid for ever. Thread: any. */
const char *mlx5_status_text(uint32_t status);

/* Returns cause and cure of this thread's last failed call, with the numbers of that call. Never null. Valid
 * until this thread calls it again. Thread: any. */
const char *mlx5_last_error(void);

/* Writes what happened, and for a failure its causes and cure, to buffer, as snprintf does: at most size bytes,
 * with a terminating null. Returns the length of the whole text without it, or -1 if an argument is null.
 * Thread: any. Cost: allocates. */
int mlx5_completion_text(const struct mlx5_completion *completion, char *buffer, size_t size);

/* Writes the bits of the device's clock that MLX5_OP_WAIT_UNTIL compares, in queues whose timestamps are free running,
 * as those of libibverbs are. A time is at most half of that ahead, at least 4 seconds.
 *
 * MLX5_STATUS_NO_CAPABILITY: send queues of the device wait for no time. MLX5_STATUS_CALL_FAILED: the capabilities cannot
 * be queried. Thread: any. Cost: a firmware command. */
enum mlx5_status mlx5_time_mask(struct ibv_context *context, uint64_t *mask);

/* ---- Completion queues -------------------------------------------------------------------------- */

/* mlx5_cq_take() */
enum {
	/* Takes the completion queue over with completions that nothing has polled. Those of a queue that is then
	 * taken over are dropped; others are polled as MLX5_OP_UNEXPECTED. A shared receive queue must have none: poll
	 * them by ibv_poll_cq() before. */
	MLX5_CQ_UNPOLLED = 1
};

/* Takes a completion queue over. Polls continue where the last ones stopped.
 *
 * Checked: it is one of libmlx5; this process has not taken it over already (MLX5_STATUS_IN_USE); no completion
 * is in it, unless flags has MLX5_CQ_UNPOLLED, and no event waits on a channel that it has alone
 * (MLX5_STATUS_NOT_IDLE).
 *
 * Not checked, the caller guarantees:
 * - Until the handle is ended, cq is alive and is not resized, and nothing else polls or arms it.
 * - Events of it that were taken are acknowledged, and none waits on a channel that it shares.
 * - If it compresses completions, then to the format "hash".
 *
 * For good: libmlx5 does not poll a completion queue again that was taken over.
 *
 * Ownership: *taken belongs to the caller, who ends it by mlx5_cq_give_back() or mlx5_cq_abandon() before cq is
 * destroyed. Thread: any; no other thread may use cq. Cost: allocates 90 KiB, and as much again for the
 * first send queue of each transport but RC. */
enum mlx5_status mlx5_cq_take(struct ibv_cq *cq, uint32_t flags, struct mlx5_cq **taken);

/* Ends a handle. MLX5_STATUS_IN_USE: handles of queues that complete on it exist. Afterwards cq can be destroyed,
 * or taken over again. Thread: group. */
enum mlx5_status mlx5_cq_give_back(struct mlx5_cq *cq);

/* Ends a handle whatever state its group is in, after a MLX5_STATUS_INTERNAL for example. The handles of its queues
 * are ended before, by their abandon functions. Null is allowed. Thread: group. */
void mlx5_cq_abandon(struct mlx5_cq *cq);

/* Writes up to capacity completions to the array. Returns how many; 0: there is none now. Negative: the enum
 * mlx5_status is the number without its sign, and nothing was taken: -MLX5_STATUS_CQ_FAILED,
 * -MLX5_STATUS_DEVICE_FAILED (noticed after some million polls without a completion), -MLX5_STATUS_BATCH_OPEN.
 * A failed request is no error of the poll: its completion has a status. Thread: group. Cost: data path. */
int mlx5_cq_poll(struct mlx5_cq *cq, struct mlx5_completion *completions, uint32_t capacity);

/* Polls like mlx5_cq_poll(), and writes when the device wrote each completion to the second array: a count of its clock,
 * as ibv_wc_read_completion_ts() returns it. mlx5dv_ts_to_ns() converts it to a time of day. 0: a failure, which has none.
 * Compressed completions have the time of the first of their block. Thread: group. Cost: data path. */
int mlx5_cq_poll_timed(struct mlx5_cq *cq, struct mlx5_completion *completions, uint64_t *times, uint32_t capacity);

/* Requests an event on the completion channel at the next completion, or, if solicited_only is not 0, at the next
 * solicited one or failure. Poll once more before waiting: a completion that came before may raise no event.
 * MLX5_STATUS_NO_CHANNEL. Thread: group. Cost: data path, two stores with fences. */
enum mlx5_status mlx5_cq_arm(struct mlx5_cq *cq, int solicited_only);

/* Waits for the event, takes and acknowledges it. timeout_ms < 0: for ever. For a channel that no other completion
 * queue has (MLX5_STATUS_CHANNEL_SHARED). MLX5_STATUS_TIMED_OUT, MLX5_STATUS_INTERRUPTED (by a signal).
 * Thread: group; no other thread takes events of the channel, or makes completion queues on it. Cost: system calls. */
enum mlx5_status mlx5_cq_wait(struct mlx5_cq *cq, int timeout_ms);

/* Returns the descriptor of the completion channel, for poll and epoll; it becomes readable when an event is there.
 * -1 without a channel. It stays the channel's. Take the event by mlx5_cq_wait(cq, 0), or by ibv_get_cq_event(),
 * ibv_ack_cq_events() and mlx5_cq_event_taken(). Thread: group. */
int mlx5_cq_fd(struct mlx5_cq *cq);

/* Counts an event that the program took by ibv_get_cq_event(). Call it once for each, before the next
 * mlx5_cq_arm(): the device ignores a late arm by this number. Thread: group. Cost: data path. */
enum mlx5_status mlx5_cq_event_taken(struct mlx5_cq *cq);

/* Returns the completion queue that was taken over; null for null. Thread: group. */
struct ibv_cq *mlx5_cq_ibv(struct mlx5_cq *cq);

/* ---- Send queues -------------------------------------------------------------------------------- */

/* mlx5_sq_take() */
enum {
	/* Short requests that are posted singly are copied to the BlueFlame register. No other queue, here or in
	 * libmlx5, may store to this register: make the QP in a thread domain of its own
	 * (ibv_alloc_td, ibv_alloc_parent_domain). */
	MLX5_SQ_OWN_REGISTER = 1
};

/* Takes the send queue of a queue pair of RC, UC, UD, XRC_SEND, RAW_PACKET or of a DC initiator (DCI) over. Posts
 * continue where libmlx5 stopped.
 *
 * requests: how many may be outstanding; a number above what the queue holds is lowered to that. So many entries of cq are
 * reserved, or the call fails (MLX5_STATUS_CQ_TOO_SMALL). 0: as many as the queue holds, or fewer if cq has fewer left.
 *
 * Checked: the type of the queue pair (MLX5_STATUS_NOT_ON_TRANSPORT); it is in RTS (MLX5_STATUS_WRONG_STATE); it
 * completes on cq (MLX5_STATUS_WRONG_CQ); cq has free entries; this process has not taken it over already
 * (MLX5_STATUS_IN_USE); with MLX5_SQ_OWN_REGISTER, no other queue taken over uses its register, and without it, none
 * owns it (MLX5_STATUS_REGISTER_SHARED).
 *
 * Not checked, the caller guarantees:
 * - All requests that were posted before are complete.
 * - Until the handle is ended, qp is alive, nothing else posts sends to it, and it is not moved to RESET.
 * - A DC initiator has no streams.
 * - With MLX5_SQ_OWN_REGISTER, no queue of libmlx5 stores to its register.
 *
 * Ownership: *taken belongs to the caller, who ends it by mlx5_sq_give_back() or mlx5_sq_abandon() before qp is
 * destroyed or moved to RESET, and before cq. Thread: group. Cost: system calls, allocates. */
enum mlx5_status mlx5_sq_take(struct ibv_qp *qp, struct mlx5_cq *cq, uint32_t requests, uint32_t flags,
			      struct mlx5_sq **taken);

/* Gives an idle send queue back, and ends the handle. MLX5_STATUS_NOT_IDLE: requests are outstanding, or
 * MLX5_STATUS_PREPARED: requests are prepared; the handle goes on. Afterwards qp can be destroyed, or taken over
 * again. ibv_post_send() needs a move to RESET first. Thread: group. */
enum mlx5_status mlx5_sq_give_back(struct mlx5_sq *sq);

/* Ends the handle whatever is outstanding. The completions of outstanding requests are lost: move qp to RESET, or
 * destroy it, before their memory is used. Discards the open batch of the group. Null is allowed. Thread: group. */
void mlx5_sq_abandon(struct mlx5_sq *sq);

/* Posts requests in order, with one doorbell for all. A single one goes by BlueFlame with MLX5_SQ_OWN_REGISTER.
 * If one is refused, those before it are posted. posted, if not null, gets how many were.
 *
 * From the call on, the device works on the requests. Until each is complete (its completion was polled, or that of
 * a later request of this queue), the caller keeps its memory registered, does not write what a SEND or WRITE reads,
 * and does not touch what a READ or atomic writes. If libmlx5 made the queue pair to put payload into completions
 * (its default: docs/c.md), the memory of READs and atomics is mapped in this process at the addresses given.
 *
 * While no signaled request is outstanding, the last place of the queue is for one: MLX5_STATUS_NOTHING_SIGNALED of any
 * other. So a queue of one request takes signaled ones alone.
 *
 * sg_list, inline bytes and addresses are read during the call only. MLX5_STATUS_QUEUE_FULL,
 * _NOTHING_SIGNALED, _INLINE_TOO_LONG, _TOO_MANY_SGES, _SGE_TOO_LONG, _NOT_ON_TRANSPORT, _QUEUE_STOPPED,
 * _DEVICE_FAILED, _BATCH_OPEN, _PREPARED, _INVALID_ARGUMENT. Thread: group. Cost: data path. */
enum mlx5_status mlx5_sq_post(struct mlx5_sq *sq, const struct mlx5_request *requests, uint32_t count,
			      uint32_t *posted);

/* Opens a batch. Until it is rung or discarded, every call on its group but mlx5_sq_append(), mlx5_sq_ring() and
 * mlx5_sq_discard() with this handle, mlx5_sq_cancel(), and the abandon functions, fails with MLX5_STATUS_BATCH_OPEN.
 * Calls that only read (mlx5_cq_fd, mlx5_cq_ibv) or handle events are allowed. MLX5_STATUS_PREPARED. Thread: group.
 * Cost: data path. */
enum mlx5_status mlx5_sq_begin(struct mlx5_sq *sq);

/* Writes a request after those in the batch. If it fails, the batch is as before. Errors of mlx5_sq_post(), and
 * MLX5_STATUS_NO_BATCH. Thread: group. Cost: data path. */
enum mlx5_status mlx5_sq_append(struct mlx5_sq *sq, const struct mlx5_request *request);

/* Posts the batch with one doorbell, and closes it. The memory of its requests is as in mlx5_sq_post() from now on.
 * Thread: group. Cost: data path. */
enum mlx5_status mlx5_sq_ring(struct mlx5_sq *sq);

/* Closes the batch, and posts nothing. Thread: group. Cost: data path. */
enum mlx5_status mlx5_sq_discard(struct mlx5_sq *sq);

/* Prepares a request: writes it to the queue's ring, behind those prepared before, and does not post it. The device
 * does not read it until it is fired. Checks everything that could fail: places in ring and completion queue, limits.
 *
 * While requests are prepared, mlx5_sq_post(), mlx5_sq_begin(), mlx5_sq_recover() and mlx5_sq_give_back() of this
 * queue fail with MLX5_STATUS_PREPARED. Other queues of the group and polls go on.
 *
 * sg_list, inline bytes and addresses are read during the call only. Memory that the request names is the device's
 * from mlx5_sq_fire() on. Errors of mlx5_sq_post() but MLX5_STATUS_PREPARED. Nothing is prepared then.
 * Thread: group. Cost: data path. */
enum mlx5_status mlx5_sq_prepare(struct mlx5_sq *sq, const struct mlx5_request *request);

/* Posts the oldest prepared request, as mlx5_sq_post() posts a single one: requests leave in the order of preparing,
 * each once. With the last one, the queue takes other requests again.
 *
 * changes: so many parts of its MLX5_INLINE payload get other bytes before; where they overlap, the last one counts.
 * null with count 0: none. The bytes are read during the call only.
 *
 * Nothing is posted and nothing changes if it fails, and the request stays prepared. MLX5_STATUS_NOTHING_PREPARED,
 * _INVALID_ARGUMENT (a change reaches past the payload; SEND and WRITE of MLX5_INLINE have one, others none),
 * _QUEUE_STOPPED, _DEVICE_FAILED, _BATCH_OPEN. Thread: group. Cost: data path. */
enum mlx5_status mlx5_sq_fire(struct mlx5_sq *sq, const struct mlx5_change *changes, uint32_t count);

/* Forgets all prepared requests: none is posted, and their ids do not come back. The queue takes other requests
 * again. MLX5_STATUS_OK without one, and while a batch of another queue is open. Thread: group. Cost: a store for
 * each 64 bytes of the ring. */
enum mlx5_status mlx5_sq_cancel(struct mlx5_sq *sq);

/* Brings what the next mlx5_sq_fire() reads and writes into the processor's caches. Posts and changes nothing. For a
 * program that waits long between two decisions. Thread: group. Cost: data path. */
enum mlx5_status mlx5_sq_warm(struct mlx5_sq *sq);

/* Returns how many requests are prepared; 0 for an error. Thread: group. */
uint32_t mlx5_sq_prepared(struct mlx5_sq *sq);

/* UC, UD: moves a queue pair that stopped at a failed request (state SQE) back to RTS. All its requests must have
 * been polled, and none is prepared. Thread: group. Cost: a system call. */
enum mlx5_status mlx5_sq_recover(struct mlx5_sq *sq);

/* Returns how many requests may be outstanding; 0 for an error. Thread: group. */
uint32_t mlx5_sq_capacity(struct mlx5_sq *sq);

/* Returns the queue pair; null for null. Thread: any. */
struct ibv_qp *mlx5_sq_ibv(const struct mlx5_sq *sq);

/* Makes the address of a queue pair for datagrams, from an address handle of libibverbs. qpn has 24 bits; a
 * multicast group has 0xffffff. With bit 31 of qkey, the device sends the Q_Key of the sender. The result is a
 * copy: ah may be destroyed afterwards. Thread: any. */
enum mlx5_status mlx5_address_init(struct mlx5_address *address, struct ibv_ah *ah, uint32_t qpn,
				   uint32_t qkey);

/* Makes the address of a target of dynamic connections (DCT), from an address handle of libibverbs, its number of 24
 * bits and its access key. The result is a copy: ah may be destroyed afterwards. Thread: any. */
enum mlx5_status mlx5_address_init_dc(struct mlx5_address *address, struct ibv_ah *ah, uint32_t dctn,
				      uint64_t access_key);

/* Makes the address of a shared receive queue of the peer's XRC domain, from its number (ibv_get_srq_num). srqn has 24
 * bits. Thread: any. */
enum mlx5_status mlx5_address_init_xrc(struct mlx5_address *address, uint32_t srqn);

/* ---- Receive queues ----------------------------------------------------------------------------- */

/* Takes the receive queue that a queue pair of RC, UC or UD has of its own over.
 *
 * receives: how many may be outstanding; a number above what the queue holds is lowered to that. So many entries of cq are
 * reserved, or the call fails (MLX5_STATUS_CQ_TOO_SMALL). 0: as many as the queue holds, or fewer if cq has fewer left.
 *
 * Checked: the type of the queue pair; it is in INIT or later (MLX5_STATUS_WRONG_STATE); it has a receive queue of
 * its own (MLX5_STATUS_NO_QUEUE); it completes on cq; cq has free entries; this process has not taken it over
 * already; in INIT, no receive is outstanding (MLX5_STATUS_NOT_IDLE).
 *
 * Not checked, the caller guarantees:
 * - In RTR and later, too, no receive that was posted before is outstanding.
 * - Until the handle is ended, qp is alive, nothing else posts receives to it, and it is not moved to RESET.
 * - It was not made with MLX5DV_QP_CREATE_OOO_DP.
 *
 * Take it over in INIT to post receives before the peer can send.
 *
 * Ownership: *taken belongs to the caller, who ends it by mlx5_rq_give_back() or mlx5_rq_abandon() before qp is
 * destroyed or moved to RESET, and before cq. Thread: group. Cost: system calls, allocates. */
enum mlx5_status mlx5_rq_take(struct ibv_qp *qp, struct mlx5_cq *cq, uint32_t receives,
			      struct mlx5_rq **taken);

/* Gives a receive queue back, and ends the handle. MLX5_STATUS_NOT_IDLE: receives are outstanding; the handle goes
 * on. ibv_post_recv() needs a move to RESET first. Thread: group. */
enum mlx5_status mlx5_rq_give_back(struct mlx5_rq *rq);

/* Ends the handle whatever is outstanding. The completions of outstanding receives are lost: move qp to RESET, or
 * destroy it, before their memory is used. Discards the open batch of the group. Null is allowed. Thread: group. */
void mlx5_rq_abandon(struct mlx5_rq *rq);

/* Posts receives in order, with one store to the doorbell record for all. If one is refused, those before it are
 * posted. posted, if not null, gets how many were.
 *
 * From the call on, the device may put a message into each. Until it is complete, the caller keeps its memory
 * registered for local write and does not touch it. If libmlx5 made the queue pair to put payload into completions
 * (its default), the memory is mapped in this process at the addresses given.
 *
 * MLX5_STATUS_QUEUE_FULL, _TOO_MANY_SGES, _SGE_TOO_LONG, _DEVICE_FAILED, _BATCH_OPEN, _INVALID_ARGUMENT.
 * Thread: group. Cost: data path. */
enum mlx5_status mlx5_rq_post(struct mlx5_rq *rq, const struct mlx5_receive *receives, uint32_t count,
			      uint32_t *posted);

/* Returns how many receives may be outstanding; 0 for an error. Thread: group. */
uint32_t mlx5_rq_capacity(struct mlx5_rq *rq);

/* Returns the queue pair; null for null. Thread: any. */
struct ibv_qp *mlx5_rq_ibv(const struct mlx5_rq *rq);

/* ---- Shared receive queues ---------------------------------------------------------------------- */

/* Takes a shared receive queue over, of which all queue pairs and DC targets complete their receives on cq. One of
 * tag matching cannot be taken over.
 *
 * receives: how many may be outstanding; a number above what the queue holds is lowered to that. So many entries of cq are
 * reserved, or the call fails (MLX5_STATUS_CQ_TOO_SMALL). 0: as many as the queue holds, or fewer if cq has fewer left.
 *
 * Checked: no receive is outstanding (MLX5_STATUS_NOT_IDLE); cq has free entries; this process has not taken it over
 * already; where the context may give firmware commands, it is neither one of XRC nor of tag matching
 * (MLX5_STATUS_WRONG_KIND).
 *
 * Not checked, the caller guarantees:
 * - srq is alive until the handle is ended.
 * - Nothing else posts to it, also after the handle is ended: it can be taken over once.
 *
 * Ownership: *taken belongs to the caller, who ends it by mlx5_srq_abandon() before srq is destroyed, and before cq.
 * Thread: group. Cost: system calls, allocates. */
enum mlx5_status mlx5_srq_take(struct ibv_srq *srq, struct mlx5_cq *cq, uint32_t receives,
			       struct mlx5_srq **taken);

/* Takes a shared receive queue of IBV_SRQT_XRC over, which completes on cq. Each message names it by its number
 * (ibv_get_srq_num), so that nothing is attached. Completions have the number of the XRC target's queue pair.
 *
 * mlx5_srq_take() says what receives is, what is checked, and what the caller guarantees. Besides:
 *
 * Checked where the context may give firmware commands: it is one of XRC (MLX5_STATUS_WRONG_KIND), and completes on cq
 * (MLX5_STATUS_WRONG_CQ). Without these commands it must be the only one of XRC that completes on cq, or has
 * (MLX5_STATUS_INVALID_ARGUMENT).
 *
 * Not checked, the caller guarantees: nothing else posts to others of XRC that complete on cq.
 *
 * Ownership: that of mlx5_srq_take(). Thread: group. Cost: system calls, allocates. */
enum mlx5_status mlx5_srq_take_xrc(struct ibv_srq *srq, struct mlx5_cq *cq, uint32_t receives,
				   struct mlx5_srq **taken);

/* Lets polls find the receives of a queue pair, or of a DC target (DCT), that was made with this shared receive queue.
 * Call it before the peer is told the number of the queue pair. A receive that completes earlier is lost: it is polled as
 * MLX5_OP_UNEXPECTED, or dropped by this call, and keeps its place in the queue for good. A DCT has its number from RTR on,
 * and is attached then.
 *
 * Checked: the type of the queue pair (RC, UC, UD, DCT: MLX5_STATUS_NOT_ON_TRANSPORT); it receives from this queue
 * (MLX5_STATUS_INVALID_ARGUMENT); it completes on the group's completion queue (MLX5_STATUS_WRONG_CQ); it is not attached
 * already (MLX5_STATUS_IN_USE); a DCT is in RTR (MLX5_STATUS_WRONG_STATE); this queue is not one of XRC
 * (MLX5_STATUS_WRONG_KIND).
 *
 * Not checked, the caller guarantees: until mlx5_srq_detach() or the end of the handle, qp is alive, and it is not
 * moved to RESET. Thread: group. Cost: allocates, and of a DCT a system call. */
enum mlx5_status mlx5_srq_attach(struct mlx5_srq *srq, struct ibv_qp *qp);

/* Ends what mlx5_srq_attach() began. To lose no completion: move qp to ERROR, wait for IBV_EVENT_QP_LAST_WQE_REACHED,
 * poll until nothing is there, then detach. A DCT has no state ERROR: let its initiators end first. Completions of it
 * that are still in the completion queue are dropped, and mlx5_srq_reclaimed() has their ids. Thread: group. Cost:
 * searches the completion queue. */
enum mlx5_status mlx5_srq_detach(struct mlx5_srq *srq, struct ibv_qp *qp);

/* Writes up to capacity ids of receives whose completions a detach has dropped. Returns how many; each id comes once.
 * What is in their memory is unknown, and the memory is the program's again. Thread: group. */
uint32_t mlx5_srq_reclaimed(struct mlx5_srq *srq, uint64_t *ids, uint32_t capacity);

/* Ends the handle. srq can only be destroyed afterwards, and must be before the memory of outstanding receives is used.
 * Entries of cq stay reserved for outstanding receives, whose completions are polled as MLX5_OP_UNEXPECTED. Discards the
 * open batch of the group. Null is allowed. Thread: group. */
void mlx5_srq_abandon(struct mlx5_srq *srq);

/* Posts receives as mlx5_rq_post() does, for the queue pairs that are attached, or for messages of XRC. The completion
 * names the queue pair that took the receive. Thread: group. Cost: data path. */
enum mlx5_status mlx5_srq_post(struct mlx5_srq *srq, const struct mlx5_receive *receives, uint32_t count,
			       uint32_t *posted);

/* Returns how many receives may be outstanding; 0 for an error. Thread: group. */
uint32_t mlx5_srq_capacity(struct mlx5_srq *srq);

/* Returns the shared receive queue; null for null. Thread: any. */
struct ibv_srq *mlx5_srq_ibv(const struct mlx5_srq *srq);

/* ---- Packets ------------------------------------------------------------------------------------ */

/* mlx5_packet.flags */
enum {
	MLX5_PACKET_IPV4 = 1,
	MLX5_PACKET_IPV6 = 2,
	MLX5_PACKET_IP_OK = 4,  /* the IP header is right, with its checksum if it has one */
	MLX5_PACKET_TCP = 8,
	MLX5_PACKET_UDP = 16,
	MLX5_PACKET_L4_OK = 32, /* the checksum of TCP or UDP is right */
	MLX5_PACKET_VLAN = 64,  /* the device has taken a VLAN tag out, if the queue pair was made so */
	MLX5_PACKET_LAST = 128  /* no other packet comes to the memory of the receive: it is the program's again */
};

/* A packet that has arrived in the memory of a receive, or a receive that failed. Of a striding queue also with byte_len
 * 0 and MLX5_PACKET_LAST: the last strides of the receive stay empty. A failure without MLX5_PACKET_LAST is of no
 * receive: the queue is not as it was taken over, and its id means nothing. */
struct mlx5_packet {
	uint64_t id;          /* of the receive */
	uint64_t timestamp;   /* when it came: a count of the device's clock */
	uint32_t status;      /* enum ibv_wc_status: 0 is success */
	uint32_t byte_len;    /* without the checksum at its end */
	uint32_t flow_tag;    /* of the flow that led it here (IBV_FLOW_SPEC_ACTION_TAG) */
	uint32_t hash;        /* by which packets are spread over queues */
	uint16_t vlan;        /* MLX5_PACKET_VLAN: the tag */
	uint16_t checksum;    /* ones' complement sum of the bytes after the Ethernet header */
	uint8_t flags;        /* MLX5_PACKET_IPV4, ... */
	uint8_t vendor_error; /* failures: vendor syndrome */
	uint16_t wqe_index;   /* failures: index of the WQE in its ring */
	uint32_t offset;      /* where the packet begins in the memory of the receive; 0 but of a striding queue */
	uint32_t reserved;
};

/* Takes the receive queue of a queue pair of IBV_QPT_RAW_PACKET over, with the completion queue of its receives, on
 * which nothing else completes. It is a group of its own: its functions may run beside those of other handles.
 *
 * receives: how many may be outstanding, at most as many as the queue and the completion queue hold; 0: as many.
 *
 * Checked: the type of the queue pair (MLX5_STATUS_NOT_ON_TRANSPORT); it is in RTR or RTS (MLX5_STATUS_WRONG_STATE); it
 * has a receive queue of its own (MLX5_STATUS_NO_QUEUE); this process has taken over neither already
 * (MLX5_STATUS_IN_USE); no event waits on a channel that the completion queue has alone (MLX5_STATUS_NOT_IDLE).
 *
 * Not checked, the caller guarantees:
 * - No receive that was posted before is outstanding.
 * - No other queue completes on the completion queue: its send queue has another one.
 * - Until the handle is ended, qp is alive, and nothing else posts receives to it, polls or arms the completion queue.
 *   qp is not moved to RESET.
 *
 * Ownership: *taken belongs to the caller, who ends it by mlx5_packets_abandon() before qp is destroyed. Thread: any; no
 * other thread may use qp. Cost: system calls, allocates. */
enum mlx5_status mlx5_packets_take(struct ibv_qp *qp, uint32_t receives, struct mlx5_packets **taken);

/* Takes a striding receive queue over, which mlx5dv_create_wq() made with these attributes, with its completion
 * queue. It is a group of its own. Each receive takes many packets: a packet takes as many strides of its memory as
 * it needs.
 *
 * All functions below take the handle. A receive has one entry of at least strides per WQE x bytes per stride, of
 * which so many are used. It completes by the packet, or failure, with MLX5_PACKET_LAST.
 *
 * So many entries of the completion queue are reserved as all receives have strides. If it has fewer, fewer receives
 * may be outstanding.
 *
 * Checked: wq is of libmlx5 (MLX5_STATUS_NOT_MLX5); this process has taken over neither already (MLX5_STATUS_IN_USE);
 * the sizes are ones that devices have (MLX5_STATUS_INVALID_ARGUMENT); the completion queue has an entry for each stride of a
 * receive (MLX5_STATUS_CQ_TOO_SMALL); no event waits on a channel that the completion queue has alone
 * (MLX5_STATUS_NOT_IDLE). Where the context may give firmware commands also: wq is striding (MLX5_STATUS_WRONG_KIND),
 * was made with these attributes (MLX5_STATUS_INVALID_ARGUMENT), and is in the state IBV_WQS_RDY
 * (MLX5_STATUS_WRONG_STATE).
 *
 * Not checked, the caller guarantees:
 * - No receive is outstanding. Without these commands also: wq is striding, was made with these attributes, and is in
 *   the state IBV_WQS_RDY.
 * - No other queue completes on the completion queue.
 * - Until the handle is ended, wq is alive, and nothing else posts receives to it, polls or arms the completion
 *   queue. wq is not moved to IBV_WQS_RESET.
 *
 * Ownership: *taken belongs to the caller, who ends it by mlx5_packets_abandon() before wq is destroyed. Thread: any;
 * no other thread may use wq. Cost: system calls, allocates. */
enum mlx5_status mlx5_packets_take_striding(struct ibv_wq *wq, const struct mlx5dv_striding_rq_init_attr *attributes,
					    struct mlx5_packets **taken);

/* Ends the handle. The memory of outstanding receives is the device's until qp or wq is destroyed or moved to RESET. Null
 * is allowed. Thread: group. */
void mlx5_packets_abandon(struct mlx5_packets *packets);

/* Posts receives as mlx5_rq_post() does. A packet that is longer than its receive fails it.
 *
 * Of a striding queue: until the packet with MLX5_PACKET_LAST, the program reads the memory only where packets were
 * reported. MLX5_STATUS_TOO_MANY_SGES: more than one entry. MLX5_STATUS_INVALID_ARGUMENT: it is too short.
 * Thread: group. Cost: data path. */
enum mlx5_status mlx5_packets_post(struct mlx5_packets *packets, const struct mlx5_receive *receives, uint32_t count,
				   uint32_t *posted);

/* Writes up to capacity packets to the array. Returns how many; 0: there is none now. Negative: the enum mlx5_status is
 * the number without its sign, see mlx5_cq_poll(). A receive that failed is no error of the poll: it has a status.
 * Packets that find no receive are dropped, and counted in the port's out_of_buffer. Thread: group. Cost: data path. */
int mlx5_packets_poll(struct mlx5_packets *packets, struct mlx5_packet *taken, uint32_t capacity);

/* Requests an event at the next packet: mlx5_cq_arm(). Thread: group. Cost: data path, two stores with fences. */
enum mlx5_status mlx5_packets_arm(struct mlx5_packets *packets);

/* Waits for the event, takes and acknowledges it: mlx5_cq_wait(). Thread: group. Cost: system calls. */
enum mlx5_status mlx5_packets_wait(struct mlx5_packets *packets, int timeout_ms);

/* Returns the descriptor of the completion channel, or -1: mlx5_cq_fd(). Thread: group. */
int mlx5_packets_fd(struct mlx5_packets *packets);

/* Counts an event that the program took by ibv_get_cq_event(): mlx5_cq_event_taken(). Thread: group. */
enum mlx5_status mlx5_packets_event_taken(struct mlx5_packets *packets);

/* Returns how many receives may be outstanding; 0 for an error. Thread: group. */
uint32_t mlx5_packets_capacity(struct mlx5_packets *packets);

/* Returns the queue pair; null for null, and of a striding queue. Thread: any. */
struct ibv_qp *mlx5_packets_ibv(const struct mlx5_packets *packets);

#ifdef __cplusplus
}
#endif

#endif
