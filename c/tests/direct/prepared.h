/* Requests that are written ahead, and fired later. */
#ifndef PREPARED_H
#define PREPARED_H

#include "packets.h"
#include "traffic.h"

/* Nothing completes. */
static int is_quiet(struct end *end)
{
	struct mlx5_completion done;
	return mlx5_cq_poll(end->cq, &done, 1) == 0;
}

static struct mlx5_change change(uint32_t offset, const void *bytes, uint32_t length)
{
	struct mlx5_change made;
	made.bytes = bytes;
	made.offset = offset;
	made.length = length;
	return made;
}

/* A WRITE, a SEND, a WRITE of memory and a READ are prepared, and fired in this order. */
static void fire_every_kind(struct end *a, struct end *b, unsigned round)
{
	unsigned char order[40], expected[40];
	struct ibv_sge bytes, source = sge(a, SENT, 300), target = sge(a, FETCHED, 8), into = sge(b, RECEIVED, 64);
	struct mlx5_request made = request(1, MLX5_OP_WRITE, MLX5_SIGNALED | MLX5_INLINE);
	struct mlx5_change changes[2];
	uint64_t price = 0x0102030405060708u + round;
	uint16_t quantity = (uint16_t)(0x1100 + round);
	memset(&bytes, 0, sizeof(bytes));
	bytes.addr = (uint64_t)(uintptr_t)order;
	bytes.length = 16 + round % (sizeof(order) - 16);
	fill(order, sizeof(order), round);
	memcpy(expected, order, sizeof(order));
	made.sg_list = &bytes;
	made.num_sge = 1;
	aim(&made, b, WRITTEN);
	OK(mlx5_sq_prepare(a->sq, &made));
	made.id = 2;
	made.operation = MLX5_OP_SEND;
	OK(mlx5_sq_prepare(a->sq, &made));
	made = request(3, MLX5_OP_WRITE, 0);
	made.sg_list = &source;
	made.num_sge = 1;
	aim(&made, b, WRITTEN + 64);
	OK(mlx5_sq_prepare(a->sq, &made));
	made = request(4, MLX5_OP_READ, MLX5_SIGNALED);
	made.sg_list = &target;
	made.num_sge = 1;
	aim(&made, b, WRITTEN);
	OK(mlx5_sq_prepare(a->sq, &made));
	CHECK(mlx5_sq_prepared(a->sq) == 4 && is_quiet(a) && is_quiet(b));
	/* The bytes were copied. The other direction goes on. */
	memset(order, 0, sizeof(order));
	one_sided(b, a, round);

	memset(b->memory + WRITTEN, 0, 512);
	memcpy(expected + 1, &price, sizeof(price));
	memcpy(expected + 14, &quantity, sizeof(quantity));
	changes[0] = change(1, &price, sizeof(price));
	changes[1] = change(14, &quantity, sizeof(quantity));
	OK(mlx5_sq_warm(a->sq));
	OK(mlx5_sq_fire(a->sq, changes, 2));
	succeeded(a, 1, MLX5_OP_WRITE);
	CHECK(memcmp(b->memory + WRITTEN, expected, bytes.length) == 0 && b->memory[WRITTEN + bytes.length] == 0);
	post_receive(b, round, &into, 1);
	OK(mlx5_sq_fire(a->sq, changes, 1));
	succeeded(a, 2, MLX5_OP_SEND);
	CHECK(succeeded(b, round, MLX5_OP_RECEIVE).byte_len == bytes.length);
	CHECK(memcmp(b->memory + RECEIVED, expected, 14) == 0);
	/* Memory may change until the request is fired. */
	fill(a->memory + SENT, 300, round + 5);
	OK(mlx5_sq_fire(a->sq, NULL, 0));
	CHECK(is_quiet(a) && mlx5_sq_prepared(a->sq) == 1);
	OK(mlx5_sq_fire(a->sq, NULL, 0));
	succeeded(a, 4, MLX5_OP_READ);
	CHECK(filled(b->memory + WRITTEN + 64, 300, round + 5));
	CHECK(memcmp(a->memory + FETCHED, expected, 8) == 0 && mlx5_sq_prepared(a->sq) == 0);
}

