/* Receives of DC targets, and of XRC: polled from the shared receive queues that were taken over. */
#ifndef TARGETS_H
#define TARGETS_H

#include "addressed.h"
#include "shared.h"

#ifdef __cplusplus
#include "mlx5.hpp"
#endif

enum { BOTH = 2 };

/* Two targets, or two shared receive queues, on the completion queue of one end, and an initiator at the other. */
struct targets {
	struct end from, to;
	struct ibv_srq *ibv_srqs[BOTH];
	struct mlx5_srq *srqs[BOTH];
	struct ibv_qp *initiator;
	struct ibv_qp *qps[BOTH];
	struct mlx5_address addresses[BOTH];
};

static void post_into(struct targets *targets, struct mlx5_srq *srq, uint64_t id, uint32_t length)
{
	struct ibv_sge into = sge(&targets->to, (unsigned)(id % DEPTH) * 64, length);
	struct mlx5_receive receive;
	memset(&receive, 0, sizeof(receive));
	receive.id = id;
	receive.sg_list = &into;
	receive.num_sge = 1;
	OK(mlx5_srq_post(srq, &receive, 1, NULL));
}

/* Sends a number to an address, without waiting for it. */
static void send_to(struct targets *targets, unsigned to, uint32_t number)
{
	struct ibv_sge from;
	struct mlx5_request made = request(number, MLX5_OP_SEND_IMM, MLX5_SIGNALED | MLX5_INLINE);
	from.addr = (uint64_t)(uintptr_t)&number;
	from.length = sizeof(number);
	from.lkey = 0;
	made.sg_list = &from;
	made.num_sge = 1;
	made.immediate = ~number;
	made.address = &targets->addresses[to];
	OK(mlx5_sq_post(targets->from.sq, &made, 1, NULL));
}

/* The next completion is of this receive, by this queue pair, and has the number. */
static void number_came(struct targets *targets, const struct ibv_qp *qp, uint64_t id, uint32_t number)
{
	struct mlx5_completion done = next(&targets->to);
	uint32_t found;
	memcpy(&found, targets->to.memory + id % DEPTH * 64, sizeof(found));
	CHECK(done.status == 0 && done.id == id && done.operation == MLX5_OP_RECEIVE_IMM);
	CHECK(done.qpn == qp->qp_num && done.byte_len == 4 && done.immediate == ~number && found == number);
}

/* A WRITE with immediate, whose bytes do not go to the receive. */
static void write_to(struct targets *targets, unsigned to, const struct ibv_qp *qp, uint64_t id)
{
	struct ibv_sge data = sge(&targets->from, 0, 8);
	struct mlx5_request made = request(1, MLX5_OP_WRITE_IMM, MLX5_SIGNALED);
	struct mlx5_completion done;
	made.sg_list = &data;
	made.num_sge = 1;
	made.immediate = 0x77;
	made.address = &targets->addresses[to];
	aim(&made, &targets->to, MEMORY / 2);
	complete(&targets->from, &made);
	done = next(&targets->to);
	CHECK(done.status == 0 && done.id == id && done.operation == MLX5_OP_RECEIVE_WRITE_IMM);
	CHECK(done.qpn == qp->qp_num && done.byte_len == 8 && done.immediate == 0x77);
}

/* An address handle is gone when its address is used. */
static void address_target(struct targets *targets, unsigned at)
{
	struct ibv_ah_attr to = path();
	struct ibv_ah *ah = ibv_create_ah(pd, &to);
	CHECK(ah);
	OK(mlx5_address_init_dc(&targets->addresses[at], ah, targets->qps[at]->qp_num, ACCESS_KEY));
	CHECK(ibv_destroy_ah(ah) == 0);
}

