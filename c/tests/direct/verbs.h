/* Two connected ends of a verbs program: objects of libibverbs alone. Also valid C++17. */
#ifndef VERBS_H
#define VERBS_H

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

/* What a failed check prints besides. */
#ifndef LAST_ERROR
#define LAST_ERROR() strerror(errno)
#endif

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__,         \
				#condition, LAST_ERROR());                                    \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

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

/* A queue pair with a receive queue of its own, or with a shared one. */
static struct ibv_qp *make_qp_with(struct ibv_cq *cq, enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp *qp;
	memset(&init, 0, sizeof(init));
	init.send_cq = init.recv_cq = cq;
	init.qp_type = type;
	init.srq = srq;
	init.cap.max_send_wr = DEPTH;
	init.cap.max_recv_wr = srq ? 0 : DEPTH;
	init.cap.max_send_sge = init.cap.max_recv_sge = 2;
	init.cap.max_inline_data = INLINE_BYTES;
	qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	return qp;
}

static struct ibv_qp *make_qp(struct ibv_cq *cq, enum ibv_qp_type type)
{
	return make_qp_with(cq, type, NULL);
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

/* Destroys the objects of an end whose queues were given back. */
static void destroy_objects(struct end *end)
{
	CHECK(ibv_destroy_qp(end->qp) == 0);
	CHECK(ibv_destroy_cq(end->ibv_cq) == 0);
	CHECK(ibv_destroy_comp_channel(end->channel) == 0);
	CHECK(ibv_dereg_mr(end->mr) == 0);
	free(end->memory);
}

static struct ibv_sge sge(const struct end *end, unsigned offset, uint32_t length)
{
	struct ibv_sge entry;
	entry.addr = (uint64_t)(uintptr_t)end->memory + offset;
	entry.length = length;
	entry.lkey = end->mr->lkey;
	return entry;
}

#endif