/* What a queue with prepared requests refuses. */
static void misuse_of_prepared(struct end *a, struct end *b)
{
	unsigned char order[24];
	struct ibv_sge bytes = sge(a, SENT, 24), source = sge(a, SENT, 8);
	struct mlx5_request made = request(7, MLX5_OP_WRITE, MLX5_SIGNALED | MLX5_INLINE), plain;
	struct mlx5_change changes[9];
	unsigned at;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_prepare(NULL, &made));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_prepare(a->sq, NULL));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_fire(NULL, NULL, 0));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_cancel(NULL));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_warm(NULL));
	CHECK(mlx5_sq_prepared(NULL) == 0);
	IS(MLX5_STATUS_NOTHING_PREPARED, mlx5_sq_fire(a->sq, NULL, 0));
	CHECK(strstr(mlx5_last_error(), "mlx5_sq_prepare"));
	OK(mlx5_sq_cancel(a->sq));
	OK(mlx5_sq_warm(a->sq));

	memset(b->memory + WRITTEN, 0, 64);
	fill(a->memory + SENT, 24, 1);
	made.sg_list = &bytes;
	made.num_sge = 1;
	aim(&made, b, WRITTEN);
	bytes.length = 1000;
	IS(MLX5_STATUS_INLINE_TOO_LONG, mlx5_sq_prepare(a->sq, &made));
	bytes.length = 24;
	made.reserved = 1;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_prepare(a->sq, &made));
	made.reserved = 0;
	made.operation = MLX5_OP_LARGE_SEND;
	IS(MLX5_STATUS_NOT_ON_TRANSPORT, mlx5_sq_prepare(a->sq, &made));
	made.operation = MLX5_OP_WRITE;
	CHECK(mlx5_sq_prepared(a->sq) == 0);
	OK(mlx5_sq_prepare(a->sq, &made));
	plain = request(8, MLX5_OP_NOP, MLX5_SIGNALED);
	IS(MLX5_STATUS_PREPARED, mlx5_sq_post(a->sq, &plain, 1, NULL));
	CHECK(strstr(mlx5_last_error(), "mlx5_sq_cancel"));
	IS(MLX5_STATUS_PREPARED, mlx5_sq_begin(a->sq));
	IS(MLX5_STATUS_PREPARED, mlx5_sq_give_back(a->sq));
	IS(MLX5_STATUS_PREPARED, mlx5_sq_recover(a->sq));

	/* Changes past the payload, or of nothing. Nothing is changed. */
	memset(order, 0xff, sizeof(order));
	for (at = 0; at < 9; at++)
		changes[at] = change(at, order, 1);
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_fire(a->sq, NULL, 1));
	changes[1] = change(20, order, 5);
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_fire(a->sq, changes, 2));
	CHECK(strstr(mlx5_last_error(), "25 of at most 24"));
	changes[1] = change(0xffffffffu, order, 24);
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_fire(a->sq, changes, 2));
	changes[1] = change(0, NULL, 1);
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_fire(a->sq, changes, 2));
	changes[1] = change(24, NULL, 0);
	CHECK(mlx5_sq_prepared(a->sq) == 1 && is_quiet(a));
	OK(mlx5_sq_fire(a->sq, changes + 1, 1));
	succeeded(a, 7, MLX5_OP_WRITE);
	CHECK(filled(b->memory + WRITTEN, 24, 1));

	/* A request by pointer has no payload in the WQE. */
	made.flags = MLX5_SIGNALED;
	made.sg_list = &source;
	OK(mlx5_sq_prepare(a->sq, &made));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_fire(a->sq, changes, 1));
	OK(mlx5_sq_fire(a->sq, NULL, 0));
	succeeded(a, 7, MLX5_OP_WRITE);

	/* Behind a batch of the group, nothing is written. */
	OK(mlx5_sq_begin(a->sq));
	IS(MLX5_STATUS_BATCH_OPEN, mlx5_sq_prepare(a->sq, &made));
	IS(MLX5_STATUS_BATCH_OPEN, mlx5_sq_fire(a->sq, NULL, 0));
	OK(mlx5_sq_cancel(a->sq));
	IS(MLX5_STATUS_BATCH_OPEN, mlx5_sq_warm(a->sq));
	OK(mlx5_sq_discard(a->sq));
}

