/* Every operation of each transport. */
#ifndef TRAFFIC_H
#define TRAFFIC_H

#include "ends.h"

/* A message by libibverbs, before the take-over. */
static void by_libibverbs(struct end *from, struct end *to)
{
	struct ibv_sge source = sge(from, 0, 8), target = sge(to, 0, 8);
	struct ibv_recv_wr receive, *bad_receive;
	struct ibv_send_wr send, *bad_send;
	struct ibv_wc wc;
	memset(&receive, 0, sizeof(receive));
	memset(&send, 0, sizeof(send));
	receive.sg_list = &target;
	receive.num_sge = 1;
	CHECK(ibv_post_recv(to->qp, &receive, &bad_receive) == 0);
	send.sg_list = &source;
	send.num_sge = 1;
	send.opcode = IBV_WR_SEND;
	send.send_flags = IBV_SEND_SIGNALED;
	CHECK(ibv_post_send(from->qp, &send, &bad_send) == 0);
	while (ibv_poll_cq(from->ibv_cq, 1, &wc) == 0)
		sched_yield();
	CHECK(wc.status == IBV_WC_SUCCESS);
	while (ibv_poll_cq(to->ibv_cq, 1, &wc) == 0)
		sched_yield();
	CHECK(wc.status == IBV_WC_SUCCESS);
}

/* Offsets in the memory: what is sent, received, written by the peer, read, and two words. */
enum { SENT = 0, RECEIVED = 1024, WRITTEN = 2048, FETCHED = 3072, OLD = 4096, COUNTER = 4104 };

static void fill(unsigned char *bytes, unsigned length, unsigned seed)
{
	unsigned at;
	for (at = 0; at < length; at++)
		bytes[at] = (unsigned char)(at * 7 + seed);
}

static int filled(const unsigned char *bytes, unsigned length, unsigned seed)
{
	unsigned at;
	for (at = 0; at < length; at++)
		if (bytes[at] != (unsigned char)(at * 7 + seed))
			return 0;
	return 1;
}

/* One message each way and a WRITE with immediate, on RC or UC. */
static void exchange(struct end *a, struct end *b, unsigned round)
{
	unsigned length = round % 3 ? 40 + round % 20 : 500;
	struct ibv_sge pieces[2], target[2];
	struct mlx5_request send;
	struct mlx5_completion done;
	uint32_t posted = 7;

	/* In two pieces, inline if it fits; into two entries. */
	fill(a->memory + SENT, length, round);
	pieces[0] = sge(a, SENT, 10);
	pieces[1] = sge(a, SENT + 10, length - 10);
	target[0] = sge(b, RECEIVED, 30);
	target[1] = sge(b, RECEIVED + 30, 994);
	post_receive(b, round, target, 2);
	send = request(round, round % 2 ? MLX5_OP_SEND : MLX5_OP_SEND_IMM, MLX5_SIGNALED);
	if (length <= INLINE_BYTES)
		send.flags |= MLX5_INLINE;
	send.sg_list = pieces;
	send.num_sge = 2;
	send.immediate = 0xab000000u | round;
	OK(mlx5_sq_post(a->sq, &send, 1, &posted));
	CHECK(posted == 1);
	if (send.flags & MLX5_INLINE)
		memset(a->memory + SENT, 0, length);
	succeeded(a, round, (enum mlx5_operation)send.operation);
	done = succeeded(b, round, round % 2 ? MLX5_OP_RECEIVE : MLX5_OP_RECEIVE_IMM);
	CHECK(done.byte_len == length && filled(b->memory + RECEIVED, length, round));
	CHECK(done.immediate == (round % 2 ? 0 : send.immediate));

	/* An answer: a WRITE and a WRITE with immediate behind it, with one doorbell. */
	{
		struct mlx5_request writes[2];
		struct ibv_sge source = sge(b, SENT, 256), flag = sge(b, OLD, 0);
		fill(b->memory + SENT, 256, round + 1);
		post_receive(a, round, NULL, 0);
		writes[0] = request(1, MLX5_OP_WRITE, 0);
		writes[0].sg_list = &source;
		writes[0].num_sge = 1;
		aim(&writes[0], a, WRITTEN);
		writes[1] = request(2, MLX5_OP_WRITE_IMM, MLX5_SIGNALED);
		writes[1].sg_list = &flag;
		writes[1].num_sge = 1;
		writes[1].immediate = round;
		aim(&writes[1], a, WRITTEN);
		OK(mlx5_sq_post(b->sq, writes, 2, &posted));
		CHECK(posted == 2);
		succeeded(b, 2, MLX5_OP_WRITE_IMM);
		done = succeeded(a, round, MLX5_OP_RECEIVE_WRITE_IMM);
		CHECK(done.immediate == round && filled(a->memory + WRITTEN, 256, round + 1));
	}
}

