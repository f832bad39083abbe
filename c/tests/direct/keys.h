/* Keys of memory windows, which requests end. */
#ifndef KEYS_H
#define KEYS_H

#include "ends.h"

/* Binds a window of type 2 to the end's memory, by libibverbs. */
static struct ibv_mw *window_of(struct end *end, struct ibv_mr *mr)
{
	struct ibv_send_wr bind, *bad;
	struct ibv_wc wc;
	struct ibv_mw *window = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	CHECK(window);
	memset(&bind, 0, sizeof(bind));
	bind.opcode = IBV_WR_BIND_MW;
	bind.send_flags = IBV_SEND_SIGNALED;
	bind.bind_mw.mw = window;
	bind.bind_mw.rkey = ibv_inc_rkey(window->rkey);
	bind.bind_mw.bind_info.mr = mr;
	bind.bind_mw.bind_info.addr = (uint64_t)(uintptr_t)end->memory;
	bind.bind_mw.bind_info.length = MEMORY;
	bind.bind_mw.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE;
	CHECK(ibv_post_send(end->qp, &bind, &bad) == 0);
	while (ibv_poll_cq(end->ibv_cq, 1, &wc) == 0)
		sched_yield();
	CHECK(wc.status == IBV_WC_SUCCESS);
	window->rkey = bind.bind_mw.rkey;
	return window;
}

/* Writes by a key, and returns the status. */
static uint32_t write_by(struct end *from, const struct end *to, uint32_t rkey)
{
	struct ibv_sge source = sge(from, 0, 8);
	struct mlx5_request made = request(1, MLX5_OP_WRITE, MLX5_SIGNALED);
	made.sg_list = &source;
	made.num_sge = 1;
	aim(&made, to, 64);
	made.rkey = rkey;
	OK(mlx5_sq_post(from->sq, &made, 1, NULL));
	return next(from).status;
}

static void keys(void)
{
	struct end a, b;
	struct ibv_mr *mr;
	struct ibv_mw *given, *kept;
	struct ibv_sge text, target;
	struct mlx5_request made = request(2, MLX5_OP_SEND_INVALIDATE, MLX5_SIGNALED | MLX5_INLINE);
	struct mlx5_completion done;
	make_pair(&a, &b, IBV_QPT_RC);
	mr = ibv_reg_mr(pd, b.memory, MEMORY, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND);
	CHECK(mr);
	given = window_of(&b, mr);
	kept = window_of(&b, mr);
	take(&a);
	take(&b);
	CHECK(write_by(&a, &b, given->rkey) == IBV_WC_SUCCESS && write_by(&a, &b, kept->rkey) == IBV_WC_SUCCESS);

	/* The peer gives one back. */
	text.addr = (uint64_t)(uintptr_t)"done";
	text.length = 4;
	text.lkey = 0;
	made.sg_list = &text;
	made.num_sge = 1;
	made.rkey = given->rkey;
	target = sge(&b, 256, 64);
	post_receive(&b, 3, &target, 1);
	OK(mlx5_sq_post(a.sq, &made, 1, NULL));
	succeeded(&a, 2, MLX5_OP_SEND_INVALIDATE);
	done = succeeded(&b, 3, MLX5_OP_RECEIVE_INVALIDATE);
	CHECK(done.immediate == given->rkey && memcmp(b.memory + 256, "done", 4) == 0);

	/* The owner ends the other. */
	CHECK(write_by(&a, &b, kept->rkey) == IBV_WC_SUCCESS);
	made = request(4, MLX5_OP_LOCAL_INVALIDATE, MLX5_SIGNALED);
	made.rkey = kept->rkey;
	OK(mlx5_sq_post(b.sq, &made, 1, NULL));
	succeeded(&b, 4, MLX5_OP_LOCAL_INVALIDATE);
	CHECK(write_by(&a, &b, kept->rkey) == IBV_WC_REM_ACCESS_ERR);

	CHECK(ibv_dealloc_mw(given) == 0 && ibv_dealloc_mw(kept) == 0 && ibv_dereg_mr(mr) == 0);
	end_pair(&a, &b);
}

#endif
