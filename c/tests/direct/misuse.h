/* What a program does wrong. */
#ifndef MISUSE_H
#define MISUSE_H

#include "ends.h"

/* Misuse returns a status, and does nothing. */
static void misuse_of_take(struct end *a, struct end *b)
{
	struct mlx5_cq *cq = NULL;
	struct mlx5_sq *sq = NULL;
	struct mlx5_rq *rq = NULL;

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

	/* Alone at its register, and so few requests. */
	OK(mlx5_sq_give_back(a->sq));
	OK(mlx5_sq_take(a->qp, a->cq, 4, MLX5_SQ_OWN_REGISTER, &a->sq));
	CHECK(mlx5_sq_capacity(a->sq) == 4);
	OK(mlx5_sq_take(b->qp, b->cq, 0, 0, &b->sq));
	OK(mlx5_rq_take(b->qp, b->cq, 0, &b->rq));
}

/* Queue pairs that were not moved to RTS. */
static void misuse_of_states(struct end *b)
{
	struct mlx5_cq *cq = NULL;
	struct mlx5_sq *sq = NULL;
	struct mlx5_rq *rq = NULL;
	struct ibv_qp *fresh = make_qp(b->ibv_cq, IBV_QPT_RC);

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
		CHECK(ibv_destroy_qp(fresh) == 0);
		CHECK(ibv_destroy_cq(small) == 0);
	}
}

/* A queue pair that receives from a shared receive queue, and one of another transport. */
static void misuse_of_kinds(struct end *b)
{
	struct mlx5_rq *rq = NULL;
	struct mlx5_sq *sq = NULL;
	struct ibv_srq *srq = make_srq();
	struct ibv_qp *qp = make_qp_with(b->ibv_cq, IBV_QPT_RC, srq);
	to_init(qp);
	IS(MLX5_STATUS_NO_QUEUE, mlx5_rq_take(qp, b->cq, 0, &rq));
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(ibv_destroy_srq(srq) == 0);
	qp = make_qp(b->ibv_cq, IBV_QPT_RAW_PACKET);
	IS(MLX5_STATUS_NOT_ON_TRANSPORT, mlx5_rq_take(qp, b->cq, 0, &rq));
	IS(MLX5_STATUS_WRONG_STATE, mlx5_sq_take(qp, b->cq, 0, 0, &sq));
	CHECK(ibv_destroy_qp(qp) == 0);
}

/* Queue pairs that share a register: libmlx5 gives the same to several. */
static void misuse_of_registers(void)
{
	enum { MOST = 64 };
	struct ibv_qp *qps[MOST];
	struct mlx5_sq *sqs[MOST];
	enum mlx5_status status = MLX5_STATUS_OK;
	struct ibv_cq *large = ibv_create_cq(context, 4 * MOST, NULL, NULL, 0);
	struct mlx5_cq *cq = NULL;
	int count = 0;
	CHECK(large);
	OK(mlx5_cq_take(large, 0, &cq));
	while (status == MLX5_STATUS_OK) {
		CHECK(count < MOST);
		qps[count] = make_qp(large, IBV_QPT_RC);
		to_init(qps[count]);
		to_rts(qps[count], qps[count]->qp_num);
		status = mlx5_sq_take(qps[count], cq, 2, MLX5_SQ_OWN_REGISTER, &sqs[count]);
		count++;
	}
	IS(MLX5_STATUS_REGISTER_SHARED, status);
	CHECK(strstr(mlx5_last_error(), "MLX5_SQ_OWN_REGISTER"));
	/* Not even to ring. */
	IS(MLX5_STATUS_REGISTER_SHARED, mlx5_sq_take(qps[count - 1], cq, 2, 0, &sqs[count - 1]));
	CHECK(ibv_destroy_qp(qps[--count]) == 0);
	while (count-- > 0) {
		OK(mlx5_sq_give_back(sqs[count]));
		CHECK(ibv_destroy_qp(qps[count]) == 0);
	}
	OK(mlx5_cq_give_back(cq));
	CHECK(ibv_destroy_cq(large) == 0);
}

