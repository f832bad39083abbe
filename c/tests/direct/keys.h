/* Keys of memory windows, which requests end. */
#ifndef KEYS_H
#define KEYS_H

#include "traffic.h"

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

/* Binds a window by the library: of type 2 if next is not its next key of type 1. */
static void bind_by_library(struct end *end, struct ibv_mw *window, const struct ibv_sge *memory, uint32_t flags)
{
	struct mlx5_request made = request(9, MLX5_OP_BIND_WINDOW, MLX5_SIGNALED | flags);
	made.sg_list = memory;
	made.num_sge = memory != NULL;
	made.rkey = window->rkey;
	made.immediate = ibv_inc_rkey(window->rkey);
	made.access = IBV_ACCESS_REMOTE_WRITE;
	OK(mlx5_sq_post(end->sq, &made, 1, NULL));
	succeeded(end, 9, MLX5_OP_CHANGE_KEY);
	window->rkey = made.immediate;
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
	succeeded(&b, 4, MLX5_OP_CHANGE_KEY);
	CHECK(write_by(&a, &b, kept->rkey) == IBV_WC_REM_ACCESS_ERR);

	CHECK(ibv_dealloc_mw(given) == 0 && ibv_dealloc_mw(kept) == 0 && ibv_dereg_mr(mr) == 0);
	end_pair(&a, &b);
}

/* A key that leads to two columns of a table, one byte and two bytes of each row of 16. */
static void configure_columns(struct end *a, struct end *b, const struct mlx5dv_mkey *key, uint32_t lkey)
{
	struct ibv_sge columns[2], source = sge(a, 512, 12);
	struct mlx5_request made = request(6, MLX5_OP_CONFIGURE_KEY, MLX5_SIGNALED | MLX5_INTERLEAVED);
	unsigned row;
	columns[0] = sge(b, 4096, MLX5_PIECE(1, 15));
	columns[1] = sge(b, 4096 + 5, MLX5_PIECE(2, 14));
	columns[0].lkey = columns[1].lkey = lkey;
	made.rkey = key->lkey;
	made.sg_list = columns;
	made.num_sge = 2;
	made.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(b->sq, &made, 1, NULL));
	CHECK(strstr(mlx5_last_error(), "cycles"));
	made.immediate = 4;
	columns[1].length = MLX5_PIECE(0xffff, 1);
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(b->sq, &made, 1, NULL));
	CHECK(strstr(mlx5_last_error(), "65,535"));
	columns[1].length = MLX5_PIECE(2, 14);
	OK(mlx5_sq_post(b->sq, &made, 1, NULL));
	succeeded(b, 6, MLX5_OP_CHANGE_KEY);
	fill(a->memory + 512, 12, 1);
	memset(b->memory + 4096, 0, 64);
	made = request(7, MLX5_OP_WRITE, MLX5_SIGNALED);
	made.sg_list = &source;
	made.num_sge = 1;
	made.rkey = key->rkey;
	OK(mlx5_sq_post(a->sq, &made, 1, NULL));
	succeeded(a, 7, MLX5_OP_WRITE);
	for (row = 0; row < 4; row++) {
		const unsigned char *at = b->memory + 4096 + 16 * row, *from = a->memory + 512 + 3 * row;
		CHECK(at[0] == from[0] && at[5] == from[1] && at[6] == from[2] && at[1] == 0 && at[7] == 0);
	}
}

enum { PIECES = 64, PIECE = 4, LIST = 6144 };

/* A key of more pieces than fit into a request: the device fetches their list. A peer's WRITE fills every second one's
 * place in the memory. */
