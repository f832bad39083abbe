/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A send queue that an engine posts to: a GPU, another processor, or a thread without libibverbs.
 *
 * For CUDA, HIP, C11 and C++17. The host makes a queue pair and a completion queue that no other queue has, and passes
 * struct mlx5_engine_handles. All addresses are those under which the engine reaches the memory. The completion queue is
 * best collapsed: then it has one CQE, which every completion overwrites, and the engine stores no consumer index.
 *
 * The engine stores to the ring, to the send word of the doorbell record (the second of its two words), to the doorbell
 * register, to the first word of the completion queue's record unless that is collapsed, and to nothing else. It keeps
 * the order of mlx5_engine_ring() and mlx5_engine_completed(). It has no more requests outstanding than the ring has
 * blocks, and, unless it is collapsed, the completion queue has CQEs. One thread at a time uses the state.
 */
#ifndef MLX5_ENGINE_H
#define MLX5_ENGINE_H

#include "mlx5_wqe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the queues are. The host fills it. */
struct mlx5_engine_handles {
	uint64_t ring;           /* address of the send ring */
	uint64_t record;         /* address of the doorbell record: the receive word, then the send word */
	uint64_t doorbell;       /* address of the doorbell register */
	uint64_t cqes;           /* address of the CQEs */
	uint64_t cq_record;      /* address of the completion queue's record: the consumer index, then the arm word */
	uint32_t ring_bytes;     /* a power of two */
	uint32_t doorbell_half;  /* bytes from one half of the register to the other; 0: it has one */
	uint32_t cqe_bytes;      /* 64 or 128 */
	uint32_t cqe_count;      /* a power of two; 1: collapsed */
	uint32_t qpn;
	uint32_t producer_index; /* blocks that were posted before */
	uint32_t consumer_index; /* CQEs that were polled before */
	uint32_t reserved;
};

/* The engine's state of its queues. */
struct mlx5_engine_queue {
	uint8_t *ring;
	uint8_t *record;
	uint8_t *doorbell;     /* the half for the next store */
	const uint8_t *cqes;   /* the last 64 bytes of the first */
	uint8_t *cq_record;
	uint64_t qpn;          /* of mlx5_wqe_qpn() */
	uint64_t flip;
	uint32_t mask;         /* blocks of the ring - 1 */
	uint32_t pi;           /* blocks that were written */
	uint32_t first;        /* producer index at the start */
	uint32_t completed;    /* blocks, since the start */
	uint32_t cqe_count;
	uint32_t cqe_shift;
	uint32_t ci;           /* CQEs that were read */
};

/* What mlx5_engine_completed() returns if a request failed. */
#define MLX5_ENGINE_FAILED UINT32_MAX

/* Returns whether a number is a power of two. */
MLX5_FN int mlx5_engine_is_power(uint32_t number) { return number != 0 && (number & (number - 1)) == 0; }

/* Initializes the state. Returns 0, or -1: a size is impossible, or the CQE of a collapsed completion queue was not
 * initialized (its opcode is 15 until the first completion). */
MLX5_FN int mlx5_engine_queue_init(struct mlx5_engine_queue *queue, const struct mlx5_engine_handles *handles)
{
	if (handles->ring_bytes < MLX5_WQE_BLOCK || !mlx5_engine_is_power(handles->ring_bytes) ||
	    !mlx5_engine_is_power(handles->cqe_count) || (handles->cqe_bytes != 64 && handles->cqe_bytes != 128))
		return -1;
	queue->ring = (uint8_t *)(uintptr_t)handles->ring;
	queue->record = (uint8_t *)(uintptr_t)handles->record + 4;
	queue->doorbell = (uint8_t *)(uintptr_t)handles->doorbell;
	queue->cqes = (const uint8_t *)(uintptr_t)handles->cqes + handles->cqe_bytes - 64;
	queue->cq_record = (uint8_t *)(uintptr_t)handles->cq_record;
	queue->qpn = mlx5_wqe_qpn(handles->qpn);
	queue->flip = handles->doorbell ^ (handles->doorbell + handles->doorbell_half);
	queue->mask = handles->ring_bytes / MLX5_WQE_BLOCK - 1;
	queue->pi = handles->producer_index;
	queue->first = handles->producer_index;
	queue->completed = 0;
	queue->cqe_count = handles->cqe_count;
	queue->cqe_shift = handles->cqe_bytes == 64 ? 6 : 7;
	queue->ci = handles->consumer_index;
	return queue->cqe_count > 1 || mlx5_cqe_opcode(queue->cqes) == MLX5_CQE_OP_NONE ? 0 : -1;
}

/* Writes a WRITE to the ring. flags: MLX5_SIGNALED (1), MLX5_FENCED (2) of mlx5.h. The caller has room for a block. */
MLX5_FN void mlx5_engine_put_write(struct mlx5_engine_queue *queue, uint64_t address, uint32_t lkey, uint32_t length,
				   uint64_t remote_address, uint32_t rkey, uint32_t flags)
{
	uint8_t *to = queue->ring + (uint64_t)(queue->pi & queue->mask) * MLX5_WQE_BLOCK;
	mlx5_store64(to, mlx5_wqe_control(MLX5_WQE_WRITE, queue->pi, queue->qpn, length != 0 ? 3 : 2));
	mlx5_store64(to + 8, mlx5_wqe_control_flags(flags, 0));
	mlx5_store64(to + 16, mlx5_swap64(remote_address));
	mlx5_store64(to + 24, mlx5_wqe_remote_key(rkey));
	mlx5_store64(to + 32, mlx5_wqe_data(length, lkey));
	mlx5_store64(to + 40, mlx5_swap64(address));
	queue->pi++;
}