/* Ends of dynamic connections where others are wanted. None of these calls may ask libmlx5 for a target's register. */
static void misuse_of_targets(struct targets *targets)
{
	struct mlx5_srq *srq = targets->srqs[0];
	struct mlx5_sq *sq = NULL;
	struct mlx5_rq *rq = NULL;
	struct ibv_srq *other = make_srq();
	struct ibv_qp *qp = make_dc(targets->to.ibv_cq, targets->ibv_srqs[0]);
	/* It has a number from RTR on. */
	IS(MLX5_STATUS_WRONG_STATE, mlx5_srq_attach(srq, qp));
	CHECK(strstr(mlx5_last_error(), "RTR"));
	IS(MLX5_STATUS_NOT_ON_TRANSPORT, mlx5_sq_take(qp, targets->to.cq, 0, 0, &sq));
	dc_to_init(qp, IBV_ACCESS_REMOTE_WRITE);
	IS(MLX5_STATUS_WRONG_STATE, mlx5_srq_attach(srq, qp));
	CHECK(ibv_destroy_qp(qp) == 0);
	IS(MLX5_STATUS_NOT_ON_TRANSPORT, mlx5_sq_take(targets->qps[0], targets->to.cq, 0, 0, &sq));
	CHECK(strstr(mlx5_last_error(), "MLX5DV_DCTYPE_DCI"));
	IS(MLX5_STATUS_NOT_ON_TRANSPORT, mlx5_rq_take(targets->qps[0], targets->to.cq, 0, &rq));
	CHECK(strstr(mlx5_last_error(), "mlx5_srq_attach"));
	IS(MLX5_STATUS_NOT_ON_TRANSPORT, mlx5_srq_attach(srq, targets->initiator));
	CHECK(strstr(mlx5_last_error(), "MLX5DV_DCTYPE_DCT"));
	IS(MLX5_STATUS_IN_USE, mlx5_srq_attach(srq, targets->qps[0]));
	/* From another shared receive queue, and on another completion queue. */
	qp = make_dc(targets->to.ibv_cq, other);
	dct_to_rtr(qp);
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_srq_attach(srq, qp));
	CHECK(strstr(mlx5_last_error(), "shared receive queue"));
	CHECK(ibv_destroy_qp(qp) == 0);
	qp = make_dc(targets->from.ibv_cq, targets->ibv_srqs[0]);
	dct_to_rtr(qp);
	IS(MLX5_STATUS_WRONG_CQ, mlx5_srq_attach(srq, qp));
	CHECK(ibv_destroy_qp(qp) == 0);
	CHECK(sq == NULL && rq == NULL && ibv_destroy_srq(other) == 0);
}

static void dct(void)
{
	static struct targets made;
	uint64_t ids[4];
	uint32_t at;
	open_device();
	make_end(&made.from, IBV_QPT_RC);
	make_end(&made.to, IBV_QPT_RC);
	made.ibv_srqs[0] = make_srq();
	OK(mlx5_cq_take(made.to.ibv_cq, 0, &made.to.cq));
	OK(mlx5_srq_take(made.ibv_srqs[0], made.to.cq, 0, &made.srqs[0]));
	for (at = 0; at < BOTH; at++) {
		made.qps[at] = make_dc(made.to.ibv_cq, made.ibv_srqs[0]);
		dct_to_rtr(made.qps[at]);
		OK(mlx5_srq_attach(made.srqs[0], made.qps[at]));
		address_target(&made, at);
	}
	made.initiator = make_dc(made.from.ibv_cq, NULL);
	dci_to_rts(made.initiator);
	take_sends(&made.from, made.initiator);
	misuse_of_targets(&made);
	/* Receives are taken in the order of posting, by whichever target gets a message. */
	for (at = 0; at < 10 * DEPTH; at++) {
		unsigned to = at / 3 % 2;
		post_into(&made, made.srqs[0], at, 64);
		send_to(&made, to, at + 7);
		succeeded(&made.from, at + 7, MLX5_OP_SEND_IMM);
		number_came(&made, made.qps[to], at, at + 7);
	}
	post_into(&made, made.srqs[0], 5, 64);
	write_to(&made, 1, made.qps[1], 5);
	/* Detached with a completion that was not polled, and attached again. */
	post_into(&made, made.srqs[0], 77, 64);
	send_to(&made, 1, 1);
	succeeded(&made.from, 1, MLX5_OP_SEND_IMM);
	OK(mlx5_srq_detach(made.srqs[0], made.qps[1]));
	CHECK(mlx5_srq_reclaimed(made.srqs[0], ids, 4) == 1 && ids[0] == 77);
	OK(mlx5_srq_attach(made.srqs[0], made.qps[1]));
	post_into(&made, made.srqs[0], 78, 64);
	send_to(&made, 1, 2);
	succeeded(&made.from, 2, MLX5_OP_SEND_IMM);
	number_came(&made, made.qps[1], 78, 2);
	/* Abandoned with a receive. */
	post_into(&made, made.srqs[0], 5, 64);
	mlx5_srq_abandon(made.srqs[0]);
	for (at = 0; at < BOTH; at++)
		CHECK(ibv_destroy_qp(made.qps[at]) == 0);
	CHECK(ibv_destroy_srq(made.ibv_srqs[0]) == 0);
	destroy_end(&made.from);
	destroy_end(&made.to);
	close_device();
}

