/* A verbs program that gives its queues to libmlx5direct. Also valid C++17. It runs one scenario. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#include "mlx5.h"

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__,         \
				#condition, mlx5_last_error());                                    \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* The call returns this status. */
#define IS(status, call)                                                                           \
	do {                                                                                       \
		enum mlx5_status found = (call);                                                   \
		if (found != (status)) {                                                           \
			fprintf(stderr, "%s:%d: %s is %d (%s); last error: %s\n", __FILE__,        \
				__LINE__, #call, (int)found, mlx5_status_text((uint32_t)found),    \
				mlx5_last_error());                                                \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)
#define OK(call) IS(MLX5_STATUS_OK, call)

enum { MEMORY = 8192, INLINE_BYTES = 64, DEPTH = 16, CQES = 64, QKEY = 0x11223344 };

/* One end of a connection. */
struct end {
	struct ibv_comp_channel *channel;
	struct ibv_cq *ibv_cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	unsigned char *memory;
	struct mlx5_cq *cq;
	struct mlx5_sq *sq;
	struct mlx5_rq *rq;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_port_attr port;
static union ibv_gid gid;

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	CHECK(pd);
	CHECK(ibv_query_port(context, 1, &port) == 0);
	CHECK(ibv_query_gid(context, 1, 0, &gid) == 0);
}

static void close_device(void)
{
	CHECK(ibv_dealloc_pd(pd) == 0);
	CHECK(ibv_close_device(context) == 0);
}

static struct ibv_qp *make_qp(struct ibv_cq *cq, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp *qp;
	memset(&init, 0, sizeof(init));
	init.send_cq = init.recv_cq = cq;
	init.qp_type = type;
	init.cap.max_send_wr = init.cap.max_recv_wr = DEPTH;
	init.cap.max_send_sge = init.cap.max_recv_sge = 2;
	init.cap.max_inline_data = INLINE_BYTES;
	qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	return qp;
}

static void to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	attr.qkey = QKEY;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	if (qp->qp_type == IBV_QPT_RC)
		attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	mask |= qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
}

static struct ibv_ah_attr path(void)
{
	struct ibv_ah_attr ah;
	memset(&ah, 0, sizeof(ah));
	ah.port_num = 1;
	ah.dlid = port.lid;
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		ah.is_global = 1;
		ah.grh.dgid = gid;
		ah.grh.hop_limit = 1;
	}
	return ah;
}

static void to_rts(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr;
	int mask = IBV_QP_STATE;
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTR;
	attr.ah_attr = path();
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = peer;
	attr.max_dest_rd_atomic = 4;
	attr.min_rnr_timer = 1;
	if (qp->qp_type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	CHECK(ibv_modify_qp(qp, &attr, mask) == 0);

	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 18;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 4;
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	CHECK(ibv_modify_qp(qp, &attr, mask) == 0);
}

static void make_end(struct end *end, enum ibv_qp_type type)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_ATOMIC;
	void *memory = NULL;
	memset(end, 0, sizeof(*end));
	CHECK(posix_memalign(&memory, 4096, MEMORY) == 0);
	memset(memory, 0, MEMORY);
	end->memory = (unsigned char *)memory;
	end->mr = ibv_reg_mr(pd, end->memory, MEMORY, access);
	CHECK(end->mr);
	end->channel = ibv_create_comp_channel(context);
	CHECK(end->channel);
	end->ibv_cq = ibv_create_cq(context, CQES, NULL, end->channel, 0);
	CHECK(end->ibv_cq);
	end->qp = make_qp(end->ibv_cq, type);
	to_init(end->qp);
}

/* Two ends, connected to each other, on libibverbs. */
static void make_pair(struct end *a, struct end *b, enum ibv_qp_type type)
{
	open_device();
	make_end(a, type);
	make_end(b, type);
	to_rts(a->qp, b->qp->qp_num);
	to_rts(b->qp, a->qp->qp_num);
}

static void take(struct end *end)
{
	OK(mlx5_cq_take(end->ibv_cq, 0, &end->cq));
	OK(mlx5_sq_take(end->qp, end->cq, 0, 0, &end->sq));
	OK(mlx5_rq_take(end->qp, end->cq, 0, &end->rq));
	CHECK(mlx5_sq_capacity(end->sq) >= DEPTH && mlx5_rq_capacity(end->rq) >= DEPTH);
	CHECK(mlx5_cq_ibv(end->cq) == end->ibv_cq && mlx5_sq_ibv(end->sq) == end->qp);
	CHECK(mlx5_rq_ibv(end->rq) == end->qp);
}

