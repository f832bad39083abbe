/* Requests that carry their destination: on dynamic connections, and on extended reliable ones. */
#ifndef ADDRESSED_H
#define ADDRESSED_H

#include <arpa/inet.h>
#include <fcntl.h>

#include <infiniband/mlx5dv.h>

#include "ends.h"

#define ACCESS_KEY 0x1234567890abcdefull

enum { VALUE = 256, OLD_VALUE = 320, INTO = 512 };

/* Posts a request and waits for it. */
static void complete(struct end *end, struct mlx5_request *made)
{
	OK(mlx5_sq_post(end->sq, made, 1, NULL));
	succeeded(end, made->id, (enum mlx5_operation)made->operation);
}

/* Every operation, to an address. The peer has a receive. */
static void operations_to(struct end *end, const struct end *peer, const struct mlx5_address *address)
{
	struct ibv_sge data = sge(end, 0, 8), old = sge(end, OLD_VALUE, 8), text;
	struct mlx5_request made = request(1, MLX5_OP_WRITE, MLX5_SIGNALED);
	uint64_t value = 40;
	memcpy(end->memory, &value, sizeof(value));
	made.sg_list = &data;
	made.num_sge = 1;
	made.address = address;
	aim(&made, peer, VALUE);
	complete(end, &made);

	made.operation = MLX5_OP_FETCH_ADD;
	made.compare_add = 2;
	made.sg_list = &old;
	complete(end, &made);
	made.operation = MLX5_OP_COMPARE_SWAP;
	made.compare_add = 42;
	made.swap = 43;
	complete(end, &made);
	memcpy(&value, end->memory + OLD_VALUE, sizeof(value));
	CHECK(value == 42);
	made.operation = MLX5_OP_READ;
	complete(end, &made);
	memcpy(&value, end->memory + OLD_VALUE, sizeof(value));
	CHECK(value == 43);
	made.operation = MLX5_OP_MASKED_FETCH_ADD;
	made.compare_add = 1;
	complete(end, &made);
	made.operation = MLX5_OP_MASKED_COMPARE_SWAP;
	made.compare_add = 44;
	made.compare_mask = made.swap_mask = 0xff;
	made.swap = 45;
	complete(end, &made);
	memcpy(&value, end->memory + OLD_VALUE, sizeof(value));
	CHECK(value == 44);

	/* In a batch. */
	text.addr = (uint64_t)(uintptr_t)"addressed";
	text.length = 9;
	text.lkey = 0;
	made = request(2, MLX5_OP_SEND_IMM, MLX5_SIGNALED | MLX5_INLINE);
	made.sg_list = &text;
	made.num_sge = 1;
	made.immediate = 0xabcdef01;
	made.address = address;
	OK(mlx5_sq_begin(end->sq));
	OK(mlx5_sq_append(end->sq, &made));
	OK(mlx5_sq_ring(end->sq));
	succeeded(end, 2, MLX5_OP_SEND_IMM);
	made = request(3, MLX5_OP_NOP, MLX5_SIGNALED);
	complete(end, &made);

	/* Without an address of its transport. */
	made.operation = MLX5_OP_SEND;
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_sq_post(end->sq, &made, 1, NULL));
	CHECK(strstr(mlx5_last_error(), "mlx5_address_init_"));
	IS(MLX5_STATUS_NOT_ON_TRANSPORT, mlx5_sq_recover(end->sq));
}

/* The message is there, in the shared receive queue of the peer, whose completions libibverbs polls. */
static void message_is_there(struct ibv_cq *cq, const struct end *peer)
{
	struct ibv_wc done;
	int found;
	memset(&done, 0, sizeof(done));
	while ((found = ibv_poll_cq(cq, 1, &done)) == 0)
		sched_yield();
	CHECK(found == 1 && done.status == IBV_WC_SUCCESS && done.byte_len == 9);
	CHECK(ntohl(done.imm_data) == 0xabcdef01 && memcmp(peer->memory + INTO, "addressed", 9) == 0);
}