/* As many as the queue holds, of which some are fired and the others forgotten. */
static void cancel_all(struct end *a, struct end *b)
{
	uint32_t capacity = mlx5_sq_capacity(a->sq), count = 0, at;
	unsigned char byte = 0;
	struct ibv_sge one = sge(a, SENT, 1);
	struct mlx5_request made = request(0, MLX5_OP_WRITE, MLX5_SIGNALED | MLX5_INLINE);
	enum mlx5_status status;
	made.sg_list = &one;
	made.num_sge = 1;
	aim(&made, b, WRITTEN);
	while ((status = mlx5_sq_prepare(a->sq, &made)) == MLX5_STATUS_OK)
		made.id = ++count;
	IS(MLX5_STATUS_QUEUE_FULL, status);
	CHECK(count == capacity && mlx5_sq_prepared(a->sq) == capacity);
	b->memory[WRITTEN] = 0xee;
	for (at = 0; at < 3; at++) {
		struct mlx5_change other = change(0, &byte, 1);
		byte = (unsigned char)(40 + at);
		OK(mlx5_sq_fire(a->sq, &other, 1));
		succeeded(a, at, MLX5_OP_WRITE);
		CHECK(b->memory[WRITTEN] == 40 + at);
	}
	OK(mlx5_sq_cancel(a->sq));
	CHECK(mlx5_sq_prepared(a->sq) == 0 && is_quiet(a) && b->memory[WRITTEN] == 42);
	made.flags = MLX5_SIGNALED;
	for (at = 0; at < capacity; at++)
		OK(mlx5_sq_post(a->sq, &made, 1, NULL));
	for (at = 0; at < capacity; at++)
		succeeded(a, count, MLX5_OP_WRITE);
}

/* A failed request stops the queue. What is prepared behind it stays so, and is forgotten. */
static void fail_before_fire(struct end *a, struct end *b)
{
	struct ibv_sge source = sge(a, SENT, 8);
	struct mlx5_request made = request(1, MLX5_OP_WRITE, MLX5_SIGNALED);
	made.sg_list = &source;
	made.num_sge = 1;
	aim(&made, b, WRITTEN);
	made.rkey ^= 0xff00;
	OK(mlx5_sq_prepare(a->sq, &made));
	made.rkey = b->mr->rkey;
	made.id = 2;
	OK(mlx5_sq_prepare(a->sq, &made));
	OK(mlx5_sq_fire(a->sq, NULL, 0));
	CHECK(next(a).status == IBV_WC_REM_ACCESS_ERR);
	IS(MLX5_STATUS_QUEUE_STOPPED, mlx5_sq_fire(a->sq, NULL, 0));
	IS(MLX5_STATUS_QUEUE_STOPPED, mlx5_sq_prepare(a->sq, &made));
	CHECK(mlx5_sq_prepared(a->sq) == 1);
	OK(mlx5_sq_cancel(a->sq));
	CHECK(mlx5_sq_prepared(a->sq) == 0);
	OK(mlx5_sq_give_back(a->sq));
	a->sq = NULL;
}

static void prepared(void)
{
	struct end a, b;
	unsigned round;
	make_pair(&a, &b, IBV_QPT_RC);
	take(&a);
	take(&b);
	for (round = 0; round < 100; round++) {
		fire_every_kind(&a, &b, round);
		exchange(&a, &b, round);
	}
	misuse_of_prepared(&a, &b);
	cancel_all(&a, &b);
	exchange(&a, &b, 1);
	/* With prepared requests, the handle can be ended, and nothing is posted. */
	{
		struct mlx5_request made = request(1, MLX5_OP_NOP, MLX5_SIGNALED);
		OK(mlx5_sq_prepare(a.sq, &made));
		mlx5_sq_abandon(a.sq);
		CHECK(is_quiet(&a));
		OK(mlx5_sq_take(a.qp, a.cq, 0, 0, &a.sq));
		CHECK(mlx5_sq_prepared(a.sq) == 0);
		exchange(&a, &b, 2);
	}
	fail_before_fire(&a, &b);
	end_pair(&a, &b);
}