static void give_back(struct end *end)
{
	OK(mlx5_sq_give_back(end->sq));
	OK(mlx5_rq_give_back(end->rq));
	OK(mlx5_cq_give_back(end->cq));
	end->sq = NULL;
	end->rq = NULL;
	end->cq = NULL;
}

static void destroy_end(struct end *end)
{
	mlx5_sq_abandon(end->sq);
	mlx5_rq_abandon(end->rq);
	mlx5_cq_abandon(end->cq);
	CHECK(ibv_destroy_qp(end->qp) == 0);
	CHECK(ibv_destroy_cq(end->ibv_cq) == 0);
	CHECK(ibv_destroy_comp_channel(end->channel) == 0);
	CHECK(ibv_dereg_mr(end->mr) == 0);
	free(end->memory);
}

static void end_pair(struct end *a, struct end *b)
{
	destroy_end(a);
	destroy_end(b);
	close_device();
}

static struct ibv_sge sge(const struct end *end, unsigned offset, uint32_t length)
{
	struct ibv_sge entry;
	entry.addr = (uint64_t)(uintptr_t)end->memory + offset;
	entry.length = length;
	entry.lkey = end->mr->lkey;
	return entry;
}

static struct mlx5_request request(uint64_t id, enum mlx5_operation operation, uint32_t flags)
{
	struct mlx5_request made;
	memset(&made, 0, sizeof(made));
	made.id = id;
	made.operation = (uint32_t)operation;
	made.flags = flags;
	return made;
}

static void aim(struct mlx5_request *made, const struct end *peer, unsigned offset)
{
	made->remote_addr = (uint64_t)(uintptr_t)peer->memory + offset;
	made->rkey = peer->mr->rkey;
}

static void post_receive(struct end *end, uint64_t id, struct ibv_sge *list, uint32_t count)
{
	struct mlx5_receive receive;
	uint32_t posted = 0;
	memset(&receive, 0, sizeof(receive));
	receive.id = id;
	receive.sg_list = list;
	receive.num_sge = count;
	OK(mlx5_rq_post(end->rq, &receive, 1, &posted));
	CHECK(posted == 1);
}

/* The next completion. */
static struct mlx5_completion next(struct end *end)
{
	struct mlx5_completion done;
	int count;
	while ((count = mlx5_cq_poll(end->cq, &done, 1)) == 0)
		sched_yield();
	CHECK(count == 1);
	return done;
}

static struct mlx5_completion succeeded(struct end *end, uint64_t id, enum mlx5_operation operation)
{
	struct mlx5_completion done = next(end);
	if (done.status || done.id != id || done.operation != (uint32_t)operation) {
		char text[512];
		mlx5_completion_text(&done, text, sizeof(text));
		fprintf(stderr, "id %d, operation %d expected: %s\n", (int)id, (int)operation, text);
		exit(1);
	}
	CHECK(done.qpn == end->qp->qp_num);
	return done;
}

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