/* A completion queue of another driver, as far as libmlx5 looks at it. */
static void misuse_of_other_drivers(void)
{
	static uint64_t device[512];
	static struct ibv_context other;
	static struct ibv_cq cq;
	struct mlx5_cq *taken = NULL;
	other.device = (struct ibv_device *)device;
	cq.context = &other;
	cq.cqe = 63;
	IS(MLX5_STATUS_NOT_MLX5, mlx5_cq_take(&cq, 0, &taken));
	CHECK(taken == NULL);
}

/* Pointers that are null. */
static void misuse_of_pointers(struct end *a)
{
	struct mlx5_request made = request(1, MLX5_OP_NOP, MLX5_SIGNALED);
	struct mlx5_receive receive;
	struct mlx5_completion done;
	uint64_t time;
	memset(&receive, 0, sizeof(receive));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(NULL, &made, 1, NULL));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(a->sq, NULL, 1, NULL));
	OK(mlx5_sq_post(a->sq, NULL, 0, NULL));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_rq_post(NULL, &receive, 1, NULL));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_rq_post(a->rq, NULL, 1, NULL));
	CHECK(mlx5_cq_poll(NULL, &done, 1) == -MLX5_STATUS_INVALID_ARGUMENT);
	CHECK(mlx5_cq_poll(a->cq, NULL, 1) == -MLX5_STATUS_INVALID_ARGUMENT);
	CHECK(mlx5_cq_poll(a->cq, NULL, 0) == 0);
	CHECK(mlx5_cq_poll_timed(NULL, &done, &time, 1) == -MLX5_STATUS_INVALID_ARGUMENT);
	CHECK(mlx5_cq_poll_timed(a->cq, NULL, &time, 1) == -MLX5_STATUS_INVALID_ARGUMENT);
	CHECK(mlx5_cq_poll_timed(a->cq, &done, NULL, 1) == -MLX5_STATUS_INVALID_ARGUMENT);
	CHECK(mlx5_cq_poll_timed(a->cq, NULL, NULL, 0) == 0);
	CHECK(mlx5_sq_ibv(NULL) == NULL && mlx5_rq_ibv(NULL) == NULL && mlx5_cq_ibv(NULL) == NULL);
	CHECK(mlx5_sq_capacity(NULL) == 0 && mlx5_rq_capacity(NULL) == 0 && mlx5_cq_fd(NULL) == -1);
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_cq_give_back(NULL));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_begin(NULL));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_cq_arm(NULL, 0));
	mlx5_sq_abandon(NULL);
	mlx5_rq_abandon(NULL);
	mlx5_cq_abandon(NULL);
}

/* A request that is refused for its fields. */
static void misuse_of_fields(struct end *a, struct end *b)
{
	struct ibv_sge entry = sge(a, SENT, 8);
	struct mlx5_request good = request(1, MLX5_OP_WRITE, MLX5_SIGNALED), made;
	good.sg_list = &entry;
	good.num_sge = 1;
	aim(&good, b, WRITTEN);
#define REFUSED(field, value)                                                                      \
	do {                                                                                       \
		made = good;                                                                       \
		made.field = (value);                                                              \
		IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(a->sq, &made, 1, NULL));             \
	} while (0)
	REFUSED(operation, 77);
	REFUSED(operation, MLX5_OP_UNEXPECTED);
	REFUSED(operation, MLX5_OP_RECEIVE);
	REFUSED(flags, MLX5_SIGNALED | MLX5_SOLICITED);
	REFUSED(flags, 1u << 31);
	REFUSED(reserved, 1);
	REFUSED(sg_list, NULL);
	entry.length = 4;
	REFUSED(operation, MLX5_OP_FETCH_ADD);
	good.flags |= MLX5_INLINE;
	REFUSED(operation, MLX5_OP_READ);
	entry.addr = 0;
	REFUSED(operation, MLX5_OP_WRITE);
#undef REFUSED
}

