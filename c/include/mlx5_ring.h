/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The calls that a data path makes most, inlined: WRITE, SEND and Ethernet packets, short and by pointer, receives,
 * prepared WQEs, polls.
 *
 * A program makes and connects its objects by libibverbs, and initializes these structures from what
 * mlx5dv_init_obj() says of them. It links libibverbs and libmlx5, and no library of this project. Everything else is
 * mlx5.h's: other operations and transports, batches, events, checks of the take-over, texts of errors.
 * A queue is posted to by one of the two at a time, and may be taken over by the other when it is idle.
 *
 * Threads. At most one thread at a time uses a structure. None is locked.
 *
 * Errors. A function that posts returns an enum mlx5_status of mlx5.h, and has done nothing unless it is
 * MLX5_STATUS_OK.
 *
 * Cost. No function but those that initialize and end makes a call. Each post is, in this order: stores to the ring, a
 * store to the doorbell record, a fence, stores to the register, a fence.
 */
#ifndef MLX5_RING_H
#define MLX5_RING_H

#include <stdlib.h>

#include <infiniband/mlx5dv.h>

#include "mlx5.h"
#include "mlx5_wqe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is outstanding in a block of a send ring, or in a WQE of a receive ring. */
struct mlx5_ring_slot {
	uint64_t id;
	union {
		uint64_t address; /* receives: where the message goes */
		uint32_t pi;      /* requests: the producer index after it */
	} after;
};

/* A send queue of RC, of UC, or of packets. */
struct mlx5_ring_sq {
	uint8_t *start;   /* of the ring */
	uint32_t mask;    /* blocks of the ring, a power of two, minus 1 */
	uint32_t pi;      /* producer index, in blocks */
	uint32_t ci;      /* consumer index, in blocks */
	uint32_t limit;   /* blocks that may be outstanding; 0: a request failed */
	uint32_t buffer;  /* bytes of a WQE that the register takes; 0: it only rings */
	uint64_t qpn;     /* of mlx5_wqe_qpn() */
	uint8_t *record;  /* the send word of the doorbell record */
	uint8_t *half;    /* the half of the register for the next store */
	uintptr_t flip;   /* exclusive or of the addresses of both halves */
	struct mlx5_ring_slot *slots; /* one for each block */
};

/* A receive queue of its own, of WQEs with one entry. */
struct mlx5_ring_rq {
	uint8_t *start;
	uint32_t count;   /* of WQEs, a power of two */
	uint32_t stride;  /* bytes of a WQE */
	uint32_t pi;      /* in WQEs */
	uint32_t ci;
	uint32_t limit;   /* WQEs that may be outstanding */
	uint8_t *record;
	struct mlx5_ring_slot *slots;
};

/* A completion queue. */
struct mlx5_ring_cq {
	uint8_t *start;   /* of the last 64 bytes of the first CQE */
	uint32_t count;   /* of CQEs, a power of two */
	uint32_t shift;   /* of the size of a CQE */
	uint32_t ci;
	uint8_t *record;
};

/* ---- Initialization ----------------------------------------------------------------------------- */

/* Initializes a completion queue from mlx5dv_init_obj(). Polls continue where the last ones stopped.
 *
 * The caller guarantees: until the last poll, the CQ is alive and not resized, and nothing else polls it. It was made
 * without compression of CQEs. Returns MLX5_STATUS_INVALID_ARGUMENT if sizes are not those of a CQ. */
static inline enum mlx5_status mlx5_ring_cq_init(struct mlx5_ring_cq *cq, const struct mlx5dv_cq *dv)
{
	if ((dv->cqe_size != 64 && dv->cqe_size != 128) || dv->cqe_cnt == 0 ||
	    (dv->cqe_cnt & (dv->cqe_cnt - 1)) != 0)
		return MLX5_STATUS_INVALID_ARGUMENT;
	cq->start = (uint8_t *)dv->buf + dv->cqe_size - 64;
	cq->count = dv->cqe_cnt;
	cq->shift = dv->cqe_size == 64 ? 6 : 7;
	cq->record = (uint8_t *)dv->dbrec;
	cq->ci = mlx5_swap32(mlx5_load32(cq->record)) & 0xffffff;
	return MLX5_STATUS_OK;
}

/* Initializes a send queue from mlx5dv_init_obj(). Posts continue where libmlx5 stopped.
 *
 * requests: blocks of 64 bytes that may be outstanding, at least 2; 0: as many as the ring has. A request takes a block,
 * or more if it has more than 28 inline bytes (WRITE) or 44 (SEND).
 * flags: MLX5_SQ_OWN_REGISTER: WQEs of up to 256 bytes are copied to the BlueFlame register.
 *
 * The caller guarantees:
 * - The queue pair is of RC, UC or IBV_QPT_RAW_PACKET, in RTS, and no request of it is outstanding.
 * - Its CQ keeps that many entries free for it: a queue that fails completes every request.
 * - Until mlx5_ring_sq_end(), nothing else posts sends to it.
 * - With MLX5_SQ_OWN_REGISTER, no other queue stores to its register (a thread domain).
 *
 * Returns MLX5_STATUS_INVALID_ARGUMENT, MLX5_STATUS_NO_QUEUE (it has no send queue), or MLX5_STATUS_CALL_FAILED
 * (no memory). */