/* A bad rkey: the completion tells, the requests behind it are flushed, and the queue starts again after RESET. */
static void failure(void)
{
	struct end a, b;
	struct ibv_sge source;
	struct mlx5_request writes[3];
	struct mlx5_completion done;
	struct ibv_qp_attr attr;
	char text[2048], small[8];
	int length;
	uint64_t id;
	make_pair(&a, &b, IBV_QPT_RC);
	take(&a);
	take(&b);
	source = sge(&a, SENT, 100);
	for (id = 0; id < 3; id++) {
		writes[id] = request(id, MLX5_OP_WRITE, id == 0 ? MLX5_SIGNALED : 0);
		writes[id].sg_list = &source;
		writes[id].num_sge = 1;
		aim(&writes[id], &b, WRITTEN);
	}
	writes[1].rkey ^= 0x5500;
	OK(mlx5_sq_post(a.sq, writes, 3, NULL));
	succeeded(&a, 0, MLX5_OP_WRITE);
	IS(MLX5_STATUS_NOT_IDLE, mlx5_sq_give_back(a.sq));
	done = next(&a);
	CHECK(done.id == 1 && done.status == IBV_WC_REM_ACCESS_ERR && done.operation == MLX5_OP_WRITE);
	CHECK(done.qpn == a.qp->qp_num && done.vendor_error != 0);
	length = mlx5_completion_text(&done, text, sizeof(text));
	CHECK(length > 0 && length == (int)strlen(text));
	CHECK(strstr(text, "RDMA WRITE with id 0x1") && strstr(text, "IBV_WC_REM_ACCESS_ERR"));
	CHECK(mlx5_completion_text(&done, small, sizeof(small)) == length && strcmp(small, "RDMA WR") == 0);
	CHECK(mlx5_completion_text(&done, NULL, 0) == length);
	CHECK(mlx5_completion_text(NULL, text, sizeof(text)) == -1);
	puts(text);
	done = next(&a);
	CHECK(done.id == 2 && done.status == IBV_WC_WR_FLUSH_ERR);
	IS(MLX5_STATUS_QUEUE_STOPPED, mlx5_sq_post(a.sq, writes, 1, NULL));
	CHECK(strstr(mlx5_last_error(), "reset"));
	IS(MLX5_STATUS_NOT_ON_TRANSPORT, mlx5_sq_recover(a.sq));
	/* All were polled: the queues can be given back. They start again at RESET. */
	give_back(&a);
	give_back(&b);
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RESET;
	CHECK(ibv_modify_qp(a.qp, &attr, IBV_QP_STATE) == 0);
	CHECK(ibv_modify_qp(b.qp, &attr, IBV_QP_STATE) == 0);
	to_init(a.qp);
	to_init(b.qp);
	to_rts(a.qp, b.qp->qp_num);
	to_rts(b.qp, a.qp->qp_num);
	take(&a);
	take(&b);
	exchange(&a, &b, 3);
	one_sided(&a, &b, 3);
	end_pair(&a, &b);
}

/* Misuse returns a status, and does nothing. */
static void misuse_of_take(struct end *a, struct end *b)
{
	struct mlx5_cq *cq = NULL;
	struct mlx5_sq *sq = NULL;
	struct mlx5_rq *rq = NULL;
	struct ibv_qp *fresh;

	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_cq_take(NULL, 0, &cq));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_cq_take(a->ibv_cq, 0, NULL));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_cq_take(a->ibv_cq, 8, &cq));
	take(a);
	OK(mlx5_cq_take(b->ibv_cq, 0, &b->cq));
	IS(MLX5_STATUS_IN_USE, mlx5_cq_take(a->ibv_cq, 0, &cq));
	IS(MLX5_STATUS_IN_USE, mlx5_sq_take(a->qp, a->cq, 0, 0, &sq));
	IS(MLX5_STATUS_IN_USE, mlx5_rq_take(a->qp, a->cq, 0, &rq));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_take(NULL, a->cq, 0, 0, &sq));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_take(b->qp, NULL, 0, 0, &sq));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_take(b->qp, b->cq, 0, 0, NULL));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_take(b->qp, b->cq, 0, 2, &sq));
	IS(MLX5_STATUS_WRONG_CQ, mlx5_sq_take(b->qp, a->cq, 0, 0, &sq));
	IS(MLX5_STATUS_WRONG_CQ, mlx5_rq_take(b->qp, a->cq, 0, &rq));
	IS(MLX5_STATUS_IN_USE, mlx5_cq_give_back(a->cq));
	CHECK(cq == NULL && sq == NULL && rq == NULL);

	/* In RESET and INIT. */
	fresh = make_qp(b->ibv_cq, IBV_QPT_RC);
	IS(MLX5_STATUS_WRONG_STATE, mlx5_rq_take(fresh, b->cq, 0, &rq));
	to_init(fresh);
	IS(MLX5_STATUS_WRONG_STATE, mlx5_sq_take(fresh, b->cq, 0, 0, &sq));
	CHECK(strstr(mlx5_last_error(), "INIT"));
	{
		struct ibv_sge target = sge(b, 0, 8);
		struct ibv_recv_wr receive, *bad;
		memset(&receive, 0, sizeof(receive));
		receive.sg_list = &target;
		receive.num_sge = 1;
		CHECK(ibv_post_recv(fresh, &receive, &bad) == 0);
		IS(MLX5_STATUS_NOT_IDLE, mlx5_rq_take(fresh, b->cq, 0, &rq));
		CHECK(strstr(mlx5_last_error(), "1 receives"));
	}
	CHECK(ibv_destroy_qp(fresh) == 0);

	/* On a completion queue of eight entries. */
	{
		struct ibv_cq *small = ibv_create_cq(context, 7, NULL, NULL, 0);
		CHECK(small);
		OK(mlx5_cq_take(small, 0, &cq));
		fresh = make_qp(small, IBV_QPT_RC);
		to_init(fresh);
		IS(MLX5_STATUS_CQ_TOO_SMALL, mlx5_rq_take(fresh, cq, DEPTH, &rq));
		CHECK(strstr(mlx5_last_error(), "8 entries has 8 free, and the queue needs 16"));
		OK(mlx5_rq_take(fresh, cq, 0, &rq));
		CHECK(mlx5_rq_capacity(rq) <= 8);
		OK(mlx5_rq_give_back(rq));
		OK(mlx5_cq_give_back(cq));
		cq = NULL;
		rq = NULL;
		CHECK(ibv_destroy_qp(fresh) == 0);
		CHECK(ibv_destroy_cq(small) == 0);
	}

	/* Alone at its register, and so few requests. */
	OK(mlx5_sq_give_back(a->sq));
	OK(mlx5_sq_take(a->qp, a->cq, 4, MLX5_SQ_OWN_REGISTER, &a->sq));
	CHECK(mlx5_sq_capacity(a->sq) == 4);
	OK(mlx5_sq_take(b->qp, b->cq, 0, 0, &b->sq));
	OK(mlx5_rq_take(b->qp, b->cq, 0, &b->rq));
}