/* More than the queue was made for. */
static void misuse_of_limits(struct end *a, struct end *b)
{
	static unsigned char large[4096];
	struct ibv_sge entry = sge(a, SENT, 8), many[40];
	struct mlx5_request made = request(1, MLX5_OP_WRITE, MLX5_SIGNALED | MLX5_INLINE);
	struct mlx5_receive receive;
	unsigned at;
	aim(&made, b, WRITTEN);
	many[0].addr = (uint64_t)(uintptr_t)large;
	many[0].length = sizeof(large);
	many[0].lkey = 0;
	many[1] = many[0];
	made.sg_list = many;
	made.num_sge = 1;
	IS(MLX5_STATUS_INLINE_TOO_LONG, mlx5_sq_post(a->sq, &made, 1, NULL));
	CHECK(strstr(mlx5_last_error(), "max_inline_data"));
	made.num_sge = 2;
	IS(MLX5_STATUS_INLINE_TOO_LONG, mlx5_sq_post(a->sq, &made, 1, NULL));
	for (at = 0; at < 40; at++)
		many[at] = entry;
	made.flags = MLX5_SIGNALED;
	made.num_sge = 40;
	IS(MLX5_STATUS_TOO_MANY_SGES, mlx5_sq_post(a->sq, &made, 1, NULL));
	many[0].length = 0x80000001u;
	made.num_sge = 1;
	IS(MLX5_STATUS_SGE_TOO_LONG, mlx5_sq_post(a->sq, &made, 1, NULL));
	memset(&receive, 0, sizeof(receive));
	receive.sg_list = many + 1;
	receive.num_sge = 39;
	IS(MLX5_STATUS_TOO_MANY_SGES, mlx5_rq_post(a->rq, &receive, 1, NULL));
	receive.num_sge = 1;
	receive.reserved = 1;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_rq_post(a->rq, &receive, 1, NULL));
}

/* A queue that was taken over for four requests. */
static void misuse_of_room(struct end *a, struct end *b)
{
	struct ibv_sge entry = sge(a, SENT, 8);
	struct mlx5_request made = request(1, MLX5_OP_WRITE, MLX5_SIGNALED), two[2];
	uint32_t posted = 0, at;
	made.sg_list = &entry;
	made.num_sge = 1;
	aim(&made, b, WRITTEN);
	/* The first of a list are posted. */
	for (at = 0; at < 3; at++)
		OK(mlx5_sq_post(a->sq, &made, 1, NULL));
	two[0] = two[1] = made;
	IS(MLX5_STATUS_QUEUE_FULL, mlx5_sq_post(a->sq, two, 2, &posted));
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
	uint64_t time;
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
	CHECK(mlx5_cq_poll_timed(a->cq, &done, &time, 1) == -MLX5_STATUS_BATCH_OPEN);
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

/* A queue of a single request takes a signaled one, and no other before it is polled. */
static void single_request(struct end *a)
{
	struct mlx5_request made = request(3, MLX5_OP_NOP, 0);
	OK(mlx5_sq_give_back(a->sq));
	OK(mlx5_sq_take(a->qp, a->cq, 1, 0, &a->sq));
	CHECK(mlx5_sq_capacity(a->sq) == 1);
	IS(MLX5_STATUS_NOTHING_SIGNALED, mlx5_sq_post(a->sq, &made, 1, NULL));
	made.flags = MLX5_SIGNALED;
	OK(mlx5_sq_post(a->sq, &made, 1, NULL));
	IS(MLX5_STATUS_QUEUE_FULL, mlx5_sq_post(a->sq, &made, 1, NULL));
	succeeded(a, 3, MLX5_OP_NOP);
	OK(mlx5_sq_post(a->sq, &made, 1, NULL));
	succeeded(a, 3, MLX5_OP_NOP);
}

static void misuse(void)
{
	struct end a, b;
	make_pair(&a, &b, IBV_QPT_RC);
	CHECK(mlx5_version() == MLX5_VERSION);
	CHECK(strcmp(mlx5_status_text(MLX5_STATUS_OK), "success") == 0);
	CHECK(strcmp(mlx5_last_error(), "no call of this thread has failed") == 0);
	misuse_of_take(&a, &b);
	misuse_of_states(&b);
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET)
		misuse_of_kinds(&b);
	misuse_of_registers();
	misuse_of_other_drivers();
	misuse_of_pointers(&a);
	misuse_of_fields(&a, &b);
	misuse_of_limits(&a, &b);
	misuse_of_room(&a, &b);
	misuse_of_batches(&a);
	single_request(&a);
	end_pair(&a, &b);
}

#endif