static inline enum mlx5_status mlx5_ring_sq_init(struct mlx5_ring_sq *sq, const struct mlx5dv_qp *dv,
						 uint32_t qpn, uint32_t requests, uint32_t flags)
{
	uint32_t blocks = dv->sq.wqe_cnt;
	if (blocks == 0)
		return MLX5_STATUS_NO_QUEUE;
	if ((blocks & (blocks - 1)) != 0 || requests == 1 || (flags & ~(uint32_t)MLX5_SQ_OWN_REGISTER) != 0)
		return MLX5_STATUS_INVALID_ARGUMENT;
	sq->slots = (struct mlx5_ring_slot *)calloc(blocks, sizeof(*sq->slots));
	if (sq->slots == NULL)
		return MLX5_STATUS_CALL_FAILED;
	sq->start = (uint8_t *)dv->sq.buf;
	sq->mask = blocks - 1;
	sq->limit = requests == 0 || requests > blocks ? blocks : requests;
	sq->qpn = mlx5_wqe_qpn(qpn);
	sq->buffer = (flags & MLX5_SQ_OWN_REGISTER) != 0 ? dv->bf.size : 0;
	sq->record = (uint8_t *)dv->dbrec + 4;
	sq->half = (uint8_t *)dv->bf.reg;
	sq->flip = (uintptr_t)sq->half ^ ((uintptr_t)sq->half + dv->bf.size);
	sq->pi = mlx5_swap32(mlx5_load32(sq->record)) & 0xffff;
	sq->ci = sq->pi;
	return MLX5_STATUS_OK;
}

/* Initializes a receive queue from mlx5dv_init_obj(). receives: how many may be outstanding; 0: as many as the ring has.
 *
 * The caller guarantees:
 * - No receive of it is outstanding. It is best initialized in INIT.
 * - Its CQ keeps that many entries free for it.
 * - Until mlx5_ring_rq_end(), nothing else posts receives to it.
 *
 * Returns MLX5_STATUS_INVALID_ARGUMENT, MLX5_STATUS_NO_QUEUE, or MLX5_STATUS_CALL_FAILED (no memory). */
static inline enum mlx5_status mlx5_ring_rq_init(struct mlx5_ring_rq *rq, const struct mlx5dv_qp *dv,
						 uint32_t receives)
{
	uint32_t count = dv->rq.wqe_cnt;
	if (count == 0)
		return MLX5_STATUS_NO_QUEUE;
	if ((count & (count - 1)) != 0 || dv->rq.stride < MLX5_WQE_UNIT)
		return MLX5_STATUS_INVALID_ARGUMENT;
	rq->slots = (struct mlx5_ring_slot *)calloc(count, sizeof(*rq->slots));
	if (rq->slots == NULL)
		return MLX5_STATUS_CALL_FAILED;
	rq->start = (uint8_t *)dv->rq.buf;
	rq->count = count;
	rq->stride = dv->rq.stride;
	rq->limit = receives == 0 || receives > count ? count : receives;
	rq->record = (uint8_t *)dv->dbrec;
	rq->pi = mlx5_swap32(mlx5_load32(rq->record)) & 0xffff;
	rq->ci = rq->pi;
	return MLX5_STATUS_OK;
}

/* Ends the use of a send queue. Its queue pair goes on if nothing is outstanding. */
static inline void mlx5_ring_sq_end(struct mlx5_ring_sq *sq)
{
	free(sq->slots);
	sq->slots = NULL;
	sq->limit = 0;
}

/* Ends the use of a receive queue. */
static inline void mlx5_ring_rq_end(struct mlx5_ring_rq *rq)
{
	free(rq->slots);
	rq->slots = NULL;
	rq->limit = 0;
}

/* Returns the blocks or receives that are outstanding. */
MLX5_FN uint32_t mlx5_ring_sq_outstanding(const struct mlx5_ring_sq *sq) { return sq->pi - sq->ci; }
MLX5_FN uint32_t mlx5_ring_rq_outstanding(const struct mlx5_ring_rq *rq) { return rq->pi - rq->ci; }

/* ---- Posts -------------------------------------------------------------------------------------- */

/* Where a block of a send ring begins. */
MLX5_FN uint8_t *mlx5_ring_block(const struct mlx5_ring_sq *sq, uint32_t index)
{
	return sq->start + (size_t)(index & sq->mask) * MLX5_WQE_BLOCK;
}

/* Returns whether a WQE of so many blocks may be posted. The last block is kept for a signaled request: without one,
 * nothing would ever be retired. */
