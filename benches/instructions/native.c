/* The loops of C: by mlx5_ring.h, and by libmlx5direct if LIBRARY is defined. */
#define _GNU_SOURCE
#include "mlx5_ring.h"

/* Makes the compiler forget what it knows of memory, as `forget` of side.rs does. */
#define FORGET(state) __asm__ volatile("" ::"r"(state) : "memory")

struct native {
	struct mlx5_ring_cq ring_cq;
	struct mlx5_ring_sq ring_sq;
	struct mlx5_ring_rq ring_rq;
	struct mlx5_cq *cq;
	struct mlx5_sq *sq;
	struct mlx5_rq *rq;
	struct ibv_sge sge;
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t length; /* of payloads whose length the compiler does not know */
	uint64_t sum;    /* of ids */
	struct mlx5_ring_prepared prepared;
};

#ifndef LIBRARY

struct native *native_new(struct ibv_qp *qp, struct ibv_cq *cq, const struct ibv_sge *sge, uint64_t remote_addr,
			  uint32_t rkey)
{
	struct mlx5dv_qp dv_qp = { 0 };
	struct mlx5dv_cq dv_cq = { 0 };
	struct mlx5dv_obj object = { .qp = { .in = qp, .out = &dv_qp }, .cq = { .in = cq, .out = &dv_cq } };
	struct native *made = calloc(1, sizeof(*made));
	uint64_t zero = 0;
	if (made == NULL || mlx5dv_init_obj(&object, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ) != 0 ||
	    mlx5_ring_cq_init(&made->ring_cq, &dv_cq) != MLX5_STATUS_OK ||
	    mlx5_ring_sq_init(&made->ring_sq, &dv_qp, qp->qp_num, 0, MLX5_SQ_OWN_REGISTER) != MLX5_STATUS_OK ||
	    mlx5_ring_rq_init(&made->ring_rq, &dv_qp, 0) != MLX5_STATUS_OK ||
	    mlx5_ring_prepare_write(&made->prepared, &zero, sizeof(zero), remote_addr, rkey, MLX5_SIGNALED) !=
		    MLX5_STATUS_OK)
		return NULL;
	made->sge = *sge;
	made->remote_addr = remote_addr;
	made->rkey = rkey;
	made->length = 8;
	return made;
}

void native_free(struct native *native)
{
	mlx5_ring_sq_end(&native->ring_sq);
	mlx5_ring_rq_end(&native->ring_rq);
	free(native);
}

/* A loop of inline WRITEs of a payload that begins with the id. */
#define INLINE(name, bytes, length)                                                                \
	size_t name(struct native *native, size_t calls)                                           \
	{                                                                                          \
		struct mlx5_ring_sq *sq = &native->ring_sq;                                        \
		uint64_t remote_addr = native->remote_addr, id, payload[bytes / 8 + 1] = { 0 };    \
		uint32_t rkey = native->rkey;                                                      \
		for (id = 0; id < calls; id++) {                                                   \
			FORGET(native);                                                            \
			payload[0] = id;                                                           \
			if (mlx5_ring_write_inline(sq, id, payload, length, remote_addr, rkey,     \
						   MLX5_SIGNALED) != MLX5_STATUS_OK)               \
				break;                                                             \
		}                                                                                  \
		return id;                                                                         \
	}

INLINE(native_inline, 8, 8)
INLINE(native_inline16, 16, 16)
INLINE(native_inline28, 28, 28)
INLINE(native_inline64, 64, 64)
INLINE(native_run_time, 8, native->length)

size_t native_pointer(struct native *native, size_t calls)
{
	struct mlx5_ring_sq *sq = &native->ring_sq;
	struct ibv_sge sge = native->sge;
	uint64_t remote_addr = native->remote_addr, id;
	uint32_t rkey = native->rkey;
	for (id = 0; id < calls; id++) {
		FORGET(native);
		if (mlx5_ring_write(sq, id, &sge, remote_addr, rkey, MLX5_SIGNALED) != MLX5_STATUS_OK)
			break;
	}
	return id;
}

size_t native_fire(struct native *native, size_t calls)
{
	struct mlx5_ring_sq *sq = &native->ring_sq;
	uint64_t id;
	for (id = 0; id < calls; id++) {
		FORGET(native);
		if (mlx5_ring_prepared_set(&native->prepared, 0, &id, sizeof(id)) != MLX5_STATUS_OK ||
		    mlx5_ring_fire(sq, id, &native->prepared) != MLX5_STATUS_OK)
			break;
	}
	return id;
}

size_t native_poll(struct native *native, size_t calls)
{
	size_t found = 0, call;
	uint64_t id;
	for (call = 0; call < calls; call++) {
		FORGET(native);
		if (mlx5_ring_poll(&native->ring_cq, &native->ring_sq, &id) == 1) {
			native->sum += id;
			found++;
		}
	}
	return found;
}