static void post_to_srq(struct ibv_srq *srq, const struct end *end)
{
	struct ibv_sge into = sge(end, INTO, 64);
	struct ibv_recv_wr receive, *bad;
	memset(&receive, 0, sizeof(receive));
	receive.sg_list = &into;
	receive.num_sge = 1;
	CHECK(ibv_post_srq_recv(srq, &receive, &bad) == 0);
}

/* Takes over the send queue of a queue pair that completes on an end's completion queue. */
static void take_sends(struct end *end, struct ibv_qp *qp)
{
	CHECK(ibv_destroy_qp(end->qp) == 0);
	end->qp = qp;
	OK(mlx5_cq_take(end->ibv_cq, 0, &end->cq));
	OK(mlx5_sq_take(qp, end->cq, 0, 0, &end->sq));
}

static struct ibv_qp *make_dc(struct ibv_cq *cq, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr_ex init;
	struct mlx5dv_qp_init_attr dv;
	struct ibv_qp *qp;
	memset(&init, 0, sizeof(init));
	memset(&dv, 0, sizeof(dv));
	init.qp_type = IBV_QPT_DRIVER;
	init.send_cq = init.recv_cq = cq;
	init.pd = pd;
	init.comp_mask = IBV_QP_INIT_ATTR_PD;
	dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
	if (srq) {
		init.srq = srq;
		dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
		dv.dc_init_attr.dct_access_key = ACCESS_KEY;
	} else {
		init.cap.max_send_wr = DEPTH;
		init.cap.max_send_sge = 1;
		init.cap.max_inline_data = INLINE_BYTES;
		dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
	}
	qp = mlx5dv_create_qp(context, &init, &dv);
	CHECK(qp);
	return qp;
}

static void dc_to_init(struct ibv_qp *qp, int access)
{
	struct ibv_qp_attr attr;
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	attr.qp_access_flags = (unsigned)access;
	CHECK(ibv_modify_qp(qp, &attr, mask | (access ? IBV_QP_ACCESS_FLAGS : 0)) == 0);
}

/* A target, ready to receive. */
static void dct_to_rtr(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	dc_to_init(qp, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.min_rnr_timer = 1;
	attr.ah_attr = path();
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV) == 0);
}

static void dci_to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	dc_to_init(qp, 0);
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.ah_attr = path();
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV) == 0);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 18;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void dc(void)
{
	struct end a, b;
	struct ibv_ah_attr to;
	struct ibv_srq *srq;
	struct ibv_qp *target, *initiator;
	struct ibv_ah *ah;
	struct mlx5_address address;
	open_device();
	make_end(&a, IBV_QPT_RC);
	make_end(&b, IBV_QPT_RC);
	srq = make_srq();
	target = make_dc(b.ibv_cq, srq);
	dct_to_rtr(target);
	initiator = make_dc(a.ibv_cq, NULL);
	dci_to_rts(initiator);
	take_sends(&a, initiator);
	to = path();
	ah = ibv_create_ah(pd, &to);
	CHECK(ah);
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_address_init_dc(NULL, ah, target->qp_num, ACCESS_KEY));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_address_init_dc(&address, NULL, target->qp_num, ACCESS_KEY));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_address_init_dc(&address, ah, 1u << 24, ACCESS_KEY));
	OK(mlx5_address_init_dc(&address, ah, target->qp_num, ACCESS_KEY));
	CHECK(ibv_destroy_ah(ah) == 0);
	post_to_srq(srq, &b);
	operations_to(&a, &b, &address);
	message_is_there(b.ibv_cq, &b);
	destroy_end(&a);
	CHECK(ibv_destroy_qp(target) == 0);
	destroy_end(&b);
	CHECK(ibv_destroy_srq(srq) == 0);
	close_device();
}