MLX5_FN enum mlx5_status mlx5_ring_room(const struct mlx5_ring_sq *sq, uint32_t blocks, uint32_t flags)
{
	uint32_t needed = sq->pi - sq->ci + blocks + ((flags & MLX5_SIGNALED) == 0);
	if (__builtin_expect(needed <= sq->limit, 1))
		return MLX5_STATUS_OK;
	return sq->limit == 0 ? MLX5_STATUS_QUEUE_STOPPED : MLX5_STATUS_QUEUE_FULL;
}

/* The steps of a post before the register, and those after it. The WQE is in the ring. */
MLX5_FN void mlx5_ring_announce(struct mlx5_ring_sq *sq, uint64_t id, uint32_t blocks)
{
	uint32_t pi = sq->pi + blocks;
	struct mlx5_ring_slot *slot = &sq->slots[sq->pi & sq->mask];
	slot->id = id;
	slot->after.pi = pi;
	sq->pi = pi;
	mlx5_fence_wqe_then_record();
	mlx5_store32(sq->record, mlx5_swap32(pi & 0xffff));
	mlx5_fence_record_then_register();
}

MLX5_FN void mlx5_ring_finish(struct mlx5_ring_sq *sq)
{
	mlx5_fence_flush_register();
	sq->half = (uint8_t *)((uintptr_t)sq->half ^ sq->flip);
}

/* Posts the WQE of one block that has these words, of which the first so many are its own. */
MLX5_FN void mlx5_ring_post_block(struct mlx5_ring_sq *sq, uint64_t id, uint32_t words, uint64_t w0, uint64_t w1,
				  uint64_t w2, uint64_t w3, uint64_t w4, uint64_t w5, uint64_t w6, uint64_t w7)
{
	uint8_t *to = mlx5_ring_block(sq, sq->pi);
	int copies = words > 2 && sq->buffer >= MLX5_WQE_BLOCK;
#define MLX5_RING_STORE(at) do { if (words > at) mlx5_store64(to + 8 * at, w##at); } while (0)
	MLX5_RING_STORE(0); MLX5_RING_STORE(1); MLX5_RING_STORE(2); MLX5_RING_STORE(3);
	MLX5_RING_STORE(4); MLX5_RING_STORE(5); MLX5_RING_STORE(6); MLX5_RING_STORE(7);
	mlx5_ring_announce(sq, id, 1);
	to = sq->half;
	mlx5_store64(to, w0);
	if (__builtin_expect(copies, 1)) {
		words = 8;
		MLX5_RING_STORE(1); MLX5_RING_STORE(2); MLX5_RING_STORE(3); MLX5_RING_STORE(4);
		MLX5_RING_STORE(5); MLX5_RING_STORE(6); MLX5_RING_STORE(7);
	}
#undef MLX5_RING_STORE
	mlx5_ring_finish(sq);
}

/* Writes 8 words to a block of the ring, or to the register. */
MLX5_FN void mlx5_ring_put_block(uint8_t *to, uint64_t w0, uint64_t w1, uint64_t w2, uint64_t w3, uint64_t w4,
				 uint64_t w5, uint64_t w6, uint64_t w7)
{
	mlx5_store64(to, w0);
	mlx5_store64(to + 8, w1);
	mlx5_store64(to + 16, w2);
	mlx5_store64(to + 24, w3);
	mlx5_store64(to + 32, w4);
	mlx5_store64(to + 40, w5);
	mlx5_store64(to + 48, w6);
	mlx5_store64(to + 56, w7);
}

/* Posts the WQE of several blocks that is in the ring at the producer index. size: in units. */
MLX5_FN void mlx5_ring_post_blocks(struct mlx5_ring_sq *sq, uint64_t id, uint32_t size)
{
	uint32_t blocks = (size + 3) / 4, index = sq->pi, block;
	mlx5_ring_announce(sq, id, blocks);
	if (size * MLX5_WQE_UNIT > sq->buffer) {
		mlx5_store64(sq->half, mlx5_load64(mlx5_ring_block(sq, index)));
	} else {
		for (block = 0; block < blocks; block++) {
			const uint8_t *from = mlx5_ring_block(sq, index + block);
			mlx5_ring_put_block(sq->half + block * MLX5_WQE_BLOCK, mlx5_load64(from), mlx5_load64(from + 8),
					    mlx5_load64(from + 16), mlx5_load64(from + 24), mlx5_load64(from + 32),
					    mlx5_load64(from + 40), mlx5_load64(from + 48), mlx5_load64(from + 56));
		}
	}
	mlx5_ring_finish(sq);
}

/* Posts the WQE whose first block is in the ring, and whose payload goes on with the bytes from offset. */
MLX5_FN void mlx5_ring_post_rest(struct mlx5_ring_sq *sq, uint64_t id, uint32_t size, const void *data,
				 uint32_t length, uint32_t offset)
{
	uint32_t block = 1;
	for (; offset < length; offset += MLX5_WQE_BLOCK, block++)
		mlx5_ring_put_block(mlx5_ring_block(sq, sq->pi + block), mlx5_wqe_piece(data, length, offset),
				    mlx5_wqe_piece(data, length, offset + 8), mlx5_wqe_piece(data, length, offset + 16),
				    mlx5_wqe_piece(data, length, offset + 24),
				    mlx5_wqe_piece(data, length, offset + 32),
				    mlx5_wqe_piece(data, length, offset + 40),
				    mlx5_wqe_piece(data, length, offset + 48),
				    mlx5_wqe_piece(data, length, offset + 56));
	mlx5_ring_post_blocks(sq, id, size);
}