static void misuse_of_posts(struct end *a, struct end *b)
{
	static unsigned char large[4096];
	struct ibv_sge entry = sge(a, SENT, 8), many[40];
	struct mlx5_request made = request(1, MLX5_OP_WRITE, MLX5_SIGNALED), none[2];
	struct mlx5_receive receive;
	struct mlx5_completion done;
	uint32_t posted, at;

	memset(&receive, 0, sizeof(receive));
	made.sg_list = &entry;
	made.num_sge = 1;
	aim(&made, b, WRITTEN);
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(NULL, &made, 1, NULL));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(a->sq, NULL, 1, NULL));
	OK(mlx5_sq_post(a->sq, NULL, 0, NULL));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_rq_post(NULL, &receive, 1, NULL));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_rq_post(a->rq, NULL, 1, NULL));
	CHECK(mlx5_cq_poll(NULL, &done, 1) == -MLX5_STATUS_INVALID_ARGUMENT);
	CHECK(mlx5_cq_poll(a->cq, NULL, 1) == -MLX5_STATUS_INVALID_ARGUMENT);
	CHECK(mlx5_cq_poll(a->cq, NULL, 0) == 0);
	CHECK(mlx5_sq_ibv(NULL) == NULL && mlx5_rq_ibv(NULL) == NULL && mlx5_cq_ibv(NULL) == NULL);
	CHECK(mlx5_sq_capacity(NULL) == 0 && mlx5_rq_capacity(NULL) == 0 && mlx5_cq_fd(NULL) == -1);
	mlx5_sq_abandon(NULL);
	mlx5_rq_abandon(NULL);
	mlx5_cq_abandon(NULL);

	made.operation = 77;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(a->sq, &made, 1, NULL));
	made.operation = MLX5_OP_UNEXPECTED;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(a->sq, &made, 1, NULL));
	made.operation = MLX5_OP_RECEIVE;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(a->sq, &made, 1, NULL));
	made.operation = MLX5_OP_WRITE;
	made.flags = MLX5_SIGNALED | MLX5_SOLICITED;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(a->sq, &made, 1, NULL));
	made.flags = 1u << 31;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(a->sq, &made, 1, NULL));
	made.flags = MLX5_SIGNALED;
	made.reserved = 1;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(a->sq, &made, 1, NULL));
	made.reserved = 0;
	made.operation = MLX5_OP_FETCH_ADD;
	entry.length = 4;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(a->sq, &made, 1, NULL));
	made.operation = MLX5_OP_WRITE;
	made.sg_list = NULL;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(a->sq, &made, 1, NULL));
	made.sg_list = &entry;

	made.flags = MLX5_SIGNALED | MLX5_INLINE;
	entry.addr = (uint64_t)(uintptr_t)large;
	entry.length = sizeof(large);
	IS(MLX5_STATUS_INLINE_TOO_LONG, mlx5_sq_post(a->sq, &made, 1, NULL));
	CHECK(strstr(mlx5_last_error(), "max_inline_data"));
	many[0] = many[1] = entry;
	made.sg_list = many;
	made.num_sge = 2;
	IS(MLX5_STATUS_INLINE_TOO_LONG, mlx5_sq_post(a->sq, &made, 1, NULL));
	entry.addr = 0;
	made.sg_list = &entry;
	made.num_sge = 1;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(a->sq, &made, 1, NULL));
	made.flags = MLX5_SIGNALED;
	entry = sge(a, SENT, 8);
	for (at = 0; at < 40; at++)
		many[at] = entry;
	made.sg_list = many;
	made.num_sge = 40;
	IS(MLX5_STATUS_TOO_MANY_SGES, mlx5_sq_post(a->sq, &made, 1, NULL));
	receive.sg_list = many;
	receive.num_sge = 40;
	IS(MLX5_STATUS_TOO_MANY_SGES, mlx5_rq_post(a->rq, &receive, 1, NULL));
	receive.num_sge = 1;
	receive.reserved = 1;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_rq_post(a->rq, &receive, 1, NULL));
	made.num_sge = 1;
	entry.length = 0x80000001u;
	made.sg_list = &entry;
	IS(MLX5_STATUS_SGE_TOO_LONG, mlx5_sq_post(a->sq, &made, 1, NULL));

	/* Room for four: the first of a list are posted. */
	entry = sge(a, SENT, 8);
	for (posted = 0, at = 0; at < 3; at++)
		OK(mlx5_sq_post(a->sq, &made, 1, NULL));
	none[0] = none[1] = made;
	IS(MLX5_STATUS_QUEUE_FULL, mlx5_sq_post(a->sq, none, 2, &posted));
	CHECK(posted == 1 && strstr(mlx5_last_error(), "4 requests"));
	IS(MLX5_STATUS_NOT_IDLE, mlx5_sq_give_back(a->sq));
	for (at = 0; at < 4; at++)
		succeeded(a, 1, MLX5_OP_WRITE);
	/* The last place is for a signaled one. */
	made.flags = 0;
	for (at = 0; at < 3; at++)
		OK(mlx5_sq_post(a->sq, &made, 1, NULL));
	IS(MLX5_STATUS_NOTHING_SIGNALED, mlx5_sq_post(a->sq, &made, 1, &posted));
	CHECK(posted == 0);
	IS(MLX5_STATUS_NOT_IDLE, mlx5_sq_give_back(a->sq));
	CHECK(strstr(mlx5_last_error(), "MLX5_OP_NOP"));
	made = request(9, MLX5_OP_NOP, MLX5_SIGNALED);
	OK(mlx5_sq_post(a->sq, &made, 1, NULL));
	succeeded(a, 9, MLX5_OP_NOP);
}