/* A batch of a WRITE and a READ of what it wrote. Then both atomics. */
static void one_sided(struct end *a, struct end *b, unsigned round)
{
	struct ibv_sge source = sge(a, SENT, 300), target = sge(a, FETCHED, 300), old = sge(a, OLD, 8);
	struct mlx5_request made;
	uint64_t *counter = (uint64_t *)(void *)(b->memory + COUNTER);
	uint64_t *before = (uint64_t *)(void *)(a->memory + OLD);
	struct mlx5_completion done;

	fill(a->memory + SENT, 300, round);
	OK(mlx5_sq_begin(a->sq));
	made = request(1, MLX5_OP_WRITE, 0);
	made.sg_list = &source;
	made.num_sge = 1;
	aim(&made, b, WRITTEN);
	OK(mlx5_sq_append(a->sq, &made));
	made = request(2, MLX5_OP_READ, MLX5_SIGNALED);
	made.sg_list = &target;
	made.num_sge = 1;
	aim(&made, b, WRITTEN);
	OK(mlx5_sq_append(a->sq, &made));
	OK(mlx5_sq_ring(a->sq));
	done = succeeded(a, 2, MLX5_OP_READ);
	CHECK(done.byte_len == 300 && filled(a->memory + FETCHED, 300, round));

	*counter = 100;
	made = request(3, MLX5_OP_FETCH_ADD, MLX5_SIGNALED);
	made.sg_list = &old;
	made.num_sge = 1;
	made.compare_add = 5;
	aim(&made, b, COUNTER);
	OK(mlx5_sq_post(a->sq, &made, 1, NULL));
	done = succeeded(a, 3, MLX5_OP_FETCH_ADD);
	CHECK(done.byte_len == 8 && *before == 100 && *counter == 105);
	made.id = 4;
	made.operation = MLX5_OP_COMPARE_SWAP;
	made.compare_add = 105;
	made.swap = round;
	OK(mlx5_sq_post(a->sq, &made, 1, NULL));
	succeeded(a, 4, MLX5_OP_COMPARE_SWAP);
	CHECK(*before == 105 && *counter == round);

	/* Under masks: the low byte alone, and two counters of 32 bits. */
	*counter = 0xab00;
	made.operation = MLX5_OP_MASKED_COMPARE_SWAP;
	made.compare_add = 0;
	made.swap = 7;
	made.compare_mask = made.swap_mask = 0xff;
	OK(mlx5_sq_post(a->sq, &made, 1, NULL));
	succeeded(a, 4, MLX5_OP_MASKED_COMPARE_SWAP);
	CHECK(*before == 0xab00 && *counter == 0xab07);
	*counter = 0xffffffff;
	made.operation = MLX5_OP_MASKED_FETCH_ADD;
	made.compare_add = 0x100000001u;
	made.swap_mask = 0x80000000u;
	OK(mlx5_sq_post(a->sq, &made, 1, NULL));
	succeeded(a, 4, MLX5_OP_MASKED_FETCH_ADD);
	CHECK(*before == 0xffffffff && *counter == 0x100000000u);
}

/* The device's clock now. */
static uint64_t clock_now(void)
{
	struct ibv_values_ex values;
	memset(&values, 0, sizeof(values));
	values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	CHECK(ibv_query_rt_values_ex(context, &values) == 0);
	return (uint64_t)values.raw_clock.tv_nsec;
}

/* Each completion has the time at which the device wrote it. */
static void timed(struct end *a)
{
	struct mlx5_request nop = request(0, MLX5_OP_NOP, MLX5_SIGNALED);
	struct mlx5_completion done[4];
	uint64_t times[4], before = clock_now();
	unsigned at, got = 0;

	for (at = 0; at < 3; at++) {
		nop.id = at;
		OK(mlx5_sq_post(a->sq, &nop, 1, NULL));
	}
	while (got < 3) {
		int count = mlx5_cq_poll_timed(a->cq, done + got, times + got, 4 - got);
		CHECK(count >= 0);
		got += (unsigned)count;
	}
	CHECK(got == 3 && mlx5_cq_poll_timed(a->cq, done, times + 3, 1) == 0);
	for (at = 0; at < 3; at++) {
		CHECK(done[at].id == at && done[at].status == 0);
		CHECK(before <= times[at]);
		before = times[at];
	}
	CHECK(before <= clock_now());
}