/* The most inline bytes: the WQE has 256. */
enum {
	MLX5_RING_WRITE_INLINE = 220,
	MLX5_RING_PACKET_INLINE = 220,
	MLX5_RING_SEND_INLINE = 236
};

/* Posts a request whose payload is copied into the WQE, behind a segment of two words (WRITE, packet). */
MLX5_FN enum mlx5_status mlx5_ring_post_inline(struct mlx5_ring_sq *sq, uint64_t id, uint32_t opcode, uint64_t word2,
					       uint64_t word3, const void *data, uint32_t length, uint32_t flags)
{
	uint32_t size = 2 + mlx5_wqe_inline_size(length);
	uint64_t control = mlx5_wqe_control(opcode, sq->pi, sq->qpn, size), bits = mlx5_wqe_control_flags(flags, 0);
	enum mlx5_status status;
	if (length > MLX5_RING_WRITE_INLINE)
		return MLX5_STATUS_INLINE_TOO_LONG;
	status = mlx5_ring_room(sq, (size + 3) / 4, flags);
	if (status != MLX5_STATUS_OK)
		return status;
	if (length <= 28) {
		mlx5_ring_post_block(sq, id, 2 * size, control, bits, word2, word3, mlx5_wqe_inline(data, length),
				     mlx5_wqe_piece(data, length, 4), mlx5_wqe_piece(data, length, 12),
				     mlx5_wqe_piece(data, length, 20));
		return MLX5_STATUS_OK;
	}
	mlx5_ring_put_block(mlx5_ring_block(sq, sq->pi), control, bits, word2, word3, mlx5_wqe_inline(data, length),
			    mlx5_wqe_piece(data, length, 4), mlx5_wqe_piece(data, length, 12),
			    mlx5_wqe_piece(data, length, 20));
	mlx5_ring_post_rest(sq, id, size, data, length, 28);
	return MLX5_STATUS_OK;
}

/* Posts a WRITE whose payload is copied into the WQE. length: at most MLX5_RING_WRITE_INLINE. flags: MLX5_SIGNALED,
 * MLX5_FENCED. If length is a constant, the compiler leaves out what does not belong to it.
 *
 * MLX5_STATUS_QUEUE_FULL, MLX5_STATUS_QUEUE_STOPPED, MLX5_STATUS_INLINE_TOO_LONG. */
MLX5_FN enum mlx5_status mlx5_ring_write_inline(struct mlx5_ring_sq *sq, uint64_t id, const void *data,
						uint32_t length, uint64_t remote_addr, uint32_t rkey,
						uint32_t flags)
{
	return mlx5_ring_post_inline(sq, id, MLX5_WQE_WRITE, mlx5_swap64(remote_addr), mlx5_wqe_remote_key(rkey), data,
				     length, flags);
}

/* Posts an Ethernet packet that is copied into the WQE: addresses, type and payload, 1 to MLX5_RING_PACKET_INLINE bytes.
 * Of a queue pair of IBV_QPT_RAW_PACKET. flags: MLX5_SIGNALED, MLX5_CHECKSUMS. Errors: those of
 * mlx5_ring_write_inline(), and MLX5_STATUS_INVALID_ARGUMENT (no bytes). */
MLX5_FN enum mlx5_status mlx5_ring_packet_inline(struct mlx5_ring_sq *sq, uint64_t id, const void *data,
						 uint32_t length, uint32_t flags)
{
	if (length == 0)
		return MLX5_STATUS_INVALID_ARGUMENT;
	return mlx5_ring_post_inline(sq, id, MLX5_WQE_SEND, mlx5_wqe_ethernet(flags), 0, data, length, flags);
}

/* Posts a SEND whose payload is copied into the WQE. length: at most MLX5_RING_SEND_INLINE. flags: MLX5_SIGNALED,
 * MLX5_FENCED, MLX5_SOLICITED. Otherwise as mlx5_ring_write_inline(). */