static struct ibv_qp *make_xrc(enum ibv_qp_type type, struct ibv_cq *cq, struct ibv_xrcd *domain)
{
	struct ibv_qp_init_attr_ex init;
	struct ibv_qp *qp;
	memset(&init, 0, sizeof(init));
	init.qp_type = type;
	if (type == IBV_QPT_XRC_SEND) {
		init.send_cq = cq;
		init.pd = pd;
		init.comp_mask = IBV_QP_INIT_ATTR_PD;
		init.cap.max_send_wr = DEPTH;
		init.cap.max_send_sge = 1;
		init.cap.max_inline_data = INLINE_BYTES;
	} else {
		init.xrcd = domain;
		init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
	}
	qp = ibv_create_qp_ex(context, &init);
	CHECK(qp);
	return qp;
}

/* The states of a reliable connection, with the attributes of this end. */
static void xrc_to(struct ibv_qp *qp, uint32_t peer)
{
	int requests = qp->qp_type == IBV_QPT_XRC_SEND;
	struct ibv_qp_attr attr;
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
	attr.qp_state = IBV_QPS_RTR;
	attr.ah_attr = path();
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = peer;
	attr.max_dest_rd_atomic = 4;
	attr.min_rnr_timer = 1;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    (requests ? 0 : IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)) == 0);
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 18;
	attr.retry_cnt = 7;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 4;
	CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
			    (requests ? IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0)) == 0);
}

static struct ibv_xrcd *open_domain(void)
{
	struct ibv_xrcd_init_attr attr;
	struct ibv_xrcd *domain;
	memset(&attr, 0, sizeof(attr));
	attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	attr.fd = -1;
	attr.oflags = O_CREAT;
	domain = ibv_open_xrcd(context, &attr);
	CHECK(domain);
	return domain;
}

static struct ibv_srq *make_xrc_srq(struct ibv_xrcd *domain, struct ibv_cq *cq)
{
	struct ibv_srq_init_attr_ex attr;
	struct ibv_srq *srq;
	memset(&attr, 0, sizeof(attr));
	attr.attr.max_wr = DEPTH;
	attr.attr.max_sge = 1;
	attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ |
			 IBV_SRQ_INIT_ATTR_XRCD;
	attr.srq_type = IBV_SRQT_XRC;
	attr.pd = pd;
	attr.cq = cq;
	attr.xrcd = domain;
	srq = ibv_create_srq_ex(context, &attr);
	CHECK(srq);
	return srq;
}

static void xrc(void)
{
	struct end a, b;
	struct ibv_xrcd *domain;
	struct ibv_srq *srq;
	struct ibv_qp *target, *initiator;
	struct mlx5_address address;
	uint32_t number = 0;
	open_device();
	make_end(&a, IBV_QPT_RC);
	make_end(&b, IBV_QPT_RC);
	domain = open_domain();
	srq = make_xrc_srq(domain, b.ibv_cq);
	CHECK(ibv_get_srq_num(srq, &number) == 0);
	target = make_xrc(IBV_QPT_XRC_RECV, NULL, domain);
	initiator = make_xrc(IBV_QPT_XRC_SEND, a.ibv_cq, NULL);
	xrc_to(target, initiator->qp_num);
	xrc_to(initiator, target->qp_num);
	take_sends(&a, initiator);
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_address_init_xrc(NULL, number));
	IS(MLX5_STATUS_INVALID_ARGUMENT, mlx5_address_init_xrc(&address, 1u << 24));
	OK(mlx5_address_init_xrc(&address, number));
	post_to_srq(srq, &b);
	operations_to(&a, &b, &address);
	message_is_there(b.ibv_cq, &b);
	destroy_end(&a);
	CHECK(ibv_destroy_qp(target) == 0);
	CHECK(ibv_destroy_srq(srq) == 0);
	CHECK(ibv_close_xrcd(domain) == 0);
	destroy_end(&b);
	close_device();
}

#endif