/* Shared receive queues of other kinds than the function is for. */
static void misuse_of_xrc(struct targets *targets, struct ibv_xrcd *domain)
{
	struct ibv_srq *plain = make_srq(), *elsewhere = make_xrc_srq(domain, targets->from.ibv_cq);
	struct mlx5_srq *srq = NULL;
	struct mlx5_rq *rq = NULL;
	IS(MLX5_STATUS_WRONG_KIND, mlx5_srq_take_xrc(plain, targets->to.cq, 0, &srq));
	CHECK(strstr(mlx5_last_error(), "mlx5_srq_take, "));
	IS(MLX5_STATUS_WRONG_KIND, mlx5_srq_take(elsewhere, targets->from.cq, 0, &srq));
	CHECK(strstr(mlx5_last_error(), "mlx5_srq_take_xrc"));
	IS(MLX5_STATUS_WRONG_CQ, mlx5_srq_take_xrc(elsewhere, targets->to.cq, 0, &srq));
	IS(MLX5_STATUS_IN_USE, mlx5_srq_take_xrc(targets->ibv_srqs[0], targets->to.cq, 0, &srq));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_srq_take_xrc(NULL, targets->to.cq, 0, &srq));
	IS(MLX5_STATUS_WRONG_KIND, mlx5_srq_attach(targets->srqs[0], targets->qps[0]));
	IS(MLX5_STATUS_NOT_ON_TRANSPORT, mlx5_rq_take(targets->qps[0], targets->to.cq, 0, &rq));
	CHECK(strstr(mlx5_last_error(), "mlx5_srq_take_xrc"));
	/* What was refused can be taken over. */
	OK(mlx5_srq_take(plain, targets->to.cq, 1, &srq));
	IS(MLX5_STATUS_NOT_ON_TRANSPORT, mlx5_srq_attach(srq, targets->qps[0]));
	CHECK(strstr(mlx5_last_error(), "mlx5_srq_take_xrc"));
	mlx5_srq_abandon(srq);
	OK(mlx5_srq_take_xrc(elsewhere, targets->from.cq, 1, &srq));
	mlx5_srq_abandon(srq);
	CHECK(rq == NULL && ibv_destroy_srq(plain) == 0 && ibv_destroy_srq(elsewhere) == 0);
}

/* One that matches tags, on a completion queue that can tell of them. */
static void misuse_of_tags(struct targets *targets)
{
	struct ibv_cq_init_attr_ex cq_attr;
	struct ibv_srq_init_attr_ex attr;
	struct mlx5_srq *taken = NULL;
	struct ibv_cq_ex *cq;
	struct ibv_srq *srq;
	memset(&cq_attr, 0, sizeof(cq_attr));
	cq_attr.cqe = CQES;
	cq_attr.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_TM_INFO;
	cq = ibv_create_cq_ex(context, &cq_attr);
	CHECK(cq);
	memset(&attr, 0, sizeof(attr));
	attr.attr.max_wr = DEPTH;
	attr.attr.max_sge = 1;
	attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
	attr.srq_type = IBV_SRQT_TM;
	attr.pd = pd;
	attr.cq = ibv_cq_ex_to_cq(cq);
	attr.tm_cap.max_num_tags = 4;
	attr.tm_cap.max_ops = 4;
	srq = ibv_create_srq_ex(context, &attr);
	CHECK(srq);
	IS(MLX5_STATUS_WRONG_KIND, mlx5_srq_take(srq, targets->to.cq, 0, &taken));
	CHECK(strstr(mlx5_last_error(), "IBV_SRQT_TM"));
	IS(MLX5_STATUS_WRONG_KIND, mlx5_srq_take_xrc(srq, targets->to.cq, 0, &taken));
	CHECK(taken == NULL && ibv_destroy_srq(srq) == 0 && ibv_destroy_cq(attr.cq) == 0);
}

/* The class of C++ takes one over and ends it. */
static void xrc_of_cpp(struct ibv_xrcd *domain)
{
#ifdef __cplusplus
	struct ibv_cq *cq = ibv_create_cq(context, CQES, NULL, NULL, 0);
	struct ibv_srq *srq = make_xrc_srq(domain, cq);
	{
		mlx5::cq completions(cq);
		mlx5::srq receives(mlx5::of_xrc(), srq, completions);
		CHECK(receives.ibv() == srq && receives.capacity() >= DEPTH);
	}
	CHECK(ibv_destroy_srq(srq) == 0 && ibv_destroy_cq(cq) == 0);
#else
	(void)domain;
#endif
}