/* Datagrams, whose payload lies behind an address. */
static void prepared_datagrams(void)
{
	struct end a, b;
	struct ibv_ah_attr attr;
	struct ibv_ah *ah;
	struct mlx5_address to;
	unsigned round;
	make_pair(&a, &b, IBV_QPT_UD);
	take(&a);
	take(&b);
	attr = path();
	ah = ibv_create_ah(pd, &attr);
	CHECK(ah);
	OK(mlx5_address_init(&to, ah, b.qp->qp_num, QKEY));
	CHECK(ibv_destroy_ah(ah) == 0);
	for (round = 0; round < 100; round++) {
		unsigned length = 8 + round % 50;
		struct ibv_sge source = sge(&a, SENT, length), target = sge(&b, RECEIVED, 1024);
		struct mlx5_request send = request(round, MLX5_OP_SEND_IMM, MLX5_SIGNALED | MLX5_INLINE);
		struct mlx5_change last;
		struct mlx5_address copy;
		struct mlx5_completion done;
		memset(a.memory + SENT, 0, length);
		post_receive(&b, round, &target, 1);
		send.sg_list = &source;
		send.num_sge = 1;
		send.immediate = round;
		copy = to;
		send.address = &copy;
		OK(mlx5_sq_prepare(a.sq, &send));
		/* The address was copied. */
		memset(&copy, 0, sizeof(copy));
		fill(a.memory + FETCHED, length, round);
		last = change(0, a.memory + FETCHED, length);
		OK(mlx5_sq_fire(a.sq, &last, 1));
		succeeded(&a, round, MLX5_OP_SEND_IMM);
		done = succeeded(&b, round, MLX5_OP_RECEIVE_IMM);
		CHECK(done.byte_len == length + 40 && done.immediate == round);
		CHECK(filled(b.memory + RECEIVED + 40, length, round));
	}
	give_back(&a);
	give_back(&b);
	end_pair(&a, &b);
}

/* An order as a packet: its number is changed, and the device computes the checksums of what is sent. */
static void prepared_packets(void)
{
	struct wire wire;
	struct handles handles;
	uint8_t *packet;
	struct ibv_sge entry;
	struct mlx5_request made = request(0, MLX5_OP_SEND, MLX5_SIGNALED | MLX5_INLINE | MLX5_CHECKSUMS);
	uint8_t number;
	open_device();
	open_wire(&wire);
	take_wire(&wire, &handles);
	packet = wire.memory + 8 * SLOT;
	for (number = 0; number < 60; number++) {
		uint32_t length = PACKET + number, offset = number % 2 ? 42 : length - 1;
		struct mlx5_change last = change(offset, &number, 1);
		struct mlx5_packet came;
		write_packet(&wire, packet, length, 0xaa);
		entry = slot_of(&wire, 8, length);
		made.sg_list = &entry;
		made.num_sge = 1;
		made.id = number;
		OK(mlx5_sq_prepare(handles.sq, &made));
		post_slot(&wire, &handles, 0, SLOT);
		packet[offset] = number;
		OK(mlx5_sq_fire(handles.sq, &last, 1));
		sent(&handles, number);
		came = next_packet(&handles);
		CHECK(came.byte_len == length && wire.memory[offset] == number);
		CHECK((came.flags & MLX5_PACKET_IP_OK) != 0 && (came.flags & MLX5_PACKET_L4_OK) != 0);
		CHECK(memcmp(wire.memory + 42, packet + 42, length - 42) == 0);
	}
	/* A header in the WQE stands before the rest, which is none to change. */
	{
		struct ibv_sge list[2];
		struct mlx5_change last = change(0, &number, 1);
		list[0] = slot_of(&wire, 8, ETHERNET + 4);
		list[1] = slot_of(&wire, 8, PACKET);
		made.flags = MLX5_SIGNALED | MLX5_INLINE_HEADER;
		made.sg_list = list;
		made.num_sge = 2;
		OK(mlx5_sq_prepare(handles.sq, &made));
		IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_fire(handles.sq, &last, 1));
		OK(mlx5_sq_cancel(handles.sq));
	}
	OK(mlx5_sq_give_back(handles.sq));
	OK(mlx5_cq_give_back(handles.cq));
	mlx5_packets_abandon(handles.packets);
	close_wire(&wire);
	close_device();
}

#endif