MLX5_FN enum mlx5_status mlx5_ring_send_inline(struct mlx5_ring_sq *sq, uint64_t id, const void *data,
					       uint32_t length, uint32_t flags)
{
	uint32_t size = 1 + mlx5_wqe_inline_size(length);
	uint64_t control = mlx5_wqe_control(MLX5_WQE_SEND, sq->pi, sq->qpn, size);
	uint64_t bits = mlx5_wqe_control_flags(flags, 0);
	enum mlx5_status status;
	if (length > MLX5_RING_SEND_INLINE)
		return MLX5_STATUS_INLINE_TOO_LONG;
	status = mlx5_ring_room(sq, (size + 3) / 4, flags);
	if (status != MLX5_STATUS_OK)
		return status;
	if (length <= 44) {
		mlx5_ring_post_block(sq, id, 2 * size, control, bits, mlx5_wqe_inline(data, length),
				     mlx5_wqe_piece(data, length, 4), mlx5_wqe_piece(data, length, 12),
				     mlx5_wqe_piece(data, length, 20), mlx5_wqe_piece(data, length, 28),
				     mlx5_wqe_piece(data, length, 36));
		return MLX5_STATUS_OK;
	}
	mlx5_ring_put_block(mlx5_ring_block(sq, sq->pi), control, bits, mlx5_wqe_inline(data, length),
			    mlx5_wqe_piece(data, length, 4), mlx5_wqe_piece(data, length, 12),
			    mlx5_wqe_piece(data, length, 20), mlx5_wqe_piece(data, length, 28),
			    mlx5_wqe_piece(data, length, 36));
	mlx5_ring_post_rest(sq, id, size, data, length, 44);
	return MLX5_STATUS_OK;
}

/* Posts a WRITE of registered memory. length: at most 2^31 - 1. The memory stays registered until the request is
 * complete. flags: MLX5_SIGNALED, MLX5_FENCED.
 *
 * MLX5_STATUS_QUEUE_FULL, MLX5_STATUS_QUEUE_STOPPED, MLX5_STATUS_SGE_TOO_LONG. */
MLX5_FN enum mlx5_status mlx5_ring_write(struct mlx5_ring_sq *sq, uint64_t id, const struct ibv_sge *sge,
					 uint64_t remote_addr, uint32_t rkey, uint32_t flags)
{
	enum mlx5_status status = mlx5_ring_room(sq, 1, flags);
	uint32_t size;
	if (status != MLX5_STATUS_OK)
		return status;
	if (sge->length >> 31 != 0)
		return MLX5_STATUS_SGE_TOO_LONG;
	size = sge->length != 0 ? 3 : 2;
	mlx5_ring_post_block(sq, id, 2 * size, mlx5_wqe_control(MLX5_WQE_WRITE, sq->pi, sq->qpn, size),
			     mlx5_wqe_control_flags(flags, 0), mlx5_swap64(remote_addr), mlx5_wqe_remote_key(rkey),
			     mlx5_wqe_data(sge->length, sge->lkey), mlx5_swap64(sge->addr), 0, 0);
	return MLX5_STATUS_OK;
}

/* Posts an Ethernet packet of registered memory, of a queue pair of IBV_QPT_RAW_PACKET. flags: MLX5_SIGNALED,
 * MLX5_CHECKSUMS. Errors: those of mlx5_ring_write(), and MLX5_STATUS_INVALID_ARGUMENT (no bytes). */
MLX5_FN enum mlx5_status mlx5_ring_packet(struct mlx5_ring_sq *sq, uint64_t id, const struct ibv_sge *sge,
					  uint32_t flags)
{
	enum mlx5_status status = mlx5_ring_room(sq, 1, flags);
	if (status != MLX5_STATUS_OK)
		return status;
	if (sge->length == 0)
		return MLX5_STATUS_INVALID_ARGUMENT;
	if (sge->length >> 31 != 0)
		return MLX5_STATUS_SGE_TOO_LONG;
	mlx5_ring_post_block(sq, id, 6, mlx5_wqe_control(MLX5_WQE_SEND, sq->pi, sq->qpn, 3),
			     mlx5_wqe_control_flags(flags, 0), mlx5_wqe_ethernet(flags), 0,
			     mlx5_wqe_data(sge->length, sge->lkey), mlx5_swap64(sge->addr), 0, 0);
	return MLX5_STATUS_OK;
}

/* Posts a SEND of registered memory. flags: MLX5_SIGNALED, MLX5_FENCED, MLX5_SOLICITED. Otherwise as
 * mlx5_ring_write(). */
MLX5_FN enum mlx5_status mlx5_ring_send(struct mlx5_ring_sq *sq, uint64_t id, const struct ibv_sge *sge,
					uint32_t flags)
{
	enum mlx5_status status = mlx5_ring_room(sq, 1, flags);
	uint32_t size;
	if (status != MLX5_STATUS_OK)
		return status;
	if (sge->length >> 31 != 0)
		return MLX5_STATUS_SGE_TOO_LONG;
	size = sge->length != 0 ? 2 : 1;
	mlx5_ring_post_block(sq, id, 2 * size, mlx5_wqe_control(MLX5_WQE_SEND, sq->pi, sq->qpn, size),
			     mlx5_wqe_control_flags(flags, 0), mlx5_wqe_data(sge->length, sge->lkey),
			     mlx5_swap64(sge->addr), 0, 0, 0, 0);
	return MLX5_STATUS_OK;
}