static void rc(void)
{
	struct end a, b;
	unsigned round, lap;
	make_pair(&a, &b, IBV_QPT_RC);
	for (round = 0; round < 5; round++)
		by_libibverbs(&a, &b);
	/* Taken over again and again: more rounds than the rings have entries. */
	for (lap = 0; lap < 3; lap++) {
		take(&a);
		take(&b);
		for (round = 0; round < 100; round++) {
			exchange(&a, &b, round);
			one_sided(&a, &b, round);
			timed(&a);
		}
		give_back(&a);
		give_back(&b);
	}
	end_pair(&a, &b);
}

static void uc(void)
{
	struct end a, b;
	unsigned round;
	struct mlx5_request made;
	make_pair(&a, &b, IBV_QPT_UC);
	take(&a);
	take(&b);
	for (round = 0; round < 100; round++)
		exchange(&a, &b, round);
	made = request(1, MLX5_OP_READ, MLX5_SIGNALED);
	IS(MLX5_STATUS_NOT_ON_TRANSPORT, mlx5_sq_post(a.sq, &made, 1, NULL));
	CHECK(strstr(mlx5_last_error(), "READ"));
	/* A request with a bad lkey stops the queue, until it recovers. */
	{
		struct ibv_sge bad = sge(&a, 0, 8);
		struct mlx5_completion done;
		bad.lkey = 0xdead00;
		made = request(2, MLX5_OP_WRITE, MLX5_SIGNALED);
		made.sg_list = &bad;
		made.num_sge = 1;
		aim(&made, &b, WRITTEN);
		OK(mlx5_sq_post(a.sq, &made, 1, NULL));
		done = next(&a);
		CHECK(done.status == IBV_WC_LOC_PROT_ERR && done.id == 2);
		IS(MLX5_STATUS_QUEUE_STOPPED, mlx5_sq_post(a.sq, &made, 1, NULL));
		OK(mlx5_sq_recover(a.sq));
		exchange(&a, &b, 101);
	}
	give_back(&a);
	give_back(&b);
	end_pair(&a, &b);
}

static void ud(void)
{
	struct end a, b;
	unsigned round;
	struct ibv_ah_attr attr;
	struct ibv_ah *ah;
	struct mlx5_address to;
	make_pair(&a, &b, IBV_QPT_UD);
	take(&a);
	take(&b);
	attr = path();
	ah = ibv_create_ah(pd, &attr);
	CHECK(ah);
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_address_init(&to, NULL, 1, QKEY));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_address_init(&to, ah, 1u << 24, QKEY));
	OK(mlx5_address_init(&to, ah, b.qp->qp_num, QKEY));
	CHECK(ibv_destroy_ah(ah) == 0);
	for (round = 0; round < 100; round++) {
		unsigned length = 1 + round % 60;
		struct ibv_sge source = sge(&a, SENT, length), target = sge(&b, RECEIVED, 1024);
		struct mlx5_request send = request(round, MLX5_OP_SEND_IMM, MLX5_SIGNALED);
		struct mlx5_completion done;
		fill(a.memory + SENT, length, round);
		post_receive(&b, round, &target, 1);
		send.sg_list = &source;
		send.num_sge = 1;
		send.immediate = round;
		send.address = &to;
		if (round % 2)
			send.flags |= MLX5_INLINE;
		OK(mlx5_sq_post(a.sq, &send, 1, NULL));
		succeeded(&a, round, MLX5_OP_SEND_IMM);
		done = succeeded(&b, round, MLX5_OP_RECEIVE_IMM);
		CHECK(done.byte_len == length + 40 && done.immediate == round);
		CHECK(done.src_qp == a.qp->qp_num);
		CHECK(filled(b.memory + RECEIVED + 40, length, round));
	}
	{
		struct mlx5_request send = request(1, MLX5_OP_SEND, MLX5_SIGNALED);
		IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(a.sq, &send, 1, NULL));
		CHECK(strstr(mlx5_last_error(), "mlx5_address_init"));
		memset(&to, 0, sizeof(to));
		send.address = &to;
		IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(a.sq, &send, 1, NULL));
		send = request(1, MLX5_OP_WRITE, MLX5_SIGNALED);
		IS(MLX5_STATUS_NOT_ON_TRANSPORT, mlx5_sq_post(a.sq, &send, 1, NULL));
	}
	give_back(&a);
	give_back(&b);
	end_pair(&a, &b);
}

#endif
