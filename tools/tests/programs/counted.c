/* Posts and polls a number of times, for counts of instructions. The first argument says in which way, the
 * second how often. Prints the number of polls that found nothing. */
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 4096, DEPTH = 64 };

static struct ibv_context *context;
static struct ibv_pd *domain;
static struct ibv_port_attr port;
static union ibv_gid gid;
static struct ibv_mr *mr;
static char *memory;
static const char *way;
static long empty;

struct side {
	struct ibv_cq *cq;
	struct ibv_cq_ex *extended;
	struct ibv_qp *qp;
};

static void fail(const char *what)
{
	perror(what);
	exit(2);
}

static int is(const char *name)
{
	return strcmp(way, name) == 0;
}

static int is_extended(void)
{
	return is("extended") || is("extended-empty");
}

static struct side make(void)
{
	struct side side = { 0 };
	struct ibv_cq_init_attr_ex cq = { .cqe = 4 * DEPTH, .wc_flags = IBV_WC_EX_WITH_QP_NUM };
	struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_RC, .pd = domain };

	if (is_extended()) {
		side.extended = ibv_create_cq_ex(context, &cq);
		if (!side.extended)
			fail("ibv_create_cq_ex");
		side.cq = ibv_cq_ex_to_cq(side.extended);
	} else {
		side.cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
	}
	init.send_cq = init.recv_cq = side.cq;
	init.cap = (struct ibv_qp_cap){
		.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1,
	};
	init.comp_mask = IBV_QP_INIT_ATTR_PD;
	if (is_extended()) {
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		init.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND;
	}
	side.qp = ibv_create_qp_ex(context, &init);
	if (!side.qp)
		fail("ibv_create_qp_ex");
	return side;
}

static void connect_to(struct side *side, uint32_t number)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
	};

	if (ibv_modify_qp(side->qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail("INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = number,
		.rq_psn = 100, .min_rnr_timer = 1, .max_dest_rd_atomic = 1,
		.ah_attr = { .port_num = 1, .dlid = port.lid },
	};
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		attr.ah_attr.is_global = 1;
		attr.ah_attr.grh.dgid = gid;
		attr.ah_attr.grh.sgid_index = 1;
		attr.ah_attr.grh.hop_limit = 64;
	}
	if (ibv_modify_qp(side->qp, &attr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		fail("RTR");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .sq_psn = 100, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	if (ibv_modify_qp(side->qp, &attr,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		fail("RTS");
}

static void poll_one(struct side *side)
{
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_wc wc;

	if (side->extended) {
		while (ibv_start_poll(side->extended, &attr))
			empty++;
		if (side->extended->status)
			exit(3);
		ibv_end_poll(side->extended);
		return;
	}
	while (ibv_poll_cq(side->cq, 1, &wc) == 0)
		empty++;
	if (wc.status)
		exit(3);
}

static void write_one(struct side *side, uint64_t number, int signaled)
{
	struct ibv_sge sge = { (uintptr_t)memory, 32, mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = number, .sg_list = &sge, .num_sge = 1,
		.opcode = is("send") ? IBV_WR_SEND : IBV_WR_RDMA_WRITE,
		.send_flags = signaled ? IBV_SEND_SIGNALED : 0,
	}, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)memory + 2048;
	wr.wr.rdma.rkey = mr->rkey;
	if (is_extended()) {
		struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(side->qp);

		ibv_wr_start(qp);
		qp->wr_id = number;
		qp->wr_flags = wr.send_flags;
		ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)memory + 2048);
		ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)memory, 32);
		if (ibv_wr_complete(qp))
			fail("ibv_wr_complete");
	} else if (ibv_post_send(side->qp, &wr, &bad)) {
		fail("ibv_post_send");
	}
}

static void receive_one(struct side *side, uint64_t number)
{
	struct ibv_sge sge = { (uintptr_t)memory + 1024, 32, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = number, .sg_list = &sge, .num_sge = 1 }, *bad;

	if (ibv_post_recv(side->qp, &wr, &bad))
		fail("ibv_post_recv");
}

int main(int count, char **arguments)
{
	long times = count > 2 ? atol(arguments[2]) : 100, every = 1;
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct side near, far;
	struct ibv_wc wc;

	way = count > 1 ? arguments[1] : "signaled";
	if (!list || !list[0])
		fail("ibv_get_device_list");
	context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	domain = ibv_alloc_pd(context);
	if (ibv_query_port(context, 1, &port))
		fail("ibv_query_port");
	ibv_query_gid(context, 1, port.link_layer == IBV_LINK_LAYER_ETHERNET, &gid);
	memory = aligned_alloc(SIZE, SIZE);
	mr = ibv_reg_mr(domain, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!mr)
		fail("ibv_reg_mr");
	near = make();
	far = make();
	connect_to(&near, far.qp->qp_num);
	connect_to(&far, near.qp->qp_num);
	if (is("unsignaled"))
		every = 16;
	for (long number = 0; number < times; number++) {
		if (is("empty")) {
			empty += ibv_poll_cq(near.cq, 1, &wc) == 0;
			continue;
		}
		if (is("extended-empty")) {
			struct ibv_poll_cq_attr attr = { 0 };

			empty += ibv_start_poll(near.extended, &attr) != 0;
			continue;
		}
		if (is("send"))
			receive_one(&far, number);
		write_one(&near, number, (number + 1) % every == 0);
		if ((number + 1) % every == 0)
			poll_one(&near);
		if (is("send"))
			poll_one(&far);
	}
	printf("empty %ld\n", empty);
	if (ibv_destroy_qp(near.qp) || ibv_destroy_qp(far.qp) || ibv_destroy_cq(near.cq) ||
	    ibv_destroy_cq(far.cq) || ibv_dereg_mr(mr) || ibv_dealloc_pd(domain) ||
	    ibv_close_device(context))
		fail("end");
	return 0;
}