/* Posts a NOP: a signaled one completes behind all requests before it. flags: MLX5_SIGNALED, MLX5_FENCED. */
MLX5_FN enum mlx5_status mlx5_ring_nop(struct mlx5_ring_sq *sq, uint64_t id, uint32_t flags)
{
	enum mlx5_status status = mlx5_ring_room(sq, 1, flags);
	if (status != MLX5_STATUS_OK)
		return status;
	mlx5_ring_post_block(sq, id, 2, mlx5_wqe_control(MLX5_WQE_NOP, sq->pi, sq->qpn, 1),
			     mlx5_wqe_control_flags(flags, 0), 0, 0, 0, 0, 0, 0);
	return MLX5_STATUS_OK;
}

/* ---- Prepared WQEs ------------------------------------------------------------------------------ */

/* A WRITE, SEND or packet with inline payload that is built ahead, in the program's own memory, and posted any number of
 * times. */
struct mlx5_ring_prepared {
	uint64_t words[32];
	uint32_t opcode;
	uint32_t size;    /* units */
	uint32_t flags;
	uint32_t data;    /* where the payload begins, in bytes */
	uint32_t length;  /* of the payload */
};

/* Changes 1 to 8 bytes of the payload, which are within it. Whole words are stored: a post loads words, and would wait
 * for narrower stores to leave the store buffer. */
MLX5_FN void mlx5_ring_prepared_put(struct mlx5_ring_prepared *prepared, uint32_t offset, uint64_t value,
				    uint32_t count)
{
	uint64_t *word = &prepared->words[(prepared->data + offset) / 8], mask = ~(uint64_t)0 >> (64 - 8 * count);
	/* A payload begins in the middle of a word. */
	uint32_t shift = (4 + offset) % 8 * 8;
	word[0] = (word[0] & ~(mask << shift)) | value << shift;
	if (shift + 8 * count > 64)
		word[1] = (word[1] & ~(mask >> (64 - shift))) | value >> (64 - shift);
}

/* Changes bytes of the payload. MLX5_STATUS_INVALID_ARGUMENT: they are not within it. */
MLX5_FN enum mlx5_status mlx5_ring_prepared_set(struct mlx5_ring_prepared *prepared, uint32_t offset,
						      const void *bytes, uint32_t length)
{
	uint32_t at;
	if (offset > prepared->length || length > prepared->length - offset)
		return MLX5_STATUS_INVALID_ARGUMENT;
	for (at = 0; at < length; at += 8)
		mlx5_ring_prepared_put(prepared, offset + at, mlx5_wqe_piece(bytes, length, at),
				       length - at < 8 ? length - at : 8);
	return MLX5_STATUS_OK;
}

/* Prepares a WQE with a payload that begins in the middle of a word. The words before that one are the caller's. */
static inline enum mlx5_status mlx5_ring_prepare(struct mlx5_ring_prepared *prepared, uint32_t opcode, uint32_t word,
						 const void *data, uint32_t length, uint32_t flags)
{
	if (length > sizeof(prepared->words) - 8 * word - 4)
		return MLX5_STATUS_INLINE_TOO_LONG;
	if (length == 0)
		return MLX5_STATUS_INVALID_ARGUMENT;
	memset(prepared, 0, sizeof(*prepared));
	prepared->opcode = opcode;
	prepared->size = word / 2 + mlx5_wqe_inline_size(length);
	prepared->flags = flags;
	prepared->data = 8 * word + 4;
	prepared->length = length;
	prepared->words[1] = mlx5_wqe_control_flags(flags, 0);
	prepared->words[word] = mlx5_wqe_inline(data, length);
	return mlx5_ring_prepared_set(prepared, 0, data, length);
}

/* Prepares a WRITE of 1 to MLX5_RING_WRITE_INLINE bytes. Nothing is posted. flags: MLX5_SIGNALED, MLX5_FENCED.
 * MLX5_STATUS_INLINE_TOO_LONG, MLX5_STATUS_INVALID_ARGUMENT (no bytes). */
static inline enum mlx5_status mlx5_ring_prepare_write(struct mlx5_ring_prepared *prepared,
						       const void *data, uint32_t length,
						       uint64_t remote_addr, uint32_t rkey, uint32_t flags)
{
	enum mlx5_status status = mlx5_ring_prepare(prepared, MLX5_WQE_WRITE, 4, data, length, flags);
	if (status == MLX5_STATUS_OK) {
		prepared->words[2] = mlx5_swap64(remote_addr);
		prepared->words[3] = mlx5_wqe_remote_key(rkey);
	}
	return status;
}

/* Prepares a SEND of 1 to MLX5_RING_SEND_INLINE bytes. Nothing is posted. flags: MLX5_SIGNALED, MLX5_FENCED,
 * MLX5_SOLICITED. Errors: those of mlx5_ring_prepare_write(). */
static inline enum mlx5_status mlx5_ring_prepare_send(struct mlx5_ring_prepared *prepared,
						      const void *data, uint32_t length, uint32_t flags)
{
	return mlx5_ring_prepare(prepared, MLX5_WQE_SEND, 2, data, length, flags);
}

