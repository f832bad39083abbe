/* Queue pairs in the ways that programs have them. The first argument names one. */
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 4096, DEPTH = 64, THREADS = 4, TIMES = 400 };

struct bed {
	struct ibv_context *context;
	struct ibv_pd *domain;
	struct ibv_port_attr port;
	union ibv_gid gid;
	struct ibv_mr *mr;
	char *memory;
};

static void fail(const char *what)
{
	perror(what);
	exit(2);
}

static struct bed open_bed(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct bed bed = { 0 };

	if (!list || !list[0])
		fail("ibv_get_device_list");
	bed.context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	if (!bed.context)
		fail("ibv_open_device");
	bed.domain = ibv_alloc_pd(bed.context);
	if (ibv_query_port(bed.context, 1, &bed.port))
		fail("ibv_query_port");
	ibv_query_gid(bed.context, 1, bed.port.link_layer == IBV_LINK_LAYER_ETHERNET, &bed.gid);
	bed.memory = aligned_alloc(SIZE, SIZE);
	bed.mr = ibv_reg_mr(bed.domain, bed.memory, SIZE,
			    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!bed.mr)
		fail("ibv_reg_mr");
	return bed;
}

static void close_bed(struct bed *bed)
{
	if (ibv_dereg_mr(bed->mr) || ibv_dealloc_pd(bed->domain) || ibv_close_device(bed->context))
		fail("close");
	free(bed->memory);
}

/* A queue pair that is connected to itself. */
static struct ibv_qp *make(struct bed *bed, struct ibv_cq *cq, int all_signaled)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .sq_sig_all = all_signaled,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(bed->domain, &init);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};

	if (!qp)
		fail("ibv_create_qp");
	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail("INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
		.rq_psn = 100, .min_rnr_timer = 1, .max_dest_rd_atomic = 1,
		.ah_attr = { .port_num = 1, .dlid = bed->port.lid },
	};
	if (bed->port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		attr.ah_attr.is_global = 1;
		attr.ah_attr.grh.dgid = bed->gid;
		attr.ah_attr.grh.sgid_index = 1;
		attr.ah_attr.grh.hop_limit = 64;
	}
	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		fail("RTR");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .sq_psn = 100, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7,
		.max_rd_atomic = 1,
	};
	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
		fail("RTS");
	return qp;
}

static int write_one(struct bed *bed, struct ibv_qp *qp, uint64_t number, unsigned flags)
{
	struct ibv_sge sge = { (uintptr_t)bed->memory, 8, bed->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = number, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = flags,
	}, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)bed->memory + 2048;
	wr.wr.rdma.rkey = bed->mr->rkey;
	return ibv_post_send(qp, &wr, &bad);
}

static void poll_one(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(cq, 1, &wc) == 0)
		;
	if (wc.status) {
		fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
		exit(3);
	}
}

static void write_and_poll(struct bed *bed, int times)
{
	struct ibv_cq *cq = ibv_create_cq(bed->context, DEPTH, NULL, NULL, 0);
	struct ibv_qp *qp = make(bed, cq, 1);

	for (int number = 0; number < times; number++) {
		if (write_one(bed, qp, number, 0))
			fail("ibv_post_send");
		poll_one(cq);
	}
	if (ibv_destroy_qp(qp) || ibv_destroy_cq(cq))
		fail("destroy");
}

/* A child that has queue pairs of its own. */
static void fork_one(void)
{
	struct bed bed = open_bed();
	struct ibv_cq *cq = ibv_create_cq(bed.context, DEPTH, NULL, NULL, 0);
	struct ibv_qp *qp = make(&bed, cq, 1);
	int status;

	if (write_one(&bed, qp, 1, 0))
		fail("ibv_post_send");
	poll_one(cq);
	if (fork() == 0) {
		struct bed own = open_bed();
		struct ibv_wc wc;

		/* What it has of the parent's is not to be counted. */
		for (int times = 0; times < 10; times++)
			ibv_poll_cq(cq, 1, &wc);
		write_and_poll(&own, 5);
		_exit(0);
	}
	wait(&status);
	if (status)
		exit(4);
	if (write_one(&bed, qp, 2, 0))
		fail("ibv_post_send");
	poll_one(cq);
}

