/* One request that is refused or lost, as the first argument says. Prints nothing of it. */
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

enum { SIZE = 4096, QKEY = 0x11111111 };

static const char *fault;
static struct ibv_context *context;
static struct ibv_pd *domain;
static struct ibv_port_attr port;
static union ibv_gid gid;
static struct ibv_cq *cq;
static struct ibv_mr *mr;

static void fail(const char *what)
{
	perror(what);
	exit(2);
}

static int is(const char *name)
{
	return strcmp(fault, name) == 0;
}

static struct ibv_qp *datagrams(struct ibv_cq *of, uint32_t key, int reaches)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_UD, .send_cq = of, .recv_cq = of,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(domain, &init);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = key };

	if (!qp || ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY))
		fail("INIT");
	if (!reaches)
		return qp;
	attr.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE))
		fail("RTR");
	attr.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN))
		fail("RTS");
	return qp;
}

static void receive(struct ibv_qp *qp, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)mr->addr, length, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	if (ibv_post_recv(qp, &wr, &bad))
		fail("ibv_post_recv");
}

static void address(struct ibv_ah_attr *attr)
{
	attr->port_num = 1;
	attr->dlid = port.lid;
	attr->is_global = port.link_layer == IBV_LINK_LAYER_ETHERNET;
	attr->grh.dgid = gid;
	attr->grh.sgid_index = attr->is_global;
	attr->grh.hop_limit = 64;
}

/* Sends a datagram, and takes its completion. */
static void lose(void)
{
	struct ibv_cq *small = is("overrun") ? ibv_create_cq(context, 1, NULL, NULL, 0) : cq;
	struct ibv_qp *from = datagrams(small, QKEY, 1);
	struct ibv_qp *to = datagrams(cq, is("q-key") ? QKEY + 1 : QKEY, !is("state"));
	struct ibv_sge sge = { (uintptr_t)mr->addr, 64, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_ah_attr attr = { 0 };
	struct ibv_async_event event;
	struct ibv_wc wc;

	address(&attr);
	wr.wr.ud.ah = ibv_create_ah(domain, &attr);
	wr.wr.ud.remote_qpn = to->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	if (is("no-room"))
		receive(to, 64);
	for (int times = is("overrun") ? 8 : 1; times > 0; times--)
		if (ibv_post_send(from, &wr, &bad))
			fail("ibv_post_send");
	if (is("overrun") || is("no-room")) {
		/* Of the CQ, or of the queue pair that receives. */
		if (is("overrun") && ibv_get_async_event(context, &event))
			fail("ibv_get_async_event");
	} else {
		while (ibv_poll_cq(cq, 1, &wc) == 0)
			;
	}
	while (is("no-room") && (ibv_poll_cq(cq, 1, &wc) == 0 || wc.qp_num != to->qp_num))
		;
}

/* A UC queue pair that is connected to itself. */
static struct ibv_qp *looped(uint32_t requests)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_UC, .send_cq = cq, .recv_cq = cq,
		.cap = { .max_send_wr = requests, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(domain, &init);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	if (!qp || ibv_modify_qp(qp, &attr,
				 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail("INIT");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
				     .dest_qp_num = qp->qp_num };
	address(&attr.ah_attr);
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					     IBV_QP_RQ_PSN))
		fail("RTR");
	attr.qp_state = IBV_QPS_RTS;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN))
		fail("RTS");
	return qp;
}

/* WRITEs that no queue pair grants, or an invalidation of no key; or sends, none of which asks for a CQE. */
static void request(void)
{
	uint32_t requests = 4, posted = 0;
	struct ibv_qp *qp = looped(requests);
	struct ibv_sge sge = { (uintptr_t)mr->addr, 64, mr->lkey };
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;

	if (is("unsignaled")) {
		wr.send_flags = 0;
		while (!ibv_post_send(qp, &wr, &bad))
			posted++;
		if (posted < requests)
			fail("too few posts");
		return;
	}
	if (is("write")) {
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.sg_list = &sge;
		wr.num_sge = 1;
	} else {
		wr.opcode = IBV_WR_LOCAL_INV;
		wr.invalidate_rkey = 0x7fff00;
	}
	if (ibv_post_send(qp, &wr, &bad))
		fail("ibv_post_send");
	while (ibv_poll_cq(cq, 1, &wc) == 0)
		;
}

static atomic_int stop;