/* Prepares an Ethernet packet of 1 to MLX5_RING_PACKET_INLINE bytes: an order for example, of which price and quantity
 * are set later. Nothing is posted. flags: MLX5_SIGNALED, MLX5_CHECKSUMS. Errors: those of mlx5_ring_prepare_write(). */
static inline enum mlx5_status mlx5_ring_prepare_packet(struct mlx5_ring_prepared *prepared,
							const void *data, uint32_t length, uint32_t flags)
{
	enum mlx5_status status = mlx5_ring_prepare(prepared, MLX5_WQE_SEND, 4, data, length, flags);
	if (status == MLX5_STATUS_OK)
		prepared->words[2] = mlx5_wqe_ethernet(flags);
	return status;
}

/* Posts a prepared WQE. MLX5_STATUS_QUEUE_FULL, MLX5_STATUS_QUEUE_STOPPED. */
MLX5_FN enum mlx5_status mlx5_ring_fire(struct mlx5_ring_sq *sq, uint64_t id,
					const struct mlx5_ring_prepared *prepared)
{
	const uint64_t *from = prepared->words;
	uint64_t control = mlx5_wqe_control(prepared->opcode, sq->pi, sq->qpn, prepared->size);
	uint32_t block;
	enum mlx5_status status = mlx5_ring_room(sq, (prepared->size + 3) / 4, prepared->flags);
	if (status != MLX5_STATUS_OK)
		return status;
	if (__builtin_expect(prepared->size <= 4, 1)) {
		mlx5_ring_post_block(sq, id, 8, control, from[1], from[2], from[3], from[4], from[5], from[6],
				     from[7]);
		return MLX5_STATUS_OK;
	}
	for (block = 0; 4 * block < prepared->size; block++, from += 8)
		mlx5_ring_put_block(mlx5_ring_block(sq, sq->pi + block), block == 0 ? control : from[0], from[1],
				    from[2], from[3], from[4], from[5], from[6], from[7]);
	mlx5_ring_post_blocks(sq, id, prepared->size);
	return MLX5_STATUS_OK;
}

/* ---- Receives ----------------------------------------------------------------------------------- */

/* Posts a receive into registered memory of this process. MLX5_STATUS_QUEUE_FULL, MLX5_STATUS_SGE_TOO_LONG. */
MLX5_FN enum mlx5_status mlx5_ring_receive(struct mlx5_ring_rq *rq, uint64_t id, const struct ibv_sge *sge)
{
	uint32_t at = rq->pi & (rq->count - 1);
	uint8_t *to = rq->start + (size_t)at * rq->stride;
	if (rq->pi - rq->ci >= rq->limit)
		return MLX5_STATUS_QUEUE_FULL;
	if (sge->length >> 31 != 0)
		return MLX5_STATUS_SGE_TOO_LONG;
	/* A WQE with room for more entries ends at an entry without memory, which has an invalid key. */
	if (sge->length != 0) {
		mlx5_store64(to, mlx5_wqe_data(sge->length, sge->lkey));
		mlx5_store64(to + 8, mlx5_swap64(sge->addr));
		to += MLX5_WQE_UNIT;
	}
	if (sge->length == 0 || rq->stride > MLX5_WQE_UNIT) {
		mlx5_store64(to, mlx5_wqe_data(0, 0x100));
		mlx5_store64(to + 8, 0);
	}
	rq->slots[at].id = id;
	rq->slots[at].after.address = sge->addr;
	rq->pi++;
	mlx5_fence_wqe_then_record();
	mlx5_store32(rq->record, mlx5_swap32(rq->pi & 0xffff));
	return MLX5_STATUS_OK;
}

/* ---- Polls -------------------------------------------------------------------------------------- */

/* The last 64 bytes of the CQE at the consumer index. */
MLX5_FN const uint8_t *mlx5_ring_cqe(const struct mlx5_ring_cq *cq)
{
	return cq->start + ((size_t)(cq->ci & (cq->count - 1)) << cq->shift);
}

/* Returns whether the CQE at the consumer index with this last word (index, opcode and owner) is the program's. */
MLX5_FN int mlx5_ring_is_new(const struct mlx5_ring_cq *cq, uint32_t last)
{
	uint32_t lap = (cq->ci & cq->count) != 0;
	return (last >> 24 & 1) == lap && last >> 28 != MLX5_CQE_OP_NONE;
}

/* Returns the oldest CQE that was not passed, or null. It is the program's until mlx5_ring_cq_pass().
 * mlx5_cqe_opcode(), mlx5_cqe_qpn() and others of mlx5_wqe.h read it. */
MLX5_FN const uint8_t *mlx5_ring_cq_peek(const struct mlx5_ring_cq *cq)
{
	const uint8_t *cqe = mlx5_ring_cqe(cq);
	if (!mlx5_ring_is_new(cq, mlx5_load32(cqe + 60)))
		return NULL;
	mlx5_fence_owner_then_cqe();
	return cqe;
}