struct shared {
	struct bed *bed;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	atomic_int polled;
	atomic_int posted;
};

static void *post_many(void *argument)
{
	struct shared *shared = argument;

	for (int number = 0; number < TIMES; number++) {
		int result;

		while ((result = write_one(shared->bed, shared->qp, (uintptr_t)&result + number,
					   IBV_SEND_SIGNALED)) == ENOMEM)
			;
		if (result)
			fail("ibv_post_send");
		shared->posted++;
	}
	return NULL;
}

static void *poll_many(void *argument)
{
	struct shared *shared = argument;
	struct ibv_wc wc[4];

	while (shared->polled < THREADS * TIMES) {
		int count = ibv_poll_cq(shared->cq, 4, wc);

		for (int index = 0; index < count; index++)
			if (wc[index].status)
				exit(3);
		shared->polled += count;
	}
	return NULL;
}

/* Contexts and queue pairs that come and go beside the others. */
static void *churn(void *argument)
{
	(void)argument;
	for (int times = 0; times < 20; times++) {
		struct bed bed = open_bed();

		write_and_poll(&bed, 3);
		close_bed(&bed);
	}
	return NULL;
}

static void threads(void)
{
	struct bed bed = open_bed();
	struct ibv_cq *cq = ibv_create_cq(bed.context, 4 * DEPTH, NULL, NULL, 0);
	struct shared shared = { .bed = &bed, .cq = cq, .qp = make(&bed, cq, 0) };
	pthread_t all[THREADS + 3];

	for (int index = 0; index < THREADS; index++)
		pthread_create(&all[index], NULL, post_many, &shared);
	pthread_create(&all[THREADS], NULL, poll_many, &shared);
	pthread_create(&all[THREADS + 1], NULL, poll_many, &shared);
	pthread_create(&all[THREADS + 2], NULL, churn, NULL);
	for (int index = 0; index < THREADS + 3; index++)
		pthread_join(all[index], NULL);
	printf("posted %d, polled %d\n", shared.posted, shared.polled);
}

/* A full queue refuses requests. */
static void refused(void)
{
	struct bed bed = open_bed();
	struct ibv_cq *cq = ibv_create_cq(bed.context, 4 * DEPTH, NULL, NULL, 0);
	struct ibv_qp *qp = make(&bed, cq, 0);
	int posted = 0, result;

	while ((result = write_one(&bed, qp, posted, IBV_SEND_SIGNALED)) == 0)
		posted++;
	printf("%s, errno %d\n", strerror(result), errno);
	for (int number = 0; number < posted; number++)
		poll_one(cq);
	if (write_one(&bed, qp, posted, IBV_SEND_SIGNALED))
		fail("ibv_post_send");
	poll_one(cq);
}

/* Takes the queue over from libibverbs. */
static void takeover(void)
{
	struct bed bed = open_bed();
	struct ibv_cq *cq = ibv_create_cq(bed.context, DEPTH, NULL, NULL, 0);
	struct mlx5dv_qp direct = { 0 };
	struct mlx5dv_obj object = { .qp = { .in = make(&bed, cq, 0), .out = &direct } };

	if (mlx5dv_init_obj(&object, MLX5DV_OBJ_QP))
		fail("mlx5dv_init_obj");
	printf("%u WQEs\n", direct.sq.wqe_cnt);
}

int main(int count, char **arguments)
{
	const char *way = count > 1 ? arguments[1] : "";

	if (strcmp(way, "fork") == 0)
		fork_one();
	else if (strcmp(way, "threads") == 0)
		threads();
	else if (strcmp(way, "refused") == 0)
		refused();
	else if (strcmp(way, "takeover") == 0)
		takeover();
	else
		return 1;
	printf("done\n");
	return 0;
}