/* Two shared receive queues of one domain. The target of the connection is the same for both. */
static void xrc_receives(void)
{
	static struct targets made;
	struct mlx5_completion done;
	struct ibv_xrcd *domain;
	uint32_t at, number = 0;
	open_device();
	make_end(&made.from, IBV_QPT_RC);
	make_end(&made.to, IBV_QPT_RC);
	domain = open_domain();
	OK(mlx5_cq_take(made.to.ibv_cq, 0, &made.to.cq));
	for (at = 0; at < BOTH; at++) {
		made.ibv_srqs[at] = make_xrc_srq(domain, made.to.ibv_cq);
		OK(mlx5_srq_take_xrc(made.ibv_srqs[at], made.to.cq, 0, &made.srqs[at]));
		CHECK(mlx5_srq_ibv(made.srqs[at]) == made.ibv_srqs[at] && mlx5_srq_capacity(made.srqs[at]) >= DEPTH);
		CHECK(ibv_get_srq_num(made.ibv_srqs[at], &number) == 0);
		OK(mlx5_address_init_xrc(&made.addresses[at], number));
	}
	made.qps[0] = make_xrc(IBV_QPT_XRC_RECV, NULL, domain);
	made.initiator = make_xrc(IBV_QPT_XRC_SEND, made.from.ibv_cq, NULL);
	xrc_to(made.qps[0], made.initiator->qp_num);
	xrc_to(made.initiator, made.qps[0]->qp_num);
	take_sends(&made.from, made.initiator);
	misuse_of_xrc(&made, domain);
	xrc_of_cpp(domain);
	/* On RoCE, libmlx5 makes none: its own queue pair would need a GID. */
	if (port.link_layer == IBV_LINK_LAYER_INFINIBAND)
		misuse_of_tags(&made);
	/* A queue pair with a receive queue of its own completes beside them. */
	OK(mlx5_rq_take(made.to.qp, made.to.cq, 1, &made.to.rq));
	OK(mlx5_rq_give_back(made.to.rq));
	made.to.rq = NULL;
	/* Messages name the queue: the ids of one are even, and those of the other are odd. */
	for (at = 0; at < DEPTH / 2; at++)
		post_into(&made, made.srqs[at % 2], at, 64);
	for (at = 0; at < 10 * DEPTH; at++) {
		send_to(&made, at % 2, at + 7);
		succeeded(&made.from, at + 7, MLX5_OP_SEND_IMM);
		number_came(&made, made.qps[0], at, at + 7);
		post_into(&made, made.srqs[at % 2], at + DEPTH / 2, 64);
	}
	write_to(&made, 1, made.qps[0], at + 1 - at % 2);
	/* A message that is too long for its receive: both ends fail. */
	mlx5_srq_abandon(made.srqs[0]);
	CHECK(ibv_destroy_srq(made.ibv_srqs[0]) == 0);
	made.ibv_srqs[0] = make_xrc_srq(domain, made.to.ibv_cq);
	OK(mlx5_srq_take_xrc(made.ibv_srqs[0], made.to.cq, 0, &made.srqs[0]));
	CHECK(ibv_get_srq_num(made.ibv_srqs[0], &number) == 0);
	OK(mlx5_address_init_xrc(&made.addresses[0], number));
	post_into(&made, made.srqs[0], 9, 3);
	send_to(&made, 0, 1);
	done = next(&made.from);
	CHECK(done.id == 1 && done.status == IBV_WC_REM_INV_REQ_ERR);
	done = next(&made.to);
	CHECK(done.id == 9 && done.status == IBV_WC_LOC_LEN_ERR && done.qpn == made.qps[0]->qp_num);
	for (at = 0; at < BOTH; at++) {
		mlx5_srq_abandon(made.srqs[at]);
		CHECK(ibv_destroy_srq(made.ibv_srqs[at]) == 0);
	}
	destroy_end(&made.from);
	CHECK(ibv_destroy_qp(made.qps[0]) == 0);
	destroy_end(&made.to);
	CHECK(ibv_close_xrcd(domain) == 0);
	close_device();
}

#endif