/* Gives the CQE of mlx5_ring_cq_peek() back to the device. */
MLX5_FN void mlx5_ring_cq_pass(struct mlx5_ring_cq *cq)
{
	cq->ci++;
	mlx5_fence_cqe_then_record();
	mlx5_store32(cq->record, mlx5_swap32(cq->ci & 0xffffff));
}

/* Retires the request of the CQE with this last word: mlx5_ring_sq_retire(). */
MLX5_FN enum mlx5_status mlx5_ring_sq_retire_last(struct mlx5_ring_sq *sq, uint32_t last, uint64_t *id)
{
	const struct mlx5_ring_slot *slot = &sq->slots[mlx5_swap16((uint16_t)last) & sq->mask];
	uint32_t outstanding = sq->pi - sq->ci;
	if (__builtin_expect(slot->after.pi - sq->ci - 1 >= outstanding, 0))
		return MLX5_STATUS_CQ_FAILED;
	*id = slot->id;
	sq->ci = slot->after.pi;
	if (__builtin_expect(last >> 28 == MLX5_CQE_OP_REQUEST, 1))
		return MLX5_STATUS_OK;
	sq->limit = 0;
	return last >> 28 == MLX5_CQE_OP_REQUEST_ERROR ? MLX5_STATUS_QUEUE_STOPPED : MLX5_STATUS_CQ_FAILED;
}

/* Retires the request of a CQE of this queue pair, and the unsignaled ones before it. Writes its id.
 *
 * Returns MLX5_STATUS_OK, or MLX5_STATUS_QUEUE_STOPPED: the CQE has MLX5_CQE_OP_REQUEST_ERROR, and mlx5_cqe_syndrome()
 * says why. The queue takes no more, and the device completes each outstanding request with an error. Then the
 * queue pair goes through RESET, and the queue is initialized again.
 * MLX5_STATUS_CQ_FAILED: the CQE is of no outstanding request. */
MLX5_FN enum mlx5_status mlx5_ring_sq_retire(struct mlx5_ring_sq *sq, const uint8_t *cqe, uint64_t *id)
{
	return mlx5_ring_sq_retire_last(sq, mlx5_load32(cqe + 60), id);
}

/* Retires the receive of a CQE of this queue pair. Writes its id and the message's length. A short message that the
 * device put into the CQE is copied to the receive's memory.
 *
 * Returns MLX5_STATUS_OK, or MLX5_STATUS_QUEUE_STOPPED: the CQE has MLX5_CQE_OP_RECEIVE_ERROR. MLX5_STATUS_CQ_FAILED: the
 * CQE is of no outstanding receive. */
MLX5_FN enum mlx5_status mlx5_ring_rq_retire(struct mlx5_ring_rq *rq, const uint8_t *cqe, uint64_t *id,
					     uint32_t *length)
{
	uint32_t opcode = mlx5_cqe_opcode(cqe), format = mlx5_load8(cqe + 63) >> 2 & 3;
	uint32_t at = rq->ci & (rq->count - 1);
	const struct mlx5_ring_slot *slot = &rq->slots[at];
	if (__builtin_expect(rq->pi == rq->ci || (mlx5_cqe_wqe_index(cqe) & (rq->count - 1)) != at, 0))
		return MLX5_STATUS_CQ_FAILED;
	rq->ci++;
	*id = slot->id;
	*length = mlx5_cqe_byte_len(cqe);
	if (__builtin_expect(opcode - MLX5_CQE_OP_RECEIVE_FIRST > MLX5_CQE_OP_RECEIVE_LAST - MLX5_CQE_OP_RECEIVE_FIRST, 0)) {
		*length = 0;
		return opcode == MLX5_CQE_OP_RECEIVE_ERROR ? MLX5_STATUS_QUEUE_STOPPED : MLX5_STATUS_CQ_FAILED;
	}
	/* 32 bytes at the start of the last 64, or 64 bytes before them. */
	if (__builtin_expect(format != 0, 0)) {
		if (format == 3 || *length > 32 * format)
			return MLX5_STATUS_CQ_FAILED;
		memcpy((void *)(uintptr_t)slot->after.address, format == 1 ? cqe : cqe - 64, *length);
	}
	return MLX5_STATUS_OK;
}

/* Polls a CQ that only this send queue has. Returns 1 and an id: a request completed, and all before it. 0: there is no
 * CQE. Negative: an enum mlx5_status without its sign, of mlx5_ring_sq_retire(); for -MLX5_STATUS_QUEUE_STOPPED, the
 * id is written. */
MLX5_FN int mlx5_ring_poll(struct mlx5_ring_cq *cq, struct mlx5_ring_sq *sq, uint64_t *id)
{
	uint32_t last = mlx5_load32(mlx5_ring_cqe(cq) + 60);
	enum mlx5_status status;
	if (!mlx5_ring_is_new(cq, last))
		return 0;
	/* That word is all that is read. */
	status = mlx5_ring_sq_retire_last(sq, last, id);
	mlx5_ring_cq_pass(cq);
	return status == MLX5_STATUS_OK ? 1 : -(int)status;
}

#ifdef __cplusplus
}
#endif

#endif
