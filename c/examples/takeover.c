/*
 * A program of libibverbs, and the same on the direct path: with -DDIRECT it posts and polls by libmlx5direct.
 *
 * The lines under DIRECT are all that changes. Objects, connection and teardown stay libibverbs'.
 *
 *   cc takeover.c -libverbs -o before
 *   cc -DDIRECT takeover.c $(pkg-config --cflags --libs mlx5direct) -libverbs -o after
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>
#ifdef DIRECT
#include <mlx5.h>
#endif

enum { WRITES = 10000, DEPTH = 16 };

static void check(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "%s failed\n", what);
		exit(1);
	}
}

/* A queue pair, and the objects that it needs. */
struct side {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
#ifdef DIRECT
	struct mlx5_cq *polls;
	struct mlx5_sq *sends;
#endif
};

static void make(struct side *side, struct ibv_context *context, struct ibv_pd *pd)
{
	struct ibv_qp_init_attr init;
	memset(&init, 0, sizeof(init));
	side->cq = ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0);
	check(side->cq != NULL, "ibv_create_cq");
	init.send_cq = init.recv_cq = side->cq;
	init.qp_type = IBV_QPT_RC;
	init.cap.max_send_wr = DEPTH;
	init.cap.max_recv_wr = init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	side->qp = ibv_create_qp(pd, &init);
	check(side->qp != NULL, "ibv_create_qp");
}

static void connect_to(struct side *side, uint32_t peer, const struct ibv_port_attr *port, const union ibv_gid *gid)
{
	struct ibv_qp_attr attr;
	memset(&attr, 0, sizeof(attr));
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	check(ibv_modify_qp(side->qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0, "INIT");
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = peer;
	attr.max_dest_rd_atomic = 1;
	attr.min_rnr_timer = 12;
	attr.ah_attr.dlid = port->lid;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.is_global = port->link_layer == IBV_LINK_LAYER_ETHERNET;
	attr.ah_attr.grh.dgid = *gid;
	attr.ah_attr.grh.hop_limit = 1;
	check(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			    IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0, "RTR");
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	check(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0, "RTS");
}

/* Writes the first word of the region to its second. */
static int post(struct side *side, const struct ibv_mr *mr, uint64_t id)
{
	struct ibv_sge sge = { (uintptr_t)mr->addr, 8, mr->lkey };
#ifdef DIRECT
	struct mlx5_request write = { .id = id, .operation = MLX5_OP_WRITE, .flags = MLX5_SIGNALED };
	write.sg_list = &sge;
	write.num_sge = 1;
	write.remote_addr = (uintptr_t)mr->addr + 8;
	write.rkey = mr->rkey;
	return mlx5_sq_post(side->sends, &write, 1, NULL);
#else
	struct ibv_send_wr write = { .wr_id = id, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
	write.sg_list = &sge;
	write.num_sge = 1;
	write.wr.rdma.remote_addr = (uintptr_t)mr->addr + 8;
	write.wr.rdma.rkey = mr->rkey;
	return ibv_post_send(side->qp, &write, &bad);
#endif
}

/* Takes completions, which are in order from this id on. */
static int poll(struct side *side, uint64_t id)
{
	int at, count;
#ifdef DIRECT
	struct mlx5_completion done[DEPTH];
	count = mlx5_cq_poll(side->polls, done, DEPTH);
#else
	struct ibv_wc done[DEPTH];
	count = ibv_poll_cq(side->cq, DEPTH, done);
#endif
	check(count >= 0, "polling");
	for (at = 0; at < count; at++) {
#ifdef DIRECT
		check(done[at].status == IBV_WC_SUCCESS && done[at].id == id + (uint64_t)at, "a WRITE");
#else
		check(done[at].status == IBV_WC_SUCCESS && done[at].wr_id == id + (uint64_t)at, "a WRITE");
#endif
	}
	return count;
}

int main(void)
{
	static uint64_t memory[2] = { 42, 0 };
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct side a, b;
	uint64_t posted = 0, done = 0;
	check(context != NULL, "opening a device");
	check(ibv_query_port(context, 1, &port) == 0 && ibv_query_gid(context, 1, 0, &gid) == 0, "ibv_query_port");
	pd = ibv_alloc_pd(context);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	check(pd && mr, "ibv_reg_mr");
	make(&a, context, pd);
	make(&b, context, pd);
	connect_to(&a, b.qp->qp_num, &port, &gid);
	connect_to(&b, a.qp->qp_num, &port, &gid);
#ifdef DIRECT
	check(mlx5_cq_take(a.cq, 0, &a.polls) == MLX5_STATUS_OK, "mlx5_cq_take");
	check(mlx5_sq_take(a.qp, a.polls, DEPTH, 0, &a.sends) == MLX5_STATUS_OK, "mlx5_sq_take");
#endif
	while (done < WRITES) {
		while (posted < WRITES && posted - done < DEPTH)
			check(post(&a, mr, posted++) == 0, "a post");
		done += (uint64_t)poll(&a, done);
	}
	printf("%llu WRITEs, the word is %llu\n", (unsigned long long)done, (unsigned long long)memory[1]);
#ifdef DIRECT
	mlx5_sq_give_back(a.sends);
	mlx5_cq_give_back(a.polls);
#endif
	ibv_destroy_qp(a.qp);
	ibv_destroy_qp(b.qp);
	ibv_destroy_cq(a.cq);
	ibv_destroy_cq(b.cq);
	ibv_dereg_mr(mr);
	ibv_dealloc_pd(pd);
	ibv_close_device(context);
	ibv_free_device_list(list);
	return 0;
}