/* Writes a fetch and add of 8 bytes to the ring: what tells the peer that the WRITEs before it are there. old: where the
 * value before it goes. The caller has room for a block. */
MLX5_FN void mlx5_engine_put_add(struct mlx5_engine_queue *queue, uint64_t old, uint32_t lkey,
				 uint64_t remote_address, uint32_t rkey, uint64_t add, uint32_t flags)
{
	uint8_t *to = queue->ring + (uint64_t)(queue->pi & queue->mask) * MLX5_WQE_BLOCK;
	mlx5_store64(to, mlx5_wqe_control(MLX5_WQE_FETCH_ADD, queue->pi, queue->qpn, 4));
	mlx5_store64(to + 8, mlx5_wqe_control_flags(flags, 0));
	mlx5_store64(to + 16, mlx5_swap64(remote_address));
	mlx5_store64(to + 24, mlx5_wqe_remote_key(rkey));
	mlx5_store64(to + 32, mlx5_swap64(add));
	mlx5_store64(to + 40, 0);
	mlx5_store64(to + 48, mlx5_wqe_data(8, lkey));
	mlx5_store64(to + 56, mlx5_swap64(old));
	queue->pi++;
}

/* Posts the WQEs that were written, of which the last is one block. The order is the HCA's contract: WQEs, record,
 * register. */
MLX5_FN void mlx5_engine_ring(struct mlx5_engine_queue *queue)
{
	const uint8_t *last = queue->ring + (uint64_t)((queue->pi - 1) & queue->mask) * MLX5_WQE_BLOCK;
	uint64_t control = mlx5_load64(last);
	mlx5_fence_wqe_then_record();
	mlx5_store32(queue->record, mlx5_swap32(queue->pi & 0xffff));
	mlx5_fence_record_then_register();
	mlx5_store64(queue->doorbell, control);
	mlx5_fence_flush_register();
	queue->doorbell = (uint8_t *)((uintptr_t)queue->doorbell ^ (uintptr_t)queue->flip);
}

/* Returns how many blocks are complete, counted from the start, modulo 2^16; only signaled requests show that they are.
 * MLX5_ENGINE_FAILED: a request failed, and all after it. The host reads the CQE to say why. */
MLX5_FN uint32_t mlx5_engine_completed(struct mlx5_engine_queue *queue)
{
	uint32_t collapsed = queue->cqe_count == 1, ci = queue->ci;
	for (;;) {
		const uint8_t *cqe = queue->cqes + ((uint64_t)(ci & (queue->cqe_count - 1)) << queue->cqe_shift);
		/* One load: a collapsed CQE is overwritten at any time. Its last word has index, opcode and owner. */
		uint32_t last = mlx5_load32(cqe + 60), opcode = last >> 28;
		uint32_t lap = (ci & queue->cqe_count) != 0;
		if (opcode == MLX5_CQE_OP_NONE || (!collapsed && (last >> 24 & 1) != lap))
			break;
		if (opcode == MLX5_CQE_OP_REQUEST_ERROR)
			return MLX5_ENGINE_FAILED;
		mlx5_fence_owner_then_cqe();
		queue->completed = (mlx5_swap16((uint16_t)last) + 1u - queue->first) & 0xffff;
		if (collapsed)
			break;
		ci++;
	}
	if (ci != queue->ci) {
		queue->ci = ci;
		mlx5_fence_cqe_then_record();
		mlx5_store32(queue->cq_record, mlx5_swap32(ci & 0xffffff));
	}
	return queue->completed;
}

#ifdef _MLX5DV_H_
/* For a host that includes <infiniband/mlx5dv.h> first: handles of objects of libibverbs, from mlx5dv_init_obj(). The
 * queue pair is in RTS, nothing of it is outstanding, nothing else uses its send queue and its register, and the
 * completion queue has no other queue, and compresses nothing. */
static inline void mlx5_engine_handles_init(struct mlx5_engine_handles *handles, const struct mlx5dv_qp *qp,
					    const struct mlx5dv_cq *cq, uint32_t qpn)
{
	memset(handles, 0, sizeof(*handles));
	handles->ring = (uint64_t)(uintptr_t)qp->sq.buf;
	handles->record = (uint64_t)(uintptr_t)qp->dbrec;
	handles->doorbell = (uint64_t)(uintptr_t)qp->bf.reg;
	handles->cqes = (uint64_t)(uintptr_t)cq->buf;
	handles->cq_record = (uint64_t)(uintptr_t)cq->dbrec;
	handles->ring_bytes = qp->sq.wqe_cnt * MLX5_WQE_BLOCK;
	handles->doorbell_half = qp->bf.size;
	handles->cqe_bytes = cq->cqe_size;
	handles->cqe_count = cq->cqe_cnt;
	handles->qpn = qpn;
	handles->producer_index = mlx5_swap32(mlx5_load32((uint8_t *)qp->dbrec + 4)) & 0xffff;
	handles->consumer_index = mlx5_swap32(mlx5_load32(cq->dbrec)) & 0xffffff;
}
#endif

#ifdef __cplusplus
}
#endif

#endif