static void misuse_of_batches(struct end *a)
{
	struct mlx5_request made = request(1, MLX5_OP_NOP, MLX5_SIGNALED);
	struct mlx5_completion done;
	struct mlx5_rq *rq = NULL;
	IS(MLX5_STATUS_NO_BATCH, mlx5_sq_append(a->sq, &made));
	IS(MLX5_STATUS_NO_BATCH, mlx5_sq_ring(a->sq));
	IS(MLX5_STATUS_NO_BATCH, mlx5_sq_discard(a->sq));
	OK(mlx5_sq_begin(a->sq));
	IS(MLX5_STATUS_BATCH_OPEN, mlx5_sq_begin(a->sq));
	IS(MLX5_STATUS_BATCH_OPEN, mlx5_sq_post(a->sq, &made, 1, NULL));
	IS(MLX5_STATUS_BATCH_OPEN, mlx5_rq_post(a->rq, NULL, 0, NULL));
	IS(MLX5_STATUS_BATCH_OPEN, mlx5_sq_give_back(a->sq));
	IS(MLX5_STATUS_BATCH_OPEN, mlx5_rq_give_back(a->rq));
	IS(MLX5_STATUS_BATCH_OPEN, mlx5_rq_take(a->qp, a->cq, 0, &rq));
	CHECK(mlx5_cq_poll(a->cq, &done, 1) == -MLX5_STATUS_BATCH_OPEN);
	OK(mlx5_sq_append(a->sq, &made));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_append(a->sq, NULL));
	OK(mlx5_sq_discard(a->sq));
	CHECK(mlx5_cq_poll(a->cq, &done, 1) == 0);
	/* Nothing was posted, and an empty batch rings nothing. */
	OK(mlx5_sq_begin(a->sq));
	OK(mlx5_sq_ring(a->sq));
	OK(mlx5_sq_begin(a->sq));
	made.id = 2;
	OK(mlx5_sq_append(a->sq, &made));
	OK(mlx5_sq_ring(a->sq));
	succeeded(a, 2, MLX5_OP_NOP);
	/* Abandoned with an open batch and a receive outstanding. */
	post_receive(a, 1, NULL, 0);
	IS(MLX5_STATUS_NOT_IDLE, mlx5_rq_give_back(a->rq));
	CHECK(strstr(mlx5_last_error(), "1 receives"));
	OK(mlx5_sq_begin(a->sq));
	OK(mlx5_sq_append(a->sq, &made));
	mlx5_rq_abandon(a->rq);
	a->rq = NULL;
	IS(MLX5_STATUS_NO_BATCH, mlx5_sq_ring(a->sq));
}