static void configure_by_list(struct end *a, struct end *b, uint32_t lkey)
{
	struct mlx5_wqe_data_seg *list = (struct mlx5_wqe_data_seg *)(void *)(b->memory + LIST);
	struct ibv_sge memory = sge(b, LIST, PIECES * sizeof(*list)), source = sge(a, 1024, PIECES * PIECE), two[2];
	struct mlx5_request made = request(1, MLX5_OP_CONFIGURE_KEY, MLX5_SIGNALED | MLX5_LIST_IN_MEMORY);
	struct mlx5dv_mkey_init_attr attr;
	struct mlx5dv_mkey *key;
	unsigned at, byte;
	memset(&attr, 0, sizeof(attr));
	attr.pd = pd;
	attr.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT;
	attr.max_entries = PIECES;
	key = mlx5dv_create_mkey(&attr);
	CHECK(key);
	for (at = 0; at < PIECES; at++)
		mlx5dv_set_data_seg(&list[at], PIECE, lkey, (uintptr_t)b->memory + 4096 + 2 * PIECE * at);
	made.sg_list = &memory;
	made.num_sge = 1;
	made.rkey = key->lkey;
	made.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	/* Without the bytes of all pieces, with two lists, with one that is not of whole fours, and with cycles. */
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(b->sq, &made, 1, NULL));
	CHECK(strstr(mlx5_last_error(), "key_length"));
	made.key_length = PIECES * PIECE;
	two[0] = two[1] = memory;
	made.sg_list = two;
	made.num_sge = 2;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(b->sq, &made, 1, NULL));
	CHECK(strstr(mlx5_last_error(), "one entry"));
	made.num_sge = 1;
	two[0].length -= 16;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(b->sq, &made, 1, NULL));
	CHECK(strstr(mlx5_last_error(), "multiple of 64"));
	made.sg_list = &memory;
	made.flags |= MLX5_INTERLEAVED;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(b->sq, &made, 1, NULL));
	CHECK(strstr(mlx5_last_error(), "MLX5_LIST_IN_MEMORY"));
	made.flags = MLX5_SIGNALED | MLX5_LIST_IN_MEMORY;
	OK(mlx5_sq_post(b->sq, &made, 1, NULL));
	succeeded(b, 1, MLX5_OP_CHANGE_KEY);
	fill(a->memory + 1024, PIECES * PIECE, 5);
	memset(b->memory + 4096, 0, 2 * PIECES * PIECE);
	made = request(2, MLX5_OP_WRITE, MLX5_SIGNALED);
	made.sg_list = &source;
	made.num_sge = 1;
	made.rkey = key->rkey;
	OK(mlx5_sq_post(a->sq, &made, 1, NULL));
	succeeded(a, 2, MLX5_OP_WRITE);
	for (at = 0; at < PIECES; at++) {
		const unsigned char *there = b->memory + 4096 + 2 * PIECE * at;
		CHECK(memcmp(there, a->memory + 1024 + PIECE * at, PIECE) == 0);
		for (byte = PIECE; byte < 2 * PIECE; byte++)
			CHECK(there[byte] == 0);
	}
	CHECK(mlx5dv_destroy_mkey(key) == 0);
}

