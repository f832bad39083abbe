/* Two connected queue pairs of one device, and the fault that the first argument names. Prints each
 * completion. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 4096, DEPTH = 16 };

static struct ibv_context *context;
static struct ibv_pd *domain;
static struct ibv_port_attr port;
static union ibv_gid gid;
static int gid_index;
static char *memory;
static const char *fault;

struct side {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

static void fail(const char *what)
{
	perror(what);
	exit(2);
}

static int is(const char *name)
{
	return strcmp(fault, name) == 0;
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (!list || !list[0])
		fail("ibv_get_device_list");
	context = ibv_open_device(list[0]);
	if (!context)
		fail("ibv_open_device");
	ibv_free_device_list(list);
	domain = ibv_alloc_pd(context);
	if (ibv_query_port(context, 1, &port))
		fail("ibv_query_port");
	gid_index = port.link_layer == IBV_LINK_LAYER_ETHERNET ? 1 : 0;
	if (ibv_query_gid(context, 1, gid_index, &gid))
		fail("ibv_query_gid");
}

static struct side make(void)
{
	struct side side;
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC };

	side.cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
	init.send_cq = init.recv_cq = side.cq;
	init.cap = (struct ibv_qp_cap){
		.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1,
	};
	side.qp = ibv_create_qp(domain, &init);
	if (!side.qp)
		fail("ibv_create_qp");
	return side;
}

static void connect_to(struct side *side, uint32_t number, int access)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access,
	};

	if (ibv_modify_qp(side->qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail("INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = number,
		.rq_psn = is("psn") ? 50 : 100, .min_rnr_timer = 1,
		.max_dest_rd_atomic = is("read-depth") ? 0 : 4,
		.ah_attr = { .port_num = 1, .dlid = port.lid },
	};
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		attr.ah_attr.is_global = 1;
		attr.ah_attr.grh.dgid = gid;
		attr.ah_attr.grh.sgid_index = gid_index;
		attr.ah_attr.grh.hop_limit = 64;
	}
	if (ibv_modify_qp(side->qp, &attr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		fail("RTR");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .sq_psn = 100, .timeout = 1, .retry_cnt = 1, .rnr_retry = 1,
		.max_rd_atomic = 4,
	};
	if (ibv_modify_qp(side->qp, &attr,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		fail("RTS");
}

static struct ibv_mr *region(int access)
{
	struct ibv_mr *mr = ibv_reg_mr(domain, memory, SIZE, access);

	if (!mr)
		fail("ibv_reg_mr");
	return mr;
}

static void receive(struct side *side, uint32_t lkey, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)memory, length, lkey };
	struct ibv_recv_wr wr = { .wr_id = 70, .sg_list = &sge, .num_sge = 1 }, *bad;

	if (ibv_post_recv(side->qp, &wr, &bad))
		fail("ibv_post_recv");
}

static struct ibv_wc poll_one(const char *name, struct side *side)
{
	struct ibv_wc wc;
	int count;

	do
		count = ibv_poll_cq(side->cq, 1, &wc);
	while (count == 0);
	if (count < 0)
		fail("ibv_poll_cq");
	printf("%s: wr_id %d, %s\n", name, (int)wc.wr_id, ibv_wc_status_str(wc.status));
	return wc;
}

int main(int count, char **arguments)
{
	const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_ATOMIC;
	struct ibv_send_wr wr = { .wr_id = 7, .opcode = IBV_WR_RDMA_WRITE, .num_sge = 1 }, *bad;
	struct ibv_mr *local, *remote;
	struct side near, far;
	struct ibv_sge sge;

	fault = count > 1 ? arguments[1] : "none";
	memory = aligned_alloc(SIZE, SIZE);
	memset(memory, 0, SIZE);
	open_device();
	near = make();
	far = make();
	connect_to(&near, far.qp->qp_num, all);
	connect_to(&far, near.qp->qp_num, is("queue-right") ? IBV_ACCESS_LOCAL_WRITE : all);
	local = region(all);
	remote = region(is("region-right") ? IBV_ACCESS_LOCAL_WRITE : all);

	sge = (struct ibv_sge){ (uintptr_t)memory, 64, local->lkey };
	wr.sg_list = &sge;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 2048;
	wr.wr.rdma.rkey = remote->rkey;
	/* One request that succeeds, unless the fault is in the connection. */
	if (!is("region-right") && !is("queue-right")) {
		if (ibv_post_send(near.qp, &wr, &bad))
			fail("ibv_post_send");
		poll_one("near", &near);
	}
	wr.wr_id = 8;
	if (is("rkey")) {
		wr.wr.rdma.rkey ^= 0x100;
	} else if (is("beyond")) {
		wr.wr.rdma.remote_addr = (uintptr_t)memory + SIZE - 32;
	} else if (is("lkey")) {
		sge.lkey ^= 0x100;
	} else if (is("missing-receive") || is("short-receive") || is("receive-lkey") ||
		   is("receive-right")) {
		wr.opcode = IBV_WR_SEND;
		if (is("short-receive"))
			receive(&far, remote->lkey, 16);
		if (is("receive-lkey"))
			receive(&far, remote->lkey ^ 0x100, 64);
		if (is("receive-right"))
			receive(&far, region(IBV_ACCESS_REMOTE_READ)->lkey, 64);
	} else if (is("read-depth")) {
		wr.opcode = IBV_WR_RDMA_READ;
	} else if (is("read-right")) {
		wr.opcode = IBV_WR_RDMA_READ;
		sge.lkey = region(IBV_ACCESS_REMOTE_READ)->lkey;
	} else if (is("outside")) {
		sge.addr += SIZE - 32;
	} else if (is("unaligned") || is("atomic-right")) {
		wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		sge.length = 8;
		wr.wr.atomic.remote_addr = (uintptr_t)memory + (is("unaligned") ? 4 : 8);
		wr.wr.atomic.compare_add = 1;
		wr.wr.atomic.rkey = is("unaligned") ? remote->rkey :
			region(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)->rkey;
	} else if (is("peer-gone")) {
		if (ibv_destroy_qp(far.qp))
			fail("ibv_destroy_qp");
		far.qp = NULL;
	} else if (is("flushed")) {
		/* The peer's request fails on this side: its receive is flushed, and nothing says why. */
		receive(&far, remote->lkey, 64);
		wr.wr.rdma.rkey ^= 0x100;
	} else if (is("closed")) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

		receive(&far, remote->lkey, 64);
		if (ibv_modify_qp(far.qp, &attr, IBV_QP_STATE))
			fail("ERR");
		poll_one("far", &far);
		return 0;
	}
	if (ibv_post_send(near.qp, &wr, &bad))
		fail("ibv_post_send");
	poll_one("near", &near);
	if (is("short-receive") || is("receive-lkey") || is("receive-right") || is("flushed"))
		poll_one("far", &far);
	return 0;
}