static void misuse(void)
{
	struct end a, b;
	make_pair(&a, &b, IBV_QPT_RC);
	CHECK(mlx5_version() == MLX5_VERSION);
	CHECK(strcmp(mlx5_status_text(MLX5_STATUS_OK), "success") == 0);
	CHECK(strcmp(mlx5_last_error(), "no call of this thread has failed") == 0);
	misuse_of_take(&a, &b);
	misuse_of_posts(&a, &b);
	misuse_of_batches(&a);
	end_pair(&a, &b);
}

/* What libibverbs left in the completion queue is found at the take-over. */
static void leftovers(void)
{
	struct end a, b;
	struct ibv_send_wr send, *bad;
	struct pollfd ready;
	struct ibv_wc wc;
	struct ibv_cq *from;
	void *its;
	make_pair(&a, &b, IBV_QPT_RC);
	CHECK(ibv_req_notify_cq(a.ibv_cq, 0) == 0);
	memset(&send, 0, sizeof(send));
	send.opcode = IBV_WR_RDMA_WRITE;
	send.send_flags = IBV_SEND_SIGNALED;
	send.wr.rdma.remote_addr = (uint64_t)(uintptr_t)b.memory;
	send.wr.rdma.rkey = b.mr->rkey;
	CHECK(ibv_post_send(a.qp, &send, &bad) == 0);
	ready.fd = a.channel->fd;
	ready.events = POLLIN;
	CHECK(poll(&ready, 1, -1) == 1);
	IS(MLX5_STATUS_NOT_IDLE, mlx5_cq_take(a.ibv_cq, 0, &a.cq));
	CHECK(strstr(mlx5_last_error(), "ibv_get_cq_event"));
	CHECK(ibv_get_cq_event(a.channel, &from, &its) == 0 && from == a.ibv_cq);
	ibv_ack_cq_events(a.ibv_cq, 1);
	IS(MLX5_STATUS_NOT_IDLE, mlx5_cq_take(a.ibv_cq, 0, &a.cq));
	CHECK(strstr(mlx5_last_error(), "ibv_poll_cq"));
	CHECK(ibv_poll_cq(a.ibv_cq, 1, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	OK(mlx5_cq_take(a.ibv_cq, 0, &a.cq));
	OK(mlx5_cq_give_back(a.cq));
	OK(mlx5_cq_take(a.ibv_cq, MLX5_CQ_UNPOLLED, &a.cq));
	end_pair(&a, &b);
}

/* Events by libibverbs before the take-over, then by this library, in both ways. */
static void events(void)
{
	struct end a, b;
	struct ibv_send_wr send, *bad;
	struct ibv_cq *from, *second;
	struct ibv_wc wc;
	void *its;
	int lap;
	make_pair(&a, &b, IBV_QPT_RC);
	memset(&send, 0, sizeof(send));
	send.opcode = IBV_WR_RDMA_WRITE;
	send.send_flags = IBV_SEND_SIGNALED;
	send.wr.rdma.remote_addr = (uint64_t)(uintptr_t)b.memory;
	send.wr.rdma.rkey = b.mr->rkey;
	for (lap = 0; lap < 3; lap++) {
		CHECK(ibv_req_notify_cq(a.ibv_cq, 0) == 0);
		CHECK(ibv_post_send(a.qp, &send, &bad) == 0);
		CHECK(ibv_get_cq_event(a.channel, &from, &its) == 0);
		ibv_ack_cq_events(from, 1);
		CHECK(ibv_poll_cq(a.ibv_cq, 1, &wc) == 1);
	}
	take(&a);
	take(&b);
	CHECK(mlx5_cq_fd(a.cq) == a.channel->fd);
	IS(MLX5_STATUS_TIMED_OUT, mlx5_cq_wait(a.cq, 0));
	for (lap = 0; lap < 6; lap++) {
		struct mlx5_request nop = request((uint64_t)lap, MLX5_OP_NOP, MLX5_SIGNALED);
		struct mlx5_completion done;
		OK(mlx5_cq_arm(a.cq, 0));
		CHECK(mlx5_cq_poll(a.cq, &done, 1) == 0);
		OK(mlx5_sq_post(a.sq, &nop, 1, NULL));
		if (lap % 2) {
			CHECK(ibv_get_cq_event(a.channel, &from, &its) == 0 && from == a.ibv_cq);
			ibv_ack_cq_events(from, 1);
			OK(mlx5_cq_event_taken(a.cq));
		} else {
			OK(mlx5_cq_wait(a.cq, -1));
		}
		succeeded(&a, (uint64_t)lap, MLX5_OP_NOP);
	}
	/* Solicited ones only: a plain message raises none. */
	{
		struct mlx5_request message = request(1, MLX5_OP_SEND, MLX5_SIGNALED);
		OK(mlx5_cq_arm(b.cq, 1));
		post_receive(&b, 1, NULL, 0);
		post_receive(&b, 2, NULL, 0);
		OK(mlx5_sq_post(a.sq, &message, 1, NULL));
		succeeded(&a, 1, MLX5_OP_SEND);
		succeeded(&b, 1, MLX5_OP_RECEIVE);
		IS(MLX5_STATUS_TIMED_OUT, mlx5_cq_wait(b.cq, 0));
		message.flags |= MLX5_SOLICITED;
		OK(mlx5_sq_post(a.sq, &message, 1, NULL));
		OK(mlx5_cq_wait(b.cq, -1));
		CHECK(succeeded(&b, 2, MLX5_OP_RECEIVE).flags & MLX5_COMPLETION_SOLICITED);
		succeeded(&a, 1, MLX5_OP_SEND);
	}
	/* Whose event it is, only the program knows. */
	second = ibv_create_cq(context, 1, NULL, a.channel, 0);
	CHECK(second);
	IS(MLX5_STATUS_CHANNEL_SHARED, mlx5_cq_wait(a.cq, 0));
	CHECK(ibv_destroy_cq(second) == 0);
	second = ibv_create_cq(context, 1, NULL, NULL, 0);
	CHECK(second);
	{
		struct mlx5_cq *cq;
		OK(mlx5_cq_take(second, 0, &cq));
		IS(MLX5_STATUS_NO_CHANNEL, mlx5_cq_arm(cq, 0));
		IS(MLX5_STATUS_NO_CHANNEL, mlx5_cq_wait(cq, 0));
		CHECK(mlx5_cq_fd(cq) == -1);
		OK(mlx5_cq_give_back(cq));
	}
	CHECK(ibv_destroy_cq(second) == 0);
	give_back(&a);
	give_back(&b);
	end_pair(&a, &b);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} scenarios[] = {
		{ "rc", rc },         { "uc", uc },         { "ud", ud },
		{ "failure", failure }, { "misuse", misuse }, { "leftovers", leftovers },
		{ "events", events },
	};
	unsigned at;
	CHECK(argc == 2);
	for (at = 0; at < sizeof(scenarios) / sizeof(scenarios[0]); at++) {
		if (strcmp(argv[1], scenarios[at].name) == 0) {
			scenarios[at].run();
			puts("done");
			return 0;
		}
	}
	fprintf(stderr, "there is no scenario %s\n", argv[1]);
	return 2;
}