/* Windows and keys that the library binds and configures. */
static void windows(void)
{
	struct end a, b;
	struct ibv_mr *mr;
	struct ibv_mw *first, *second;
	struct mlx5dv_mkey_init_attr attr;
	struct mlx5dv_mkey *key;
	struct ibv_sge memory, pieces[2];
	struct mlx5_request made;
	uint32_t old;
	make_pair(&a, &b, IBV_QPT_RC);
	mr = ibv_reg_mr(pd, b.memory, MEMORY, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND);
	first = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	second = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	CHECK(mr && first && second);
	take(&a);
	take(&b);
	memory = sge(&b, 0, 512);
	memory.lkey = mr->lkey;

	/* Bytes beyond what the key says, and a key that is none of the next, are refused before they are posted. */
	made = request(1, MLX5_OP_BIND_WINDOW, MLX5_SIGNALED);
	made.sg_list = &memory;
	made.num_sge = 1;
	made.rkey = first->rkey;
	made.immediate = first->rkey;
	CHECK(mlx5_sq_post(b.sq, &made, 1, NULL) == MLX5_STATUS_INVALID_ARGUMENT);
	CHECK(strstr(mlx5_last_error(), "ibv_inc_rkey"));
	made.immediate = ibv_inc_rkey(first->rkey);
	made.access = IBV_ACCESS_LOCAL_WRITE;
	CHECK(mlx5_sq_post(b.sq, &made, 1, NULL) == MLX5_STATUS_INVALID_ARGUMENT);
	CHECK(strstr(mlx5_last_error(), "access"));

	/* Type 1: bound to memory, then to none. */
	bind_by_library(&b, first, &memory, 0);
	CHECK(write_by(&a, &b, first->rkey) == IBV_WC_SUCCESS);
	/* Type 2, then ended and bound anew, zero based: address 64 of the peer's request is beyond it. */
	bind_by_library(&b, second, &memory, MLX5_TYPE_2);
	old = second->rkey;
	memset(a.memory, 0x5a, 8);
	CHECK(write_by(&a, &b, old) == IBV_WC_SUCCESS && b.memory[64] == 0x5a);
	made = request(2, MLX5_OP_LOCAL_INVALIDATE, MLX5_SIGNALED);
	made.rkey = old;
	OK(mlx5_sq_post(b.sq, &made, 1, NULL));
	succeeded(&b, 2, MLX5_OP_CHANGE_KEY);
	second->rkey &= ~(uint32_t)0xff;
	bind_by_library(&b, second, &memory, MLX5_TYPE_2 | MLX5_ZERO_BASED);
	pieces[0] = sge(&a, 0, 8);
	made = request(3, MLX5_OP_WRITE, MLX5_SIGNALED);
	made.sg_list = pieces;
	made.num_sge = 1;
	made.remote_addr = 128;
	made.rkey = second->rkey;
	OK(mlx5_sq_post(a.sq, &made, 1, NULL));
	succeeded(&a, 3, MLX5_OP_WRITE);
	CHECK(b.memory[128] == 0x5a);

	/* A key that leads to two pieces: addresses behind it start at 0. */
	memset(&attr, 0, sizeof(attr));
	attr.pd = pd;
	attr.create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT;
	attr.max_entries = 4;
	key = mlx5dv_create_mkey(&attr);
	CHECK(key);
	pieces[0] = sge(&b, 1024, 4);
	pieces[1] = sge(&b, 2048, 4);
	pieces[0].lkey = pieces[1].lkey = mr->lkey;
	made = request(4, MLX5_OP_CONFIGURE_KEY, MLX5_SIGNALED);
	made.rkey = key->lkey;
	CHECK(mlx5_sq_post(b.sq, &made, 1, NULL) == MLX5_STATUS_INVALID_ARGUMENT);
	made.sg_list = pieces;
	made.num_sge = 2;
	made.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	OK(mlx5_sq_post(b.sq, &made, 1, NULL));
	succeeded(&b, 4, MLX5_OP_CHANGE_KEY);
	pieces[0] = sge(&a, 0, 8);
	made = request(5, MLX5_OP_WRITE, MLX5_SIGNALED);
	made.sg_list = pieces;
	made.num_sge = 1;
	made.rkey = key->rkey;
	OK(mlx5_sq_post(a.sq, &made, 1, NULL));
	succeeded(&a, 5, MLX5_OP_WRITE);
	CHECK(b.memory[1027] == 0x5a && b.memory[1028] == 0 && b.memory[2051] == 0x5a && b.memory[2052] == 0);
	configure_columns(&a, &b, key, mr->lkey);
	configure_by_list(&a, &b, mr->lkey);

	/* An initiator of datagrams or packets binds none; a window of type 1 ends what it opened. */
	old = first->rkey;
	bind_by_library(&b, first, NULL, 0);
	CHECK(write_by(&a, &b, old) == IBV_WC_REM_ACCESS_ERR);

	CHECK(mlx5dv_destroy_mkey(key) == 0 && ibv_dealloc_mw(first) == 0 && ibv_dealloc_mw(second) == 0);
	CHECK(ibv_dereg_mr(mr) == 0);
	end_pair(&a, &b);
}

#endif