size_t native_receive(struct native *native, size_t calls)
{
	struct mlx5_ring_rq *rq = &native->ring_rq;
	struct ibv_sge sge = native->sge;
	uint64_t id;
	for (id = 0; id < calls; id++) {
		FORGET(native);
		if (mlx5_ring_receive(rq, id, &sge) != MLX5_STATUS_OK)
			break;
	}
	return id;
}

#else

struct native *native_new(struct ibv_qp *qp, struct ibv_cq *cq, const struct ibv_sge *sge, uint64_t remote_addr,
			  uint32_t rkey)
{
	struct native *made = calloc(1, sizeof(*made));
	if (made == NULL || mlx5_cq_take(cq, 0, &made->cq) != MLX5_STATUS_OK ||
	    mlx5_sq_take(qp, made->cq, 0, MLX5_SQ_OWN_REGISTER, &made->sq) != MLX5_STATUS_OK ||
	    mlx5_rq_take(qp, made->cq, 0, &made->rq) != MLX5_STATUS_OK)
		return NULL;
	made->sge = *sge;
	made->remote_addr = remote_addr;
	made->rkey = rkey;
	return made;
}

void native_free(struct native *native)
{
	mlx5_sq_abandon(native->sq);
	mlx5_rq_abandon(native->rq);
	mlx5_cq_abandon(native->cq);
	free(native);
}

/* A signaled WRITE. */
static struct mlx5_request write_of(struct native *native, const struct ibv_sge *sge)
{
	struct mlx5_request made;
	memset(&made, 0, sizeof(made));
	made.operation = MLX5_OP_WRITE;
	made.flags = MLX5_SIGNALED;
	made.sg_list = sge;
	made.num_sge = 1;
	made.remote_addr = native->remote_addr;
	made.rkey = native->rkey;
	return made;
}

size_t native_inline(struct native *native, size_t calls)
{
	uint64_t payload;
	struct ibv_sge sge = { .addr = (uintptr_t)&payload, .length = sizeof(payload), .lkey = 0 };
	struct mlx5_request write = write_of(native, &sge);
	write.flags |= MLX5_INLINE;
	for (write.id = 0; write.id < calls; write.id++) {
		payload = write.id;
		if (mlx5_sq_post(native->sq, &write, 1, NULL) != MLX5_STATUS_OK)
			break;
	}
	return write.id;
}

/* Prepares what native_fire() fires. */
size_t native_prepare(struct native *native, size_t calls)
{
	uint64_t payload = 0;
	struct ibv_sge sge = { .addr = (uintptr_t)&payload, .length = sizeof(payload), .lkey = 0 };
	struct mlx5_request write = write_of(native, &sge);
	write.flags |= MLX5_INLINE;
	for (write.id = 0; write.id < calls; write.id++) {
		if (mlx5_sq_prepare(native->sq, &write) != MLX5_STATUS_OK)
			break;
	}
	return write.id;
}

size_t native_fire(struct native *native, size_t calls)
{
	uint64_t payload;
	struct mlx5_change change = { .bytes = &payload, .offset = 0, .length = sizeof(payload) };
	size_t call;
	for (call = 0; call < calls; call++) {
		payload = call;
		if (mlx5_sq_fire(native->sq, &change, 1) != MLX5_STATUS_OK)
			break;
	}
	return call;
}

size_t native_pointer(struct native *native, size_t calls)
{
	struct mlx5_request write = write_of(native, &native->sge);
	for (write.id = 0; write.id < calls; write.id++) {
		if (mlx5_sq_post(native->sq, &write, 1, NULL) != MLX5_STATUS_OK)
			break;
	}
	return write.id;
}

size_t native_list(struct native *native, size_t calls)
{
	struct mlx5_request list[32];
	size_t call, at;
	for (at = 0; at < 32; at++) {
		list[at] = write_of(native, &native->sge);
		list[at].id = at;
	}
	for (call = 0; call < calls; call++) {
		if (mlx5_sq_post(native->sq, list, 32, NULL) != MLX5_STATUS_OK)
			break;
	}
	return 32 * call;
}

size_t native_poll(struct native *native, size_t calls)
{
	struct mlx5_completion done;
	size_t found = 0, call;
	for (call = 0; call < calls; call++) {
		if (mlx5_cq_poll(native->cq, &done, 1) == 1 && done.status == IBV_WC_SUCCESS) {
			native->sum += done.id;
			found++;
		}
	}
	return found;
}

size_t native_receive(struct native *native, size_t calls)
{
	struct mlx5_receive receive = { .sg_list = &native->sge, .num_sge = 1 };
	for (receive.id = 0; receive.id < calls; receive.id++) {
		if (mlx5_rq_post(native->rq, &receive, 1, NULL) != MLX5_STATUS_OK)
			break;
	}
	return receive.id;
}

#endif