static void *refuse(void *unused)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq,
					 .cap = { .max_send_wr = 1, .max_send_sge = 1 } };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 2 };
	struct ibv_qp *qp = ibv_create_qp(domain, &init);

	while (!stop)
		if (!ibv_modify_qp(qp, &attr,
				   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
			fail("not refused");
	return unused;
}

/* Children of forks have calls refused that come while other threads have theirs refused. */
static void forks(void)
{
	pthread_t threads[2];
	int status;

	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, refuse, NULL);
	for (int i = 0; i < 40; i++) {
		if (fork() == 0) {
			struct ibv_device **list = ibv_get_device_list(NULL);
			struct ibv_context *own = ibv_open_device(list[0]);

			_exit(ibv_reg_mr(ibv_alloc_pd(own), mr->addr, SIZE, IBV_ACCESS_REMOTE_WRITE) ? 1 : 0);
		}
		if (wait(&status) < 0 || status != 0)
			fail("a child");
	}
	stop = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

static void at_the_end(void *unused)
{
	(void)unused;
	if (ibv_reg_mr(domain, mr->addr, SIZE, IBV_ACCESS_REMOTE_WRITE))
		fail("not refused");
}

static void *leave(void *key)
{
	at_the_end(NULL);
	pthread_setspecific(*(pthread_key_t *)key, key);
	return NULL;
}

/* A thread has a call refused, and another one while it ends, when its variables are gone. */
static void late(void)
{
	pthread_key_t key;
	pthread_t thread;

	pthread_key_create(&key, at_the_end);
	pthread_create(&thread, NULL, leave, &key);
	pthread_join(thread, NULL);
}

/* A call that is refused. */
static void call(void)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_srq_attr limit = { .srq_limit = 100 };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp *qp = ibv_create_qp(domain, &init);

	if (is("raw")) {
		init.qp_type = IBV_QPT_RAW_PACKET;
		if (ibv_create_qp(domain, &init))
			fail("not refused");
	}
	if (is("right") && ibv_reg_mr(domain, mr->addr, SIZE, IBV_ACCESS_REMOTE_WRITE))
		fail("not refused");
	if (is("limit") && !ibv_modify_srq(ibv_create_srq(domain, &shared), &limit, IBV_SRQ_LIMIT))
		fail("not refused");
	if (is("busy") && !ibv_dealloc_pd(domain))
		fail("not refused");
	if (is("unmapped") && ibv_reg_mr(domain, (void *)4096, SIZE, 0))
		fail("not refused");
	if (is("group") && !ibv_attach_mcast(qp, &gid, 0xc001))
		fail("not refused");
	if (is("mask") && !ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT))
		fail("not refused");
	if (!is("grh") && !is("reads"))
		return;
	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail("INIT");
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = is("reads") ? 200 : 1,
	};
	address(&attr.ah_attr);
	if (is("grh"))
		attr.ah_attr.is_global = 0;
	if (!ibv_modify_qp(qp, &attr,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		fail("not refused");
}

/* A command of DevX that is refused. */
static void command(struct ibv_device *device)
{
	struct mlx5dv_context_attr attr = { .flags = MLX5DV_CONTEXT_FLAGS_DEVX };
	struct ibv_context *devx = mlx5dv_open_device(device, &attr);
	/* QUERY_HCA_CAP of capabilities that do not exist. */
	uint8_t in[16] = { 0x01, 0x00, 0, 0, 0, 0, 0xff, 0xfe }, out[4112];

	if (!devx || !mlx5dv_devx_general_cmd(devx, in, sizeof(in), out, sizeof(out)))
		fail("not refused");
}

int main(int count, char **arguments)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	fault = count > 1 ? arguments[1] : "none";
	if (!list || !list[0])
		fail("ibv_get_device_list");
	if (is("command"))
		command(list[0]);
	context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	domain = ibv_alloc_pd(context);
	if (ibv_query_port(context, 1, &port))
		fail("ibv_query_port");
	if (ibv_query_gid(context, 1, port.link_layer == IBV_LINK_LAYER_ETHERNET, &gid))
		fail("ibv_query_gid");
	cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	mr = ibv_reg_mr(domain, aligned_alloc(SIZE, SIZE), SIZE, IBV_ACCESS_LOCAL_WRITE);
	if (!cq || !mr)
		fail("ibv_reg_mr");
	if (is("q-key") || is("no-receive") || is("no-room") || is("state") || is("overrun"))
		lose();
	else if (is("write") || is("invalidate") || is("unsignaled"))
		request();
	else if (is("forks"))
		forks();
	else if (is("late"))
		late();
	else
		call();
	return 0;
}
